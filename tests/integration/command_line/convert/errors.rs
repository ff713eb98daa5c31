//! Errors of files of other gateways: each with its place, no output, and nothing of a key.

use super::*;

/// Text that stands in the place of a key in the files below.
const KEY: &str = "K3y-that-nobody-may-see";

/// Errors of one file: its lines have the number of the line before each error that they cause.
fn assert_errors(source: &str, text: &str, expected: &[(&str, &str)]) {
    let text = text.replace("KEY", KEY);
    let ended = convert_text(source, &text, "--permissions-from groups");
    assert_eq!((ended.code, &*ended.out), (2, ""), "{text}\n{ended:?}");
    assert!(!ended.err.contains(KEY) && !ended.err.contains(&KEY[3..]), "{ended:?}");
    let lines: Vec<&str> = ended.err.lines().collect();
    for (place, what) in expected {
        let found = lines.iter().any(|line| line.starts_with(&format!("file:{place}: ")) && line.contains(what));
        assert!(found, "{place}: {what}: {}", ended.err);
    }
    let count = if expected.len() == 1 { "1 error".into() } else { format!("{} errors", expected.len()) };
    assert_eq!(lines.len(), expected.len() + 1, "{}", ended.err);
    assert_eq!(lines[expected.len()], format!("keygate: file: {count}, so nothing was converted"));
}

#[test]
fn values_that_stand_for_a_key_are_errors_with_their_places() {
    let consumer = |name: &str, key: &str| format!("- username: {name}\n  keyauth_credentials:\n  - key: {key}\n");
    let kong = [
        consumer("a", "'{vault://env/KEY}'"),
        consumer("b", "'${{ env \"DECK_KEY\" }}'"),
        consumer("c", "$ke$1$-KEY"),
        consumer("d", "{ a: KEY }"),
        consumer("e", "null"),
        "- username: f\n  keyauth_enc_credentials:\n  - key: KEY\n".into(),
    ];
    let text = format!("consumers:\n{}", kong.concat());
    let expected = [
        ("4:10: consumers[0].keyauth_credentials[0].key", "a reference to a vault"),
        ("7:10: consumers[1].keyauth_credentials[0].key", "a variable of a decK template"),
        ("10:10: consumers[2].keyauth_credentials[0].key", "is encrypted"),
        ("13:10: consumers[3].keyauth_credentials[0].key", "is no text"),
        ("16:5: consumers[4].keyauth_credentials[0]", "has no key"),
        ("19:5: consumers[5].keyauth_enc_credentials[0]", "is encrypted"),
    ];
    assert_errors("kong", &text, &expected);

    let consumer =
        |name: &str, key: &str| format!("- {{ username: {name}, plugins: {{ key-auth: {{ key: {key} }} }} }}\n");
    let apisix = [
        consumer("a", "'$secret://vault/1/KEY'"),
        consumer("b", "'$ENV://KEY'"),
        // 16 bytes of AES.
        consumer("c", "'csdt8UPw76/SG+WlHBoFeg=='"),
        consumer("d", "''"),
    ];
    let text = format!("consumers:\n{}", apisix.concat());
    let expected = [
        ("2:46: consumers[0].plugins.key-auth.key", "a reference to a secret manager"),
        ("3:46: consumers[1].plugins.key-auth.key", "a reference to an environment variable"),
        ("4:46: consumers[2].plugins.key-auth.key", "--plain-keys"),
        ("5:46: consumers[3].plugins.key-auth.key", "is empty"),
    ];
    assert_errors("apisix", &text, &expected);
}

#[test]
fn placeholders_of_templates_are_errors_with_their_places() {
    let keys = ["$SERVICE_KEY", "${KEY}", "'%KEY_OF_ADA%'", "'{{ .Values.KEY }}'", "<KEY>", "'a-${KEY}'", "'********'"];
    let keys: String = keys.iter().map(|key| format!("  - key: {key}\n")).collect();
    let text = format!("consumers:\n- username: a\n  keyauth_credentials:\n{keys}");
    let places: Vec<String> =
        (0..7).map(|index| format!("{}:10: consumers[0].keyauth_credentials[{index}].key", index + 4)).collect();
    let expected: Vec<(&str, &str)> = places.iter().map(|place| (&**place, "render the file first")).collect();
    assert_errors("kong", &text, &expected);

    let text = "consumers:
- username: $NAME
- username: b
  acls: [{ group: '{{ role }}' }]
- username: c
  keyauth_credentials: [{ key: KEY, tags: ['team=${TEAM}'] }]
";
    let expected = [
        ("2:13: consumers[0].username", "render the file first"),
        ("4:19: consumers[1].acls[0].group", "render the file first"),
        ("6:64: consumers[2].keyauth_credentials[0].tags[0]", "render the file first"),
    ];
    assert_errors("kong", text, &expected);
    let empty = "consumers:\n- username: a\n  plugins: { key-auth: }\n";
    assert_errors("apisix", empty, &[("3:22: consumers[0].plugins.key-auth", "has no key")]);
    let apisix = "consumers:\n- username: a\n  plugins: { key-auth: { key: $SERVICE_KEY } }\n";
    assert_errors("apisix", apisix, &[("3:31: consumers[0].plugins.key-auth.key", "render the file first")]);
    let unkey =
        "[{\"hash\": \"{{ hash }}\", \"externalId\": \"a\"},\n {\"plaintext\": \"<KEY>\", \"externalId\": \"b\"}]";
    let expected = [("1:11: [0].hash", "render the file first"), ("2:16: [1].plaintext", "render the file first")];
    assert_errors("unkey", unkey, &expected);
}

