//! The documentation: its configurations are valid, and its errors are those that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use control::management::{ManagementError, Row};
use domain::identity::AuthMethod;
use domain::problem::Problem;
use domain::refusal::Refusal;
use http::StatusCode;
use keygate::config::Config;

use crate::support::page::{Block, block, blocks};

/// The keys that every configuration must have, as the smallest example gives them.
const REQUIRED: [(&str, &str); 5] = [
    ("listen", "[{ address: '127.0.0.1:0' }]"),
    ("admin", "{ socket: admin.sock }"),
    ("upstream", "{ endpoints: ['http://127.0.0.1:8081'] }"),
    ("state", "{ embedded: { path: state.db } }"),
    ("audit", "{ path: audit }"),
];

#[test]
fn configuration_examples_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tls")).unwrap();
    fs::write(dir.path().join("tls/ticket-key"), "0123456789abcdef0123456789abcdef").unwrap();
    let mut count = 0;
    fs::write(dir.path().join("redis-password"), "secret").unwrap();
    for Block { page, text, .. } in blocks().into_iter().filter(|block| block.language == "yaml") {
        // The secrets of examples are in the environment of their reader.
        let block = text.replace("{ env: OIDC_CLIENT_SECRET }", "secret");
        write_certificates(dir.path(), &block);
        let whole = complete(&block);
        let parsed = Config::parse(&dir.path().join("keygate.yaml"), &whole);
        assert!(parsed.is_ok(), "{}:\n{whole}\n{:?}", page.display(), parsed.err().map(|error| error.to_string()));
        count += 1;
    }
    assert!(count >= 10, "only {count} examples were found");
}

/// The smallest example needs nothing added to it.
#[test]
fn smallest_configuration_is_complete() {
    let page = fs::read_to_string("docs/configuration.md").unwrap();
    let block = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(complete(block), block);
}

/// Writes every PEM file that an example names: one certificate and its key serve for all.
fn write_certificates(dir: &Path, block: &str) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for file in block.split([' ', ',', '\n']).filter(|word| word.starts_with("tls/") && word.ends_with(".pem")) {
        let is_key = file.ends_with("-key.pem");
        let pem = if is_key { certified.signing_key.serialize_pem() } else { certified.cert.pem() };
        fs::write(dir.join(file), pem).unwrap();
    }
}

/// The example with what it leaves out.
pub(crate) fn complete(block: &str) -> String {
    let mut whole = block.to_owned();
    for (key, usual) in REQUIRED {
        // Several upstreams are in the block `upstreams`.
        let is_given = |key: &str| format!("\n{block}").contains(&format!("\n{key}:"));
        if !is_given(key) && !is_given(&format!("{key}s")) {
            whole.push_str(&format!("{key}: {usual}\n"));
        }
    }
    whole
}

/// Statuses and codes of the tables that have no row of their own.
const UNLISTED: [(&str, &str); 3] = [
    // A token that is revoked during a call is refused as an unknown one, and a repeated call gets the first result.
    ("403", "invalid_token"),
    ("409", "repeated"),
    // Below the rows of the token exchange.
    ("500", "internal"),
];

/// The rows with a cause and a cure have the statuses and codes of both tables, of refusals and of management, and no
/// others.
#[test]
fn errors_page_has_the_statuses_and_codes_of_both_tables() {
    let example: Problem<'_> = serde_json::from_str(&block("{\"type\":\"about:blank\",\"title\":\"Too Many")).unwrap();
    let answer = Refusal::TooManyInFlight.answer(AuthMethod::ApiKey);
    assert_eq!((&*example.code, &*example.detail), (answer.code, answer.detail));
    let page = fs::read_to_string("docs/errors.md").unwrap();
    let described: BTreeSet<(String, String)> =
        page.lines().filter(|line| line.starts_with("| `")).flat_map(statuses_and_codes).collect();
    let methods = [AuthMethod::ApiKey, AuthMethod::Session];
    let refusals = Refusal::ALL.iter().flat_map(|refusal| methods.map(|method| refusal.answer(method)));
    let refusals = refusals.map(|answer| (answer.status, answer.code));
    // Errors of identity providers have no code: the log has their reason.
    let errors = ManagementError::ROWS.iter().filter(|row| !row.code.is_empty()).map(Row::status_and_code);
    let text = |(status, code): (StatusCode, &str)| (status.as_str().to_owned(), code.to_owned());
    let mut tables: BTreeSet<(String, String)> = refusals.chain(errors).map(text).collect();
    for (status, code) in UNLISTED {
        assert!(tables.remove(&(status.to_owned(), code.to_owned())), "{status} {code}");
    }
    assert!(page.contains("`internal`\n(500)"));
    let (missing, left): (Vec<_>, Vec<_>) =
        (tables.difference(&described).collect(), described.difference(&tables).collect());
    assert!(missing.is_empty() && left.is_empty(), "without a row: {missing:?}; without an error: {left:?}");
    // The types of problems link to them, by `problems.base`.
    let anchors = page.split("<a id=\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(anchor, _)| anchor);
    let mut anchors: Vec<&str> = anchors.collect();
    anchors.sort_unstable();
    let codes: BTreeSet<&str> = tables.iter().map(|(_, code)| &**code).chain(["internal"]).collect();
    assert_eq!(anchors, codes.into_iter().collect::<Vec<_>>());
    let mut codes = BTreeSet::new();
    codes_in(&serde_json::from_slice(&fs::read("docs/openapi.json").unwrap()).unwrap(), &mut codes);
    codes.retain(|code| !described.iter().any(|(_, described)| described == code));
    assert!(codes.is_empty(), "codes of the definition of the API without a row: {codes:?}");
}

/// The status of a row with each of its codes.
fn statuses_and_codes(row: &str) -> Vec<(String, String)> {
    let cells: Vec<&str> = row.split('|').collect();
    let codes = cells[1].split('`').skip(1).step_by(2);
    codes.map(|code| (cells[2].trim().to_owned(), code.to_owned())).collect()
}

/// Adds the values that a definition gives the property `code`.
fn codes_in(value: &serde_json::Value, codes: &mut BTreeSet<String>) {
    if let Some(code) = value.get("code") {
        let listed = code.get("enum").and_then(|list| list.as_array()).cloned().unwrap_or_default();
        codes.extend(listed.iter().chain(code.get("const")).filter_map(|code| code.as_str()).map(str::to_owned));
    }
    match value {
        serde_json::Value::Array(all) => all.iter().for_each(|value| codes_in(value, codes)),
        serde_json::Value::Object(all) => all.values().for_each(|value| codes_in(value, codes)),
        _ => {}
    }
}
