//! `keygate key create`, `set`, `disable` and `enable`: the policy of a key, flag by flag, and where it is shown.

use domain::key;
use domain::refusal::Refusal;
use journal::audit::Outcome;
use serde_json::{Value, json};

use super::Installation;

const CREATE: &str = "key create --org acme --user ada@example.com";
const EXPIRES: &str = "2100-01-31T00:00:00Z";

/// An installation, and the id of a key without a policy.
fn with_key() -> (Installation, String) {
    let installation = Installation::new();
    let printed = installation.with_key();
    (installation, key::parse(printed.trim().as_bytes()).unwrap().to_string())
}

/// The policy of a key that an output in JSON has.
fn policy(shown: &Value) -> &Value {
    &shown["policy"]
}

/// The line of a field of `key show` or `explain`.
fn line<'a>(shown: &'a str, name: &str) -> Option<&'a str> {
    shown.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix("  ")?.trim()))
}

#[test]
fn key_is_created_with_every_flag_and_shown_with_what_is_set() {
    let (installation, plain) = with_key();
    let flags = "--permission queries:read --expires 2100-01-31 --network 10.0.0.0/8 --network ::ffff:192.0.2.0/120 \
                 --concurrent 3 --tag team=billing --tag env=";
    let created = installation.json(&format!("{CREATE} {flags} narrow"));
    let expected = json!({
        "permissions": ["queries:read"],
        "expires": "2100-01-31T00:00:00.000000Z",
        "networks": ["10.0.0.0/8", "192.0.2.0/24"],
        "concurrent": 3,
        "tags": { "env": "", "team": "billing" },
    });
    assert_eq!(*policy(&created), expected);
    let id = created["id"].as_str().unwrap();
    assert_eq!(*policy(&installation.json(&format!("key show {id}"))), expected);
    let shown = installation.ok(&format!("key show {id}")).out;
    for (name, value) in [
        ("permissions", "queries:read"),
        ("expires", EXPIRES),
        ("networks", "10.0.0.0/8,192.0.2.0/24"),
        ("concurrent", "3"),
        ("tags", "env=,team=billing"),
    ] {
        assert_eq!(line(&shown, name).map(str::trim), Some(value), "{shown}");
    }
    assert_eq!(line(&shown, "disabled"), None, "{shown}");
    let table = installation.ok("key list --org acme").out;
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].ends_with("CREATED               POLICY") && rows[1].ends_with("Z  -"), "{table}");
    assert!(rows[2].contains(&format!("  permissions queries:read; expires {EXPIRES}; networks 10")), "{table}");
    // A key without a policy shows none of it.
    let shown = installation.ok(&format!("key show {plain}")).out;
    assert!(["permissions", "expires", "networks", "concurrent", "tags"].iter().all(|name| !shown.contains(name)));
    assert!(installation.json(&format!("key show {plain}")).get("policy").is_none());
}

#[test]
fn fields_are_set_and_cleared_one_by_one() {
    let (installation, id) = with_key();
    let set = |flags: &str| installation.json(&format!("key set {id} {flags}"))["policy"].clone();
    set("--expires 90d");
    set("--permission queries:write --permission queries:read --network 2001:db8::1");
    let before = set("--tag a=1 --tag b=2 --concurrent 7");
    assert_eq!(before["permissions"], json!(["queries:read", "queries:write"]));
    assert_eq!((&before["networks"], &before["concurrent"]), (&json!(["2001:db8::1/128"]), &json!(7)));
    assert_eq!(set("--tag b=3 --no-tag a --tag c=x=y")["tags"], json!({ "b": "3", "c": "x=y" }));
    let fewer = set("--clear expires --clear networks");
    assert_eq!((fewer.get("expires"), fewer.get("networks"), &fewer["concurrent"]), (None, None, &json!(7)));
    installation.ok(&format!("key set {id} --clear permissions --clear concurrent --clear tags"));
    assert!(installation.json(&format!("key show {id}")).get("policy").is_none());
    let actions = installation.ok("audit export").out;
    assert_eq!(actions.matches("\"action\":\"key.set\"").count(), 6, "{actions}");
}