#[test]
fn template_that_is_no_yaml_is_called_one() {
    let consumer = "consumers:\n- username: a\n  keyauth_credentials:\n";
    for (line, column, what) in [
        ("  - key: {{ .Values.KEY }}\n", 11, "has a placeholder of a template"),
        ("  - key: %KEY%\n", 10, "has a placeholder of a template"),
        ("  - { key: ${{ env \"DECK_KEY\" }} }\n", 13, "has a variable of a decK template"),
    ] {
        assert_errors("kong", &format!("{consumer}{line}"), &[(&format!("4:{column}: syntax"), what)]);
    }
}

#[test]
fn key_that_looks_encrypted_is_taken_as_it_is_when_the_operator_says_so() {
    let key = "csdt8UPw76/SG+WlHBoFeg==";
    let text = format!("consumers: [{{ username: rose, plugins: {{ key-auth: {{ key: '{key}' }} }} }}]");
    let ended = convert_text("apisix", &text, "--plain-keys");
    assert!(ended.code == 0 && ended.out.contains(&KeyDigest::of(key.as_bytes()).to_hex()), "{ended:?}");
    // Hexadecimal digits, and base64 of a text, are no blocks of AES.
    for key in ["0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "dXNlci0xMjM0NTY3ODkwMQ=="] {
        let ended = convert_text("apisix", &text.replace("csdt8UPw76/SG+WlHBoFeg==", key), "");
        assert_eq!(ended.code, 0, "{ended:?}");
    }
}

#[test]
fn keys_that_no_request_could_present_are_errors_with_their_places() {
    let long = "x".repeat(513);
    let mistyped = format!("sk_live_{}", "a".repeat(59));
    let token = domain::management_token::PlainToken::generate().unwrap();
    let token = token.expose().expose();
    let keys = ["'a KEY'", "\"KEY\\n\"", "\"k\u{e4}y-KEY\"", &long, &mistyped, "\"\"", "\"KEY\\0\"", token];
    let keys: String = keys.iter().map(|key| format!("  - key: {key}\n")).collect();
    let text = format!("consumers:\n- username: a\n  keyauth_credentials:\n{keys}");
    let path = |index| format!("{}:10: consumers[0].keyauth_credentials[{index}].key", index + 4);
    let characters = "other than visible ASCII";
    let forms = ["longer than 512", "a wrong checksum", "is empty", characters, "is a management token"];
    let whats = [[characters; 3].as_slice(), &forms].concat();
    let places: Vec<String> = (0..8).map(path).collect();
    let expected: Vec<(&str, &str)> = places.iter().map(|place| &**place).zip(whats).collect();
    assert_errors("kong", &text, &expected);
}

#[test]
fn records_twice_are_errors_with_both_lines() {
    let text = "consumers:\n- username: ada\n  keyauth_credentials:\n  - key: KEY\n  - key: KEY-2\n- username: ada\n- \
                username: bob\n  keyauth_credentials: [{ key: KEY }]\n- custom_id: ada\nkeyauth_credentials:\n- \
                consumer: bob\n  key: KEY-2\n- consumer: nobody\n  key: KEY-3\n- key: KEY-4\n";
    let expected = [
        ("6:13: consumers[1].username", "is the same user as in line 2"),
        ("8:32: consumers[2].keyauth_credentials[0].key", "is the same key as in line 4"),
        ("9:14: consumers[3].custom_id", "is the same user as in line 2"),
        ("12:8: keyauth_credentials[0].key", "is the same key as in line 5"),
        ("13:13: keyauth_credentials[1].consumer", "no consumer of the file"),
        ("15:3: keyauth_credentials[2]", "names no consumer"),
    ];
    assert_errors("kong", text, &expected);
    assert_errors("kong", "consumers:\n- username: a\n  username: b\n", &[("3:3: syntax", "given twice")]);
    assert_errors("kong", "consumers: []\nconsumers: []\n", &[("2:1: syntax", "given twice")]);
}

