//! Commands on keys: output, limits, rotation and key arguments.

use domain::key;
use domain::refusal::Refusal;
use journal::audit::Outcome;
use serde_json::{Value, json};

use super::Installation;

#[test]
fn key_is_printed_alone_listed_and_revoked() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let presented = printed.strip_suffix('\n').unwrap();
    let id = key::parse(presented.as_bytes()).unwrap();
    assert_eq!(presented.len(), key::KEY_LENGTH);

    let listed = installation.json("key list --org acme");
    assert_eq!(listed["items"][0]["id"], id.as_str());
    assert_eq!(listed["items"][0]["status"], "active");
    assert!(!listed.to_string().contains(&presented[18..]));
    let table = installation.ok("key list --org acme").out;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ID         NAME    USER             STATUS  LIMIT"), "{table}");
    assert!(lines[1].contains("ada@example.com  active  1000 per 1h, burst 1000"), "{table}");
    let explained = installation.ok(&format!("explain {id}")).out;
    assert!(explained.contains("1000 of 1000 tokens") && explained.contains("available now"), "{explained}");
    let csv = installation.ok("key list --org acme --state active --csv").out;
    assert!(csv.contains(&format!("\r\n{id},laptop,ada@example.com,active,")) && csv.ends_with("\r\n"), "{csv}");
    for line in ["key list --csv", "key list --org acme --csv --json"] {
        assert_eq!(installation.run(line).code, 2, "{line}");
    }

    installation.ok(&format!("key revoke {id}"));
    assert_eq!(installation.json(&format!("key show {id}"))["status"], "revoked");
    let explained = installation.ok(&format!("explain {id}")).out;
    assert!(explained.contains("the key is revoked"), "{explained}");
    assert!(!explained.contains("tokens") && !explained.contains("available now"), "{explained}");
    let again = installation.run(&format!("key rotate {id}"));
    assert_eq!((again.code, again.out.as_str()), (1, ""));
    assert_eq!(again.err, format!("keygate: key {id} is revoked, for good; create another\n"));
}

#[test]
fn json_output_is_one_object_with_the_key() {
    let installation = Installation::new();
    installation.with_key();
    let created = installation.ok("key create --org acme --user ada@example.com --json second");
    assert_eq!(created.err, "");
    let created: Value = serde_json::from_str(&created.out).unwrap();
    let id = key::parse(created["key"].as_str().unwrap().as_bytes()).unwrap();
    assert_eq!(created["id"], id.as_str());
    let rotated = installation.json(&format!("key rotate {id} --overlap 1h"));
    assert_ne!(rotated["key"], created["key"]);
    assert!(rotated["previous_until"].is_string());
    let limited = installation.json(&format!("key limits {id} --requests 5 --per 1m"));
    assert_eq!(limited["limits"], serde_json::json!({"requests": 5, "per": "1m", "burst": 5, "own": true}));
    assert_eq!(installation.json(&format!("key limits {id}"))["limits"]["own"], true, "without options: a look");
    assert_eq!(installation.json(&format!("key limits {id} --default"))["limits"]["own"], false);
}

#[test]
fn key_says_who_created_rotated_and_revoked_it() {
    let (installation, _, id) = Installation::with_key_id();
    let actor = installation.json("audit list --limit 1")["records"][0]["actor"].as_str().unwrap().to_owned();
    assert!(actor.starts_with("unix:"), "{actor}");
    let by = json!({ "kind": "operator", "name": actor });
    let listed = || installation.json("key list --org acme")["items"][0].clone();
    let sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let imported = installation.json(&format!("key import --org acme --user ada@example.com --sha256 {sha256} old"));
    assert_eq!(imported["created_by"], by, "the importer");
    installation.ok(&format!("key rotate {id}"));
    installation.ok(&format!("key revoke {id}"));
    for event in ["created_by", "rotated_by", "revoked_by"] {
        assert_eq!(listed()[event], by, "{event}");
    }
    for command in ["key show", "explain"] {
        let shown = installation.ok(&format!("{command} {id}")).out;
        assert_eq!(shown.matches(&format!("Z by {actor}\n")).count(), 3, "{shown}");
    }
    // Keys of a file of before name no actors.
    let file = rusqlite::Connection::open(installation.directory.path().join("state.db")).unwrap();
    file.execute_batch("DROP TABLE key_actors").unwrap();
    drop(file);
    assert_eq!((&listed()["created_by"], &listed()["revoked_by"]), (&Value::Null, &Value::Null));
    let shown = installation.ok(&format!("key show {id}")).out;
    assert!(shown.contains("revoked") && !shown.contains(" by "), "{shown}");
}