#[test]
fn each_wrong_flag_is_an_error_that_says_what_is_wrong_and_what_to_do() {
    let (installation, id) = with_key();
    let long = "x".repeat(65);
    let cases = [
        ("--expires 2020-01-31", "2020-01-31T00:00:00Z has passed; give a later time"),
        ("--expires tomorrow", "is no expiry; give a duration such as 90d, a date such as 2027-01-31"),
        ("--expires 2256-01-01", "is after the year 2254; leave it out"),
        ("--network 10.1.0.0/8", "write 10.0.0.0/8 for the network, or the address alone"),
        ("--network example.com", "expected an address or ADDRESS/PREFIX, as in 10.0.0.0/8"),
        ("--concurrent 0", "a key has at least 1 request in flight; disable it to refuse all"),
        ("--concurrent many", "invalid digit"),
        ("--tag team", "expected NAME=VALUE, as in team=billing"),
        ("--tag =x", "a tag is NAME=VALUE: the name has 1 to 64 bytes"),
        (&format!("--tag {long}=x"), "a tag is NAME=VALUE: the name has 1 to 64 bytes"),
        ("--tag a=1 --tag a=2", "the tag `a` is there twice"),
        ("--permission queries:drop", "does not have the permission `queries:drop`; give it to the user first"),
        ("--permission Queries", "permission"),
    ];
    let networks: String = (0..33).map(|net| format!(" --network 10.0.{net}.0/24")).collect();
    let tags: String = (0..17).map(|tag| format!(" --tag {tag}=x")).collect();
    let many = [(&*networks, "a key has at most 32 networks"), (&*tags, "a key has at most 16 tags")];
    for (flags, what) in cases.into_iter().chain(many) {
        for command in [format!("key set {id} {flags}"), format!("{CREATE} {flags} new")] {
            let refused = installation.run(&command);
            assert_eq!((refused.code, &*refused.out), (2, ""), "{command}: {refused:?}");
            assert!(refused.err.contains(what), "{command}: {what}: {}", refused.err);
        }
    }
    for (flags, what) in [
        ("", "nothing to set: give --permission"),
        ("--clear expires --expires 90d", "--clear expires, and a flag that sets expires: keep one of the two"),
        ("--clear tags --no-tag a", "--clear tags, and a flag that sets tags: keep one of the two"),
        ("--tag a=1 --no-tag a", "the tag `a` is there twice"),
        ("--clear name", "permissions, expires, networks, concurrent, tags"),
    ] {
        let refused = installation.run(&format!("key set {id} {flags}"));
        assert!(refused.code == 2 && refused.err.contains(what), "{flags}: {refused:?}");
    }
    assert_eq!(installation.json("key list --org acme")["items"].as_array().unwrap().len(), 1, "none was created");
    installation.ok(&format!("key revoke {id}"));
    for command in [format!("key set {id} --expires 90d"), format!("key disable {id}"), format!("key enable {id}")] {
        let refused = installation.run(&command);
        assert_eq!(refused.code, 1, "{command}: {refused:?}");
        assert!(refused.err.contains("is revoked, for good; create another"), "{command}: {refused:?}");
    }
    let missing = installation.run("key set abcDEF123 --expires 90d");
    assert!(missing.code == 1 && missing.err.contains("abcDEF123"), "{missing:?}");
}

#[test]
fn key_is_disabled_and_enabled_by_its_id_the_whole_key_or_its_digest() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let presented = printed.trim();
    let id = key::parse(presented.as_bytes()).unwrap();
    let sha256 = domain::key::KeyDigest::of(presented.as_bytes()).to_hex();
    for (target, leaked, cause) in [
        (id.as_str(), "", "by the operator"),
        (presented, " --leaked", "because it has leaked"),
        (&sha256, "", "by the operator"),
    ] {
        let disabled = installation.ok(&format!("key disable {target}{leaked}")).out;
        assert!(line(&disabled, "disabled").unwrap().ends_with(cause), "{disabled}");
        assert_eq!(line(&disabled, "status").map(str::trim), Some("disabled"));
        assert!(!disabled.contains(&presented[18..]));
        let enabled = installation.ok(&format!("key enable {target}")).out;
        assert!(line(&enabled, "disabled").is_none() && enabled.contains("active"), "{enabled}");
    }
    for command in ["key disable --leaked --stdin", "key enable --stdin"] {
        let done = installation.run_with(command, presented);
        assert_eq!(done.code, 0, "{command}: {done:?}");
    }
    let token = domain::management_token::PlainToken::generate().unwrap();
    let token = token.expose().expose();
    for command in ["key disable --leaked --stdin", "key enable --stdin", "key digest"] {
        let refused = installation.run_with(command, token);
        assert!(refused.code == 2 && refused.err.contains("is a management token"), "{command}: {refused:?}");
    }
    let refused = installation.run(&format!("key enable {token}"));
    assert!(refused.code == 2 && refused.err.contains("is a management token"), "{refused:?}");
    assert!(!refused.err.contains(&token[15..]), "{refused:?}");
    let by = installation.json(&format!("key disable {id} --leaked"))["policy"]["disabled"]["by"].clone();
    assert_eq!(by, "leak");
    let again = installation.json(&format!("key disable {id}"))["policy"]["disabled"]["by"].clone();
    assert_eq!(again, "leak", "the first disabling stands");
    let none = installation.run("key disable");
    assert!(none.code == 2 && none.err.contains("<ID|KEY|SHA256>"), "{none:?}");
    let actions = installation.ok("audit export").out;
    assert_eq!(actions.matches("\"action\":\"key.disable\"").count(), 6, "{actions}");
    assert_eq!(actions.matches("\"action\":\"key.enable\"").count(), 4, "{actions}");
}

