//! `keygate convert`: files of other gateways, and what becomes of them.
//!
//! The files beside this one are of our own making, in the formats that each names in its first lines. The two of JSON:
//! apache/apisix, `docs/en/latest/admin-api.md` and `terminology/credential.md`; unkeyed/unkey,
//! `svc/api/openapi/spec/paths/v2/keys/migrateKeys` and `docs/product/platform/apis/migrations/keys.mdx`.

mod errors;
mod kubernetes;
mod large;
mod openapi;

use super::*;

/// The folder of the files.
const FILES: &str = "tests/integration/command_line/convert";

/// Texts of the files that no output may have.
const SECRETS: [&str; 14] = [
    "q3Vb7RkYp0ZsM5nDx8LhTc2WfJgE6uAa",
    "my-key",
    "000123",
    "limited-key",
    "leaving-key",
    "a-password-of-sally",
    "the-key-of-",
    "a-key-of-rose",
    "auth-one",
    "auth-two",
    "a-secret-of-jack",
    "adc-key",
    "nested-key",
    "sk_test_abc123def456",
];

/// Converts a file; nothing of its secrets may be in the output.
fn convert(line: &str) -> Ended {
    let ended = Ended::of(Command::new(env!("CARGO_BIN_EXE_keygate")).args(line.split_whitespace()).output().unwrap());
    for secret in SECRETS {
        assert!(!ended.out.contains(secret) && !ended.err.contains(secret), "{secret}: {ended:?}");
    }
    ended
}

/// A file of this test.
fn converted(source: &str, file: &str, options: &str) -> Ended {
    convert(&format!("convert {source} {FILES}/{file} --org acme {options}"))
}

/// Converts a text.
fn convert_text(source: &str, text: &str, options: &str) -> Ended {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let ended = convert(&format!("convert {source} {} --org acme {options}", file.path().display()));
    Ended { err: ended.err.replace(&file.path().display().to_string(), "file"), ..ended }
}

/// The lines of a document for these keys: address, name, key, and its limits or `, `-led fields of its policy.
fn document(users: &[(&str, Option<&str>)], keys: &[(&str, &str, &str, &str)]) -> String {
    let mut text = "organizations:\n  - name: \"acme\"\n    users:\n".to_owned();
    for (email, permissions) in users {
        let permissions = permissions.map(|permissions| format!(",\"permissions\":{permissions}")).unwrap_or_default();
        text.push_str(&format!("      - {{\"email\":\"{email}\"{permissions}}}\n"));
    }
    text.push_str("    keys:\n");
    for (email, name, key, limits) in keys {
        let sha256 = KeyDigest::of(key.as_bytes()).to_hex();
        let limits = match limits.strip_prefix('{') {
            Some(_) => format!(",\"limits\":{limits}"),
            None => (*limits).to_owned(),
        };
        text.push_str(&format!(
            "      - {{\"name\":\"{name}\",\"user\":\"{email}\",\"sha256\":\"{sha256}\"{limits}}}\n"
        ));
    }
    text
}

/// The places of the findings, each with the word that follows: `left` or the beginning of an error.
#[track_caller]
fn assert_findings(ended: &Ended, expected: &[(&str, &str)]) {
    let findings: Vec<&str> = ended.err.lines().filter(|line| line.matches(": ").count() >= 2).collect();
    let is_finding = |line: &&&str| !line.starts_with("keygate: ") && !line.contains(": warning: ");
    let findings: Vec<&&str> = findings.iter().filter(is_finding).collect();
    assert_eq!(findings.len(), expected.len(), "{}", ended.err);
    for (place, what) in expected {
        let line = findings.iter().find(|line| line.contains(&format!(": {place}: ")));
        assert!(line.is_some_and(|line| line.contains(what)), "{place}: {what}: {}", ended.err);
    }
}