#[test]
fn limits_show_whether_they_are_configured() {
    let (installation, _, id) = Installation::with_key_id();
    assert!(installation.ok("org show acme").out.contains("concurrent  100 (as configured)"));
    assert!(installation.ok(&format!("key show {id}")).out.contains("1000 per 1h, burst 1000 (as configured)"));
    let org = installation.json("org limits acme --concurrent 7").clone();
    assert_eq!((&org["concurrent"], &org["concurrent_in_force"]), (&Value::from(7), &Value::from(7)));
    let org = installation.json("org limits acme --default").clone();
    assert_eq!((&org["concurrent"], &org["concurrent_in_force"]), (&Value::Null, &Value::from(100)));
    installation.ok(&format!("key limits {id} --requests 5"));
    let listed = installation.ok("key list --org acme");
    assert!(listed.out.contains("5 per 1h, burst 5*") && listed.err.contains("* own limit"), "{listed:?}");
}

#[test]
fn explain_reports_uses_of_a_replaced_secret() {
    let (installation, _, id) = Installation::with_key_id();
    let rotated = installation.ok(&format!("key rotate {id}"));
    assert!(rotated.err.contains("the old secret is refused from now on"), "{rotated:?}");
    let before = installation.ok(&format!("explain {id}")).out;
    assert!(before.contains("old secret valid until  20") && !before.contains("replaced"), "{before}");
    installation.with_refusal_of(id, Outcome::Refused(Refusal::Expired));
    let after = installation.ok(&format!("explain {id}")).out;
    assert!(after.lines().next().unwrap().contains("requests with the replaced secret are refused (401)"), "{after}");
}

#[test]
fn explain_takes_the_key_from_standard_input_and_names_a_secret_that_is_not_the_keys() {
    let (installation, printed, id) = Installation::with_key_id();
    let explain = |text: &str| installation.run_with("explain --stdin", text);
    let by_key = explain(&format!("{printed}\n"));
    assert!(by_key.code == 0 && by_key.out.contains(id.as_str()), "{by_key:?}");
    assert!(!by_key.err.contains("secret"), "{by_key:?}");
    assert_eq!(explain(&key::KeyDigest::of(printed.trim().as_bytes()).to_hex()).out, by_key.out);
    // A key of another installation, which has this id by chance.
    let other = key::PlainKey::generate(id).unwrap();
    let other = explain(other.expose().expose());
    assert!(other.code == 0 && other.out == by_key.out, "{other:?}");
    assert!(other.err.contains(&format!("this secret is not one of key {id}")), "{other:?}");
    let unknown = explain("a key of an older system");
    assert!(unknown.code == 1 && unknown.err.contains("no key has or had this secret"), "{unknown:?}");
}

#[test]
fn whole_key_is_taken_for_its_id_and_never_echoed() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let presented = printed.trim();
    let secret = &presented[18..];
    let id = key::parse(presented.as_bytes()).unwrap();
    assert_eq!(installation.json(&format!("key show {presented}"))["id"], id.as_str());
    assert_eq!(installation.json(&format!("explain {presented}"))["key"]["id"], id.as_str());
    let of_key = installation.json(&format!("audit list --key {presented}"));
    assert_eq!(of_key["records"].as_array().unwrap().len(), 1);

    // With its last character missing, where no key belongs, and where a name does.
    let torn = &presented[..presented.len() - 1];
    let lines = [
        (1, format!("key show {torn}")),
        (1, format!("key revoke {torn}")),
        (1, format!("key find {torn}")),
        (2, format!("audit list --key {torn}")),
        (2, format!("org list {presented}")),
        (2, presented.to_owned()),
        (1, format!("org show {presented}")),
    ];
    for (code, line) in lines {
        let refused = installation.run(&line);
        assert_eq!(refused.code, code, "{line}: {refused:?}");
        assert!(!refused.err.contains(&secret[..20]) && refused.out.is_empty(), "{refused:?}");
    }
    let refused = installation.run(&format!("key show {torn}")).err;
    assert!(refused.contains("give its id: the nine characters that follow sk_live_"), "{refused}");
}