#[test]
fn keys_are_listed_by_state_and_by_expiry() {
    let (installation, plain) = with_key();
    let id = |line: &str| installation.json(line)["id"].as_str().unwrap().to_owned();
    let soon = id(&format!("{CREATE} --expires 5d soon"));
    let later = id(&format!("{CREATE} --expires 60d later"));
    let disabled = id(&format!("{CREATE} --expires 6d disabled"));
    installation.ok(&format!("key disable {disabled}"));
    let over = id(&format!("{CREATE} --expires 1ms over"));
    let listed = |filter: &str| -> Vec<String> {
        let items = installation.json(&format!("key list --org acme {filter}"))["items"].clone();
        items.as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed("--state active"), [&*plain, &soon, &later]);
    assert_eq!(listed("--state disabled"), [&*disabled]);
    assert_eq!(listed("--state expired"), [&*over]);
    assert_eq!(listed("--expires-within 7d"), [&*soon, &disabled], "an expired key does not expire any more");
    assert_eq!(listed("--expires-within 90d --state active"), [&*soon, &later]);
    assert_eq!(listed("--state active --sort expires"), [&*soon, &later, &plain]);
    assert_eq!(listed("--state active --sort -expires"), [&*plain, &later, &soon]);
    let table = installation.ok("key list --org acme").out;
    assert!(table.contains("active, expires within 7 days"), "{table}");
    assert_eq!(installation.ok("key list --expires-within 1h").err, "no key matches\n");
    let of_gateway = installation.with_gateway(|| listed("--expires-within 7d"));
    assert_eq!(of_gateway, [&*soon, &disabled]);
}

#[test]
fn explain_names_what_of_the_policy_refuses_the_key() {
    let (installation, id) = with_key();
    let explain = || installation.ok(&format!("explain {id}")).out;
    installation.ok(&format!("key set {id} --permission queries:read --network 10.0.0.0/8 --expires 2100-01-31"));
    let admitted = explain();
    let verdict = "requests are admitted, to routes with these permissions: queries:read; from these networks only \
                   (else 401): 10.0.0.0/8; until 2100-01-31T00:00:00Z\n";
    assert!(admitted.starts_with(verdict), "{admitted}");
    let permissions = line(&admitted, "permissions").unwrap();
    assert_eq!(permissions.trim(), "queries:read (of the key: queries:read; of the user: queries:read queries:write)");
    assert_eq!(line(&admitted, "last refusal").map(str::trim), Some("-"));

    installation.with_refusal_of(id.parse().unwrap(), Outcome::Refused(Refusal::AddressRefused));
    let refused = explain();
    assert!(refused.lines().next().unwrap().contains("; the last request from another address was refused at 20"));
    assert!(line(&refused, "last refusal").unwrap().ends_with("Z address_refused 401"), "{refused}");

    // Also behind more decisions than are shown.
    for _ in 0..11 {
        installation.with_refusal_of(id.parse().unwrap(), Outcome::Aborted);
    }
    let later = explain();
    assert!(line(&later, "last refusal").unwrap().ends_with("Z address_refused 401"), "{later}");
    assert_eq!(later.matches("address_refused").count(), 1, "the list of decisions has none: {later}");
    assert_eq!(installation.json(&format!("explain {id}"))["last_refusal"]["outcome"], "address_refused");

    // A permission that the user has lost is gone from the key.
    installation.ok("user permit --org acme ada@example.com --permission queries:write");
    assert!(explain().contains("(else 403): the key has none of the permissions of its user"), "{}", explain());
    installation.ok(&format!("key disable {id} --leaked"));
    let disabled = explain();
    let verdict = disabled.lines().next().unwrap();
    assert!(verdict.starts_with("requests are refused (401): the key is disabled, since 20"), "{disabled}");
    assert!(verdict.contains("Z because it has leaked") && !disabled.contains("tokens"), "{disabled}");
    let explained = installation.json(&format!("explain {id}"));
    assert_eq!(explained["key"]["policy"]["disabled"]["by"], "leak");

    installation.ok(&format!("key set {id} --expires 1ms --clear permissions"));
    let expired = explain();
    assert!(
        expired.starts_with("requests are refused (401): the key has expired, at 20"),
        "before disabled: {expired}"
    );
}