#[test]
fn deck_file_is_converted_with_its_groups_and_limits() {
    let ended = converted("kong", "kong.yaml", "--permissions-from groups");
    assert_eq!(ended.code, 4, "{ended:?}");
    let users = [
        ("harry@consumer.invalid", Some("[\"readers\"]")),
        ("sally%20ann@consumer.invalid", Some("[\"gold\"]")),
        ("limited@consumer.invalid", Some("[]")),
        ("leaving@consumer.invalid", Some("[]")),
    ];
    let limits = "{\"requests\":10,\"per\":\"1m\",\"burst\":10},\"tags\":{\"crew\":\"\"}";
    let now = clock::now();
    let leaving = format!(",\"expires\":\"{}\",\"tags\":{{\"team\":\"orders\"}}", expiry_in(&ended));
    let keys = [
        ("harry@consumer.invalid", "harry", "q3Vb7RkYp0ZsM5nDx8LhTc2WfJgE6uAa", limits),
        ("sally%20ann@consumer.invalid", "sally ann", "my-key", ""),
        ("sally%20ann@consumer.invalid", "sally ann", "000123", ""),
        ("limited@consumer.invalid", "limited", "limited-key", ""),
        ("leaving@consumer.invalid", "leaving", "leaving-key", &leaving),
    ];
    let expires: Micros = expiry_in(&ended).parse().unwrap();
    let day = 86_400_000_000;
    assert!(expires.since(now) < day && now.0 + day - expires.0 < 60_000_000, "a day after the conversion: {expires}");
    assert_eq!(ended.out, document(&users, &keys));
    let left = [
        ("consumers[0].custom_id", "--email-from custom_id"),
        ("consumers[1].basicauth_credentials", "a credential other than a key"),
        ("consumers[1].plugins[0]", "several keys together"),
        ("consumers[2].plugins[0]", "several limits at once"),
        ("consumers[2].plugins[1]", "the plugin `ip-restriction`"),
        ("consumers[3].keyauth_credentials[0].tags[1]", "the name has 1 to 64 bytes"),
        ("consumer_groups[0].plugins", "a plugin of a group"),
        ("services", "a part of the configuration"),
        ("plugins[0]", "credentials: { headers:"),
    ];
    assert_findings(&ended, &left);
    assert!(ended.err.contains("kong.yaml:8:14: consumers[0].custom_id: left out: "), "{}", ended.err);
    assert!(ended.err.contains("converted 4 users with 5 keys"), "{}", ended.err);
    assert!(ended.err.contains("9 values left out"), "{}", ended.err);

    let plain = converted("kong", "kong.yaml", "");
    assert!(!plain.out.contains("permissions") && plain.err.contains("--permissions-from groups"), "{plain:?}");
    let text = std::fs::read_to_string(format!("{FILES}/kong.yaml")).unwrap();
    let unlimited = convert_text("kong", &text.replace("ttl: 86400", "ttl: 0"), "");
    assert!(unlimited.code == 4 && !unlimited.out.contains("expires"), "{unlimited:?}");
}

/// The only expiry of a document.
fn expiry_in(ended: &Ended) -> &str {
    let (_, rest) = ended.out.split_once("\"expires\":\"").unwrap_or_else(|| panic!("{ended:?}"));
    rest.split('"').next().unwrap()
}

#[test]
fn exported_file_of_kong_is_converted_by_its_references_without_a_rest() {
    let ended = converted("kong", "kong-flat.yaml", "--permissions-from groups --email-from custom_id");
    assert_eq!(ended.code, 0, "{ended:?}");
    let short = "warning: 1 key of fewer than 16 characters may be guessed, the first in line 7;";
    assert!(ended.err.contains(short) && ended.err.ends_with("\nconverted 2 users with 2 keys\n"), "{ended:?}");
    assert_findings(&ended, &[]);
    let users = [("bob@consumer.invalid", Some("[\"gold\",\"writers\"]")), ("alice@example.com", Some("[\"gold\"]"))];
    let limits = "{\"requests\":5000,\"per\":\"1d\",\"burst\":5000}";
    let keys = [
        ("bob@consumer.invalid", "bob", "the-key-of-bob", ""),
        ("alice@example.com", "alice", "the-key-of-alice", limits),
    ];
    assert_eq!(ended.out.replace("24h", "1d"), document(&users, &keys));
}

#[test]
fn standalone_file_of_apisix_is_converted_with_credentials_in_three_places() {
    let ended = converted("apisix", "apisix.yaml", "--permissions-from groups --email-from custom_id");
    assert_eq!(ended.code, 4, "{ended:?}");
    let users = [
        ("rose@consumer.invalid", Some("[\"writers\"]")),
        ("jack@example.com", Some("[\"billing\",\"readers\"]")),
        ("nested@consumer.invalid", Some("[]")),
    ];
    let rose = "{\"requests\":200,\"per\":\"1m\",\"burst\":200}";
    let jack = "{\"requests\":30,\"per\":\"1m\",\"burst\":5}";
    let keys = [
        ("rose@consumer.invalid", "542f7414-87f6-4793-a68e-99983dde9913", "a-key-of-rose", rose),
        ("jack@example.com", "jack", "auth-one", jack),
        ("nested@consumer.invalid", "of-adc", "adc-key", ""),
        (
            "nested@consumer.invalid",
            "of-the-admin-api",
            "nested-key",
            ",\"disabled\":true,\"tags\":{\"team\":\"blue\"}",
        ),
    ];
    assert_eq!(ended.out, document(&users, &keys));
    let left = [
        ("routes", "a part of the configuration"),
        ("consumers[2].labels.team", "`team`"),
        ("consumers[2].plugins.jwt-auth", "a credential other than a key"),
        ("consumers[3].credentials[2]", "a credential other than a key"),
        ("consumers[3].plugins.limit-count", "not counted by consumer"),
    ];
    assert_findings(&ended, &left);
}

