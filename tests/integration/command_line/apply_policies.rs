//! `keygate apply`: the policies of keys.

use super::*;

const DIGEST: &str = "d6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03";

/// A file with a user, who has two permissions, and a key with these fields.
fn file(fields: &str) -> String {
    format!(
        "organizations:
  - name: acme
    users:
      - {{ email: ada@example.com, permissions: [queries:read, queries:write] }}
    keys:
      - name: laptop
        user: ada@example.com
        sha256: {DIGEST}
{fields}"
    )
}

const POLICY: &str = "        permissions: [queries:write, queries:read, queries:read]
        expires: 2100-01-31
        networks: [10.0.0.0/8, '2001:db8::/32']
        concurrent: 3
        disabled: true
        tags: { team: billing, env: '' }
";

/// The policy of the only key.
fn policy(installation: &Installation) -> Value {
    installation.json("key list --org acme")["items"][0].get("policy").cloned().unwrap_or_default()
}

#[test]
fn key_is_imported_with_its_policy_as_one_change() {
    let installation = Installation::new();
    let planned = installation.apply(&file(POLICY), "--dry-run");
    let key = "+ key acme/laptop: user ada@example.com; permissions queries:read,queries:write; expires \
               2100-01-31T00:00:00Z; networks 10.0.0.0/8,2001:db8::/32; concurrent 3; tags env=,team=billing; \
               disabled true\n";
    assert!(planned.code == 3 && planned.out.ends_with(key), "{planned:?}");
    assert_eq!(installation.apply(&file(POLICY), "--yes").code, 0);
    let imported = policy(&installation);
    assert_eq!(imported["permissions"], serde_json::json!(["queries:read", "queries:write"]));
    assert_eq!((&imported["concurrent"], imported["tags"]["team"].as_str()), (&Value::from(3), Some("billing")));
    assert_eq!(imported["disabled"]["by"], "operator");
    assert_eq!(installation.json("key list --org acme")["items"][0]["status"], "disabled");
    let actions = installation.ok("audit export").out;
    for (action, count) in [("key.import", 1), ("key.set", 0), ("key.disable", 0)] {
        assert_eq!(actions.matches(&format!("\"action\":\"{action}\"")).count(), count, "{action}: {actions}");
    }
    for fields in [POLICY, ""] {
        let again = installation.apply(&file(fields), "--yes");
        assert_eq!((again.code, &*again.out), (0, "nothing to change\n"), "absent: as it is: {again:?}");
    }
}

#[test]
fn changes_of_a_policy_are_shown_with_their_old_values_and_applied() {
    let installation = Installation::new();
    assert_eq!(installation.apply(&file(POLICY), "--yes").code, 0);
    let fewer = "        permissions: [queries:read]
        expires: 2099-12-31T22:00:00+02:00
        networks: null
        disabled: false
        tags: { team: search }
";
    installation.with_gateway(|| {
        let applied = installation.apply(&file(fewer), "--yes");
        let step = "~ key acme/laptop: permissions queries:read,queries:write -> queries:read; expires \
                    2100-01-31T00:00:00Z -> 2099-12-31T20:00:00Z; networks 10.0.0.0/8,2001:db8::/32 -> any; tags \
                    env=,team=billing -> team=search; disabled true -> false\n";
        assert_eq!((applied.code, applied.out), (0, format!("{step}applied 1 change\n")), "{}", applied.err);
        assert_eq!(installation.apply(&file(fewer), "--dry-run").code, 0);
    });
    let tags = serde_json::json!({ "team": "search" });
    assert_eq!((&policy(&installation)["concurrent"], &policy(&installation)["tags"]), (&Value::from(3), &tags));
    let none = "        permissions: null
        expires: null
        networks: null
        concurrent: null
        tags: null
";
    let cleared = installation.apply(&file(none), "--yes");
    assert!(cleared.out.contains("permissions queries:read -> all; expires 2099-12-31T20:00:00Z -> none"));
    assert_eq!(policy(&installation), Value::Null, "{cleared:?}");
    assert_eq!(installation.apply(&file(none), "--dry-run").code, 0);
    let disabled = installation.apply(&file("        disabled: true\n"), "--yes");
    assert!(disabled.out.contains("disabled false -> true"), "{disabled:?}");
    assert_eq!(installation.apply(&file("        disabled: true\n"), "--dry-run").code, 0);
}

#[test]
fn permission_beyond_the_user_is_a_conflict_of_the_plan() {
    let installation = Installation::new();
    let beyond = "        permissions: [queries:read, queries:drop]\n";
    for begun in ["nothing", "a key"] {
        let refused = installation.apply(&file(beyond), "--yes");
        assert_eq!(refused.code, 1, "{begun}: {refused:?}");
        let conflict = "! key acme/laptop: the user ada@example.com does not have the permission queries:drop; give it";
        assert!(refused.out.contains(conflict), "{begun}: {refused:?}");
        assert_eq!(installation.apply(&file(""), "--yes").code, 0);
    }
    // The same file gives it to the user.
    let given = file(beyond).replace("[queries:read, queries:write]", "[queries:read, queries:drop]");
    assert_eq!(installation.apply(&given, "--yes").code, 0);
    // The user loses it: the key keeps the name, without effect, and the same file changes nothing more.
    let lost = file(beyond).replace("[queries:read, queries:write]", "[queries:read]");
    assert_eq!(installation.apply(&lost, "--yes").code, 0);
    assert_eq!(installation.apply(&lost, "--dry-run").code, 0);
}