#[test]
fn key_in_the_place_of_a_name_is_an_error_that_does_not_show_it() {
    let text = "consumers:
- username: KEY
  keyauth_credentials: [{ key: KEY }]
- username: b
  acls: [{ group: KEY2 }]
  keyauth_credentials: [{ key: KEY2 }]
- username: c
  keyauth_credentials: [{ key: KEY3, tags: [a=KEY] }]
";
    let expected = [
        ("2:13: consumers[0].username", "is a key itself"),
        ("5:19: consumers[1].acls[0].group", "is a key itself"),
        ("8:32: consumers[2].keyauth_credentials[0].key", "a tag that is a key itself"),
    ];
    assert_errors("kong", text, &expected);
}

#[test]
fn hashes_of_other_kinds_are_errors_with_their_places() {
    let hex = "c4fbfe7c69a067cb0841dea343346a750a69908a08ea9656d2a8c19fb0823c64";
    let empty = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    let text = format!(
        "[{{\"hash\": \"{hex}\", \"externalId\": \"a\"}},
 {{\"hash\": \"$2b$12$abcdefghijklmnopqrstuuKEY\", \"externalId\": \"b\"}},
 {{\"hash\": {{\"value\": \"KEY\", \"variant\": \"bcrypt\"}}, \"externalId\": \"c\"}},
 {{\"externalId\": \"d\"}},
 {{\"hash\": \"{empty}\", \"externalId\": \"e\"}},
 {{\"hash\": \"XohImNooBHFR0OVvjcYpJ3NgPQ1qq73WKhHvch0VQtg\", \"externalId\": \"f\"}},
 {{\"plaintext\": \"a KEY\", \"externalId\": \"g\"}}]"
    );
    let kind = "is not the base64 of a SHA-256";
    let expected = [
        ("1:11: [0].hash", kind),
        ("2:11: [1].hash", kind),
        ("3:21: [2].hash.value", "another kind than sha256_base64"),
        ("4:2: [3]", "neither a hash nor a plaintext"),
        ("5:11: [4].hash", "the key of an example"),
        ("6:11: [5].hash", kind),
        ("7:16: [6].plaintext", "no request can present"),
    ];
    assert_errors("unkey", &text, &expected);
}

#[test]
fn keys_of_one_user_have_their_own_of_its_permissions() {
    let hash = |key: &str| data_encoding::BASE64.encode(KeyDigest::of(key.as_bytes()).as_bytes());
    let text = format!(
        "[{{\"hash\": \"{}\", \"externalId\": \"a\", \"roles\": [\"x\"]}},
 {{\"hash\": \"{}\", \"externalId\": \"a\"}},
 {{\"hash\": \"{}\"}}]",
        hash("1"),
        hash("2"),
        hash("3")
    );
    assert_errors("unkey", &text, &[("3:2: [2]", "has no externalId")]);
    let (mixed, _) = text.rsplit_once(',').unwrap();
    let ended = convert_text("unkey", &format!("{mixed}]"), "--permissions-from groups");
    assert!(ended.out.contains("{\"email\":\"a@consumer.invalid\",\"permissions\":[\"x\"]}"), "{ended:?}");
    assert_eq!(ended.out.matches("\"permissions\":[]").count(), 1, "the second key has none: {ended:?}");
    let ended = convert_text("unkey", &format!("{mixed}]"), "");
    assert!(ended.code == 4 && !ended.out.contains("permissions"), "not asked for: {ended:?}");
    assert_findings(&ended, &[("[0].roles[0]", "--permissions-from groups")]);
}

#[test]
fn group_that_would_administer_keygate_is_left_out() {
    let text = "consumers: [{ username: a, acls: [{ group: 'org:admin' }, { group: 'Big Group' }, { group: ok }] }]\n";
    let ended = convert_text("kong", text, "--permissions-from groups");
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(ended.out.contains("\"permissions\":[\"ok\"]"), "{ended:?}");
    let left = [
        ("consumers[0].acls[0].group", "would administer"),
        ("consumers[0].acls[1].group", "a permission is 1 to 64 characters"),
    ];
    assert_findings(&ended, &left);
}

#[test]
fn file_of_another_kind_is_an_error_with_its_place() {
    for (source, text, place) in [
        ("kong", "just text\n", "1:1"),
        ("kong", "[1, 2]\n", "1:1"),
        ("kong", "consumers: { a: 1 }\n", "1:12"),
        ("kong", "consumers:\n- &a { username: x }\n- *a\n", "3:3"),
        ("kong", "consumers:\n- username: [\n", "3:1"),
        ("apisix", "---\nconsumers: []\n---\nconsumers: []\n", "3:1"),
    ] {
        let ended = convert_text(source, text, "");
        assert_eq!((ended.code, &*ended.out), (2, ""), "{text:?} {ended:?}");
        assert!(ended.err.starts_with(&format!("file:{place}: syntax: ")), "{text:?} {ended:?}");
    }
    let ended =
        convert_text("apisix", "{\"list\": [{\"key\": \"/apisix/routes/1\", \"value\": {\"uri\": \"/\"}}]}", "");
    assert!(ended.code == 2 && ended.err.contains("file:1:48: list[0].value: has no username"), "{ended:?}");
}