#[test]
fn lists_of_the_admin_api_of_apisix_are_converted_without_a_rest() {
    let ended = converted("apisix", "apisix-lists.json", "");
    assert!(ended.code == 0 && ended.err.ends_with("\nconverted 1 user with 2 keys\n"), "{ended:?}");
    assert_findings(&ended, &[]);
    let jack = "jack@consumer.invalid";
    let keys = [(jack, "jack", "auth-one", ""), (jack, "two", "auth-two", "")];
    assert_eq!(ended.out, document(&[(jack, None)], &keys));
    let older = r#"{"action":"get","count":"1","node":{"key":"/apisix/consumers","dir":true,"nodes":[
        {"key":"/apisix/consumers/jack","value":{"username":"jack","plugins":{"key-auth":{"key":"auth-one"}}}}]}}"#;
    let ended = convert_text("apisix", older, "");
    assert_eq!((ended.code, ended.out), (0, document(&[(jack, None)], &keys[..1])), "{}", ended.err);
}

#[test]
fn keys_of_unkey_are_converted_by_their_hashes() {
    let ended = converted("unkey", "unkey.json", "--permissions-from groups --email-from custom_id");
    assert_eq!(ended.code, 4, "{ended:?}");
    let one = "user_1@consumer.invalid";
    let users = [
        (one, Some("[\"documents.read\",\"editors\"]")),
        ("ada@example.com", Some("[]")),
        ("user_4@consumer.invalid", Some("[]")),
        ("user_5@consumer.invalid", Some("[]")),
        ("user_7@consumer.invalid", Some("[]")),
        ("user_8@consumer.invalid", Some("[]")),
    ];
    let keys = [
        (one, "laptop", "unkey-key-1", "{\"requests\":1000,\"per\":\"1m\",\"burst\":1000}"),
        (one, "server", "unkey-key-2", ",\"permissions\":[\"editors\"]"),
        (
            "ada@example.com",
            "key_2cGKbMxRyIzhCxo1Idjz8q",
            "sk_test_abc123def456",
            "{\"requests\":1,\"per\":\"1s\",\"burst\":10}",
        ),
        ("user_4@consumer.invalid", "user_4", "unkey-key-4", ",\"expires\":\"2100-01-01T00:00:00Z\""),
        ("user_5@consumer.invalid", "user_5", "unkey-key-5", ",\"disabled\":true"),
        ("user_7@consumer.invalid", "user_7", "unkey-key-7", ",\"quota\":{\"units\":500,\"per\":\"day\"}"),
        ("user_8@consumer.invalid", "user_8", "unkey-key-8", ",\"quota\":{\"units\":9000,\"per\":\"month\"}"),
    ];
    assert_eq!(ended.out, document(&users, &keys));
    let left = [
        ("keys[0].meta", "no request shows it to an upstream"),
        ("keys[1].ratelimits[0]", "autoApply"),
        ("keys[2].permissions[0]", "the group makes no permission"),
        ("keys[5].credits.remaining", "--keep-counted"),
        ("keys[7].remaining", "begins with nothing spent"),
        ("keys[8].credits.refill", "another day than the first of a month"),
        ("keys[8].credits.remaining", "--keep-counted"),
    ];
    assert_findings(&ended, &left);
    let kept = converted("unkey", "unkey.json", "--keep-counted");
    assert!(kept.out.contains(&KeyDigest::of(b"unkey-key-6").to_hex()), "{kept:?}");
    let text = std::fs::read_to_string(format!("{FILES}/unkey.json")).unwrap();
    let over = convert_text("unkey", &text.replace("4102444800000", "1600000000000"), "");
    assert!(!over.out.contains("user_4") && over.err.contains("keys[3].expires: left out: the key has expired"));
    assert!(kept.err.contains("keys[0].roles[0]: left out: ") && kept.err.contains("--permissions-from groups"));
}

