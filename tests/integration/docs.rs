//! The documentation: its configurations are valid, and its errors are those that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use domain::identity::AuthMethod;
use domain::problem::Problem;
use domain::refusal::Refusal;
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
fn complete(block: &str) -> String {
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

/// Each code has a row with its cause and its cure; those of refusals have their status there.
#[test]
fn errors_page_has_every_code() {
    let example: Problem<'_> = serde_json::from_str(&block("{\"type\":\"about:blank\",\"title\":\"Too Many")).unwrap();
    let answer = Refusal::TooManyInFlight.answer(AuthMethod::ApiKey);
    assert_eq!((&*example.code, &*example.detail), (answer.code, answer.detail));
    let page = fs::read_to_string("docs/errors.md").unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let has = |code: &str, status: &str| {
        rows.iter().any(|row| row.contains(&format!("`{code}`")) && row.contains(&format!("| {status}")))
    };
    for refusal in Refusal::ALL {
        for method in [AuthMethod::ApiKey, AuthMethod::Session] {
            let answer = refusal.answer(method);
            assert!(has(answer.code, answer.status.as_str()), "{} {}", answer.status, answer.code);
        }
    }
    // The codes of the dashboard and of management: the names in their tables, and in the definition of the API.
    let mut codes = BTreeSet::new();
    for table in [
        "crates/control/src/management/error_codes.rs",
        "crates/control/src/api/error.rs",
        "crates/control/src/dashboard/error_text.rs",
    ] {
        let text = fs::read_to_string(table).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        codes.extend(text.split('"').skip(1).step_by(2).filter(|name| is_code(name)).map(str::to_owned));
    }
    let api = fs::read("docs/openapi.json").unwrap();
    codes_in(&serde_json::from_slice(&api).unwrap(), &mut codes);
    let missing: Vec<_> = codes.iter().filter(|code| !has(code, "")).collect();
    assert!(codes.len() > 40 && missing.is_empty(), "{} codes, of which are missing: {missing:?}", codes.len());
}

fn is_code(text: &str) -> bool {
    text.contains('_') && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
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