#[test]
fn good_practice_and_a_line_for_the_shell_are_shown_on_a_terminal_only() {
    let installation = Installation::new();
    installation.with_key();
    let create = "key create --org acme --user ada@example.com";
    let piped = installation.ok(&format!("{create} piped"));
    assert!(!piped.err.contains("export") && !piped.err.contains("vault"), "{}", piped.err);
    // `script` gives the command a terminal for all its output.
    let command =
        format!("{} {create} shown --config {}", env!("CARGO_BIN_EXE_keygate"), installation.config.display());
    let shown = std::process::Command::new("script").args(["-qec", &command, "/dev/null"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let key = shown.lines().find(|line| line.starts_with("sk_live_")).unwrap_or_else(|| panic!("{shown}")).trim();
    assert!(shown.contains(&format!("export KEYGATE_API_KEY='{key}'")), "{shown}");
    for word in ["application and environment", "version control", "environment variable or a vault", "Last Used"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}

#[test]
fn last_attempt_is_shown_with_its_outcome() {
    let (installation, printed, id) = Installation::with_key_id();
    assert!(installation.ok(&format!("key show {id}")).out.contains("last attempt      -\n"));
    installation.with_use_of(printed.trim());
    let shown = installation.ok(&format!("key show {id}")).out;
    let line = shown.lines().find(|line| line.starts_with("last attempt")).unwrap();
    assert!(line.contains("Z aborted"), "{shown}");
    assert_eq!(installation.json(&format!("key show {id}"))["last_attempt"]["outcome"], "aborted");
    let table = installation.ok("key list --org acme").out;
    assert!(table.lines().next().unwrap().contains("LAST USED") && table.contains("LAST ATTEMPT"), "{table}");
    assert!(table.lines().nth(1).unwrap().contains("Z aborted"), "{table}");
}

#[test]
fn lists_print_all_their_pages() {
    let installation = Installation::new();
    let first = key::parse(installation.with_key().trim().as_bytes()).unwrap();
    let org = installation.json("org show acme")["id"].as_str().unwrap().to_owned();
    // More than two pages of the admin socket and of the stores.
    let ids = installation.create_keys(&org, 205);
    let listed = |json: &Value| -> Vec<String> {
        json["items"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned()).collect()
    };
    let expected: Vec<String> = std::iter::once(first.to_string()).chain(ids).collect();
    let offline = installation.json("key list --org acme");
    assert_eq!(listed(&offline), expected);
    assert_eq!(offline.as_object().unwrap().len(), 1, "no cursor: it is all of the list");
    let table = installation.ok("key list --org acme").out;
    assert_eq!(table.lines().count(), 1 + expected.len(), "one header");
    let of_gateway = installation
        .with_gateway(|| (installation.json("key list --org acme"), installation.ok("key list --org acme").out));
    assert_eq!(of_gateway, (offline, table));
    installation.ok("org create globex");
    assert_eq!(installation.ok("key list --org globex --json").out, "{\"items\":[]}\n");
    assert_eq!(installation.ok("key list --org globex").err, "this organization has no keys yet\n");
}

#[test]
fn name_in_the_place_of_an_id_is_answered_with_the_ids() {
    let (installation, _, id) = Installation::with_key_id();
    let text = format!("keygate: this is the name of keys, and no id; give the id: {id} of ada@example.com in acme\n");
    for command in ["key show", "key revoke", "key rotate", "key limits", "key set --concurrent 1", "explain"] {
        let refused = installation.run(&format!("{command} laptop"));
        assert_eq!((refused.code, &refused.err), (1, &text), "{command}");
    }
    // A part of a name is none.
    assert!(installation.run("key show lap").err.contains("no key has or had this secret"));
    assert_eq!(installation.json(&format!("key show {id}"))["status"], "active");
}

#[test]
fn command_without_its_group_is_told_the_groups() {
    let installation = Installation::new();
    for (line, tip) in [
        ("revoke x", "some similar subcommands exist: 'key revoke', 'token revoke'"),
        ("rotate x", "a similar subcommand exists: 'key rotate'"),
        ("key suspend x", "some similar subcommands exist: 'org suspend', 'user suspend'"),
        ("key revok x", "a similar subcommand exists: 'revoke'"),
    ] {
        let refused = installation.run(line);
        assert!(refused.code == 2 && refused.err.contains(tip), "{line}: {}", refused.err);
    }
}