#[test]
fn wrong_values_are_errors_with_their_lines_before_the_first_change() {
    let installation = Installation::new();
    let networks: Vec<String> = (0..33).map(|net| format!("10.0.{net}.0/24")).collect();
    for (fields, what) in [
        ("        concurrent: 0\n", "yaml:9:21: a key has at least 1 request in flight"),
        ("        disabled: true\n        tags: { 'a=b': x }\n", "yaml:10:15: a tag is NAME=VALUE"),
        (&format!("        networks: [{}]\n", networks.join(", ")), "yaml:9:19: a key has at most 32 networks"),
        ("        networks: [10.1.0.0/8]\n", "write 10.0.0.0/8 for the network"),
        ("        expires: 90d\n", "`90d` is a duration, which would end later each time that the file is applied"),
        ("        expires: never\n", "`never` is no expiry"),
        ("        disabled: maybe\n", "line 9"),
        ("        expiry: 2100-01-31\n", "line 9"),
    ] {
        for options in ["--dry-run", "--yes"] {
            let refused = installation.apply(&file(fields), options);
            assert_eq!((refused.code, &*refused.out), (2, ""), "{fields}: {refused:?}");
            assert!(refused.err.contains(what), "{fields}: {what}: {}", refused.err);
        }
    }
    assert_eq!(installation.json("org list")["items"], serde_json::json!([]));
}

const OTHER: &str = "e6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03";

/// A file of an organization with a policy, a user, and two keys of which the first has these fields.
fn bounded(policy: &str, fields: &str) -> String {
    format!(
        "organizations:
  - name: acme
    policy: {{ {policy} }}
    users: [{{ email: \"ADA@example.com\", permissions: [a] }}]
    keys:
      - {{ name: one, user: Ada@Example.com, sha256: {DIGEST}{fields} }}
      - {{ name: two, user: ada@example.com, sha256: {OTHER}, expires: null }}
"
    )
}

#[test]
fn key_without_an_expiry_has_the_one_of_its_organization_and_is_not_planned_anew() {
    let installation = Installation::new();
    let file = bounded("default_expiry: 30d, max_expiry: 90d", "");
    let applied = installation.apply(&file, "--yes");
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(applied.out.matches("expires 30d after its creation").count(), 2, "{applied:?}");
    let expiries = |installation: &Installation| {
        let keys = installation.json("key list --org acme");
        keys["items"].as_array().unwrap().iter().map(|key| key["policy"]["expires"].clone()).collect::<Vec<_>>()
    };
    let before = expiries(&installation);
    assert!(before.iter().all(serde_json::Value::is_string), "{before:?}");
    for policy in ["default_expiry: 30d, max_expiry: 90d", "default_expiry: 1d, max_expiry: 2d"] {
        installation.apply(&bounded(policy, ""), "--yes");
        let again = installation.apply(&bounded(policy, ""), "--dry-run");
        assert_eq!((again.code, again.out.as_str()), (0, "nothing to change\n"), "{again:?}");
    }
    assert_eq!(expiries(&installation), before, "keys that exist stay as they are");
}

#[test]
fn expiry_beyond_a_lowered_maximum_is_a_conflict_before_the_first_change() {
    let installation = Installation::new();
    assert_eq!(installation.apply("organizations: [{ name: acme, policy: { max_expiry: 3650d } }]\n", "--yes").code, 0);
    let far = (domain::clock::now().after(std::time::Duration::from_secs(90 * 24 * 3600))).to_string();
    let file = bounded("max_expiry: 30d", &format!(", expires: {}", &far[..10]));
    for options in ["--dry-run", "--yes"] {
        let conflict = installation.apply(&file, options);
        assert_eq!(conflict.code, 1, "{conflict:?}");
        assert!(conflict.out.contains("! key acme/one: would expire after"), "{conflict:?}");
    }
    assert_eq!(installation.json("user list --org acme")["items"], serde_json::json!([]), "nothing was changed");
    assert!(installation.ok("org show acme").out.contains("max expiry 3650d"));
}

/// Bounds that were set by hand, and that the file does not name, alter what it asks for: that is no drift.
#[test]
fn file_is_not_planned_anew_in_an_organization_with_defaults_and_bounds_of_its_own() {
    for (bounds, fields) in [
        ("--default-expiry 30d", ""),
        ("--default-expiry 30d", ", expires: null"),
        ("--default-expiry 30d --max-expiry 90d", ", expires: null, tags: {}, networks: [], disabled: true"),
        ("--max-expiry 90d", ", permissions: [], limits: { requests: 60, per: 60m }"),
        ("--max-expiry 3650d --unused-keys 7d", ", expires: 2030-01-31, concurrent: 500"),
    ] {
        let installation = Installation::new();
        installation.ok("org create acme");
        installation.ok("org limits acme --concurrent 3");
        installation.ok(&format!("org policy acme {bounds}"));
        let file = format!(
            "organizations: [{{ name: acme, users: [{{ email: ada@example.com }}], keys: [{{ name: one, user: \
             ada@example.com, sha256: {DIGEST}{fields} }}] }}]\n"
        );
        let applied = installation.apply(&file, "--yes");
        assert!(applied.code == 0 && applied.out.ends_with("applied 2 changes\n"), "{bounds}{fields}: {applied:?}");
        let again = installation.apply(&file, "--dry-run");
        assert_eq!((again.code, &*again.out), (0, "nothing to change\n"), "{bounds}{fields}: {again:?}");
    }
}