#[test]
fn consumers_that_make_one_address_get_a_suffix_and_are_listed() {
    let text = "consumers:
- username: ada
- username: Ada
- username: ADA
- username: ada-2
- { username: x, custom_id: eve@example.com }
- { username: y, custom_id: Eve@example.com }
";
    let ended = convert_text("kong", text, "--email-from custom_id");
    assert_eq!(ended.code, 0, "{ended:?}");
    let emails = [
        "ada@consumer.invalid",
        "ada-3@consumer.invalid",
        "ada-4@consumer.invalid",
        "ada-2@consumer.invalid",
        "eve@example.com",
        "eve%40example.com-2@consumer.invalid",
    ];
    let lines: String = emails.iter().map(|email| format!("      - {{\"email\":\"{email}\"}}\n")).collect();
    assert!(ended.out.ends_with(&lines), "{ended:?}");
    let listed = [
        ("consumers[1].username", "the user in line 2; this one is ada-3@consumer.invalid"),
        ("consumers[2].username", "the user in line 2; this one is ada-4@consumer.invalid"),
        ("consumers[5].custom_id", "the user in line 6; this one is eve%40example.com-2@consumer.invalid"),
    ];
    assert_findings(&ended, &listed);
    let long = "a".repeat(64);
    let text = format!("consumers:\n- username: {long}\n- username: {}\n", long.to_uppercase());
    let ended = convert_text("kong", &text, "");
    assert!(ended.code == 2 && ended.err.contains("file:3:13: consumers[1].username: "), "{ended:?}");
}

#[test]
fn limits_that_ten_consumers_share_are_a_plan() {
    let consumer = |name: usize, minute: u32| {
        format!(
            "- username: u{name}\n  keyauth_credentials: [{{ key: a-key-of-this-user-{name} }}]\n  \
             plugins: [{{ name: rate-limiting, config: {{ minute: {minute} }} }}]\n"
        )
    };
    let consumers: String = (0..19).map(|name| consumer(name, if name < 10 { 10 } else { 20 })).collect();
    let ended = convert_text("kong", &format!("consumers:\n{consumers}"), "");
    assert!(ended.code == 0 && ended.err.contains("put the 1 plan at the top"), "{ended:?}");
    let plan = "#plans:\n#  10-per-1m: {\"requests\":10,\"per\":\"1m\",\"burst\":10}\norganizations:\n";
    assert!(ended.out.contains(plan), "{}", ended.out);
    let count = |text: &str| ended.out.matches(text).count();
    assert_eq!((count(",\"plan\":\"10-per-1m\"}"), count(",\"limits\":{\"requests\":20,")), (10, 9));
    let installation = Installation::new();
    let document = installation.directory.path().join("apply.yaml");
    std::fs::write(&document, &ended.out).unwrap();
    let apply = format!("apply --yes --file {}", document.display());
    assert!(installation.run(&apply).out.contains("there is no plan `10-per-1m`"));
    let plans: String = ended
        .out
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .skip(1)
        .map(|line| line.to_owned() + "\n")
        .collect();
    let configuration = std::fs::read_to_string(&installation.config).unwrap() + &plans;
    std::fs::write(&installation.config, configuration).unwrap();
    installation.ok(&apply);
    assert_eq!(installation.ok("key list --org acme").out.matches(" 10-per-1m ").count(), 10);
}

#[test]
fn converted_file_is_applied_and_then_nothing_is_left_to_do() {
    let files = [
        ("kong", "kong.yaml", "--permissions-from groups"),
        ("kong", "kong-flat.yaml", "--permissions-from groups --email-from custom_id"),
        ("apisix", "apisix.yaml", ""),
        ("unkey", "unkey.json", "--permissions-from groups"),
        ("kubernetes", "kubernetes.yaml", "--permissions-from groups"),
        ("agentgateway", "agentgateway.yaml", ""),
    ];
    for (source, file, options) in files {
        let installation = Installation::new();
        let document = installation.directory.path().join("apply.yaml");
        let ended = converted(source, file, options);
        std::fs::write(&document, &ended.out).unwrap();
        let apply = format!("apply --yes --file {}", document.display());
        let applied = installation.ok(&apply);
        assert!(applied.out.contains("applied ") && applied.err.is_empty(), "{file}: {applied:?}");
        assert_eq!(installation.ok(&apply).out, "nothing to change\n", "{file}");
        let keys = installation.json("key list --org acme");
        assert_eq!(keys["items"].as_array().unwrap().len(), ended.out.matches("\"sha256\":").count(), "{file}");
    }
}

#[test]
fn file_is_read_from_standard_input_and_without_a_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
    command.args(["convert", "kong", "-", "--org", "acme"]).current_dir(&directory);
    let ended =
        Ended::of(command.stdin(std::fs::File::open(format!("{FILES}/kong-flat.yaml")).unwrap()).output().unwrap());
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(ended.err.contains("standard input:12:") && ended.out.contains("bob@consumer.invalid"), "{ended:?}");
    let missing = convert("convert kong no-such-file --org acme");
    assert_eq!((missing.code, missing.out.as_str()), (2, ""), "{missing:?}");
    assert!(missing.err.contains("no-such-file: cannot be read"), "{missing:?}");
    let org = convert(&format!("convert kong {FILES}/kong.yaml --org org_0197c1de000070008000000000000001"));
    assert!(org.code == 2 && org.err.contains("--org: "), "{org:?}");
}
