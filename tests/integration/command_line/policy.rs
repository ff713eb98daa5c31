//! `keygate org policy`, and policies in files of `keygate apply` and in exports.

use super::*;

impl Installation {
    fn policy(&self) -> Value {
        self.json("org show acme")["policy"].clone()
    }

    fn apply_policy(&self, policy: &str, options: &str) -> Ended {
        let file = self.directory.path().join("policy.yaml");
        std::fs::write(&file, format!("organizations:\n  - name: acme\n    policy: {policy}\n")).unwrap();
        self.run(&format!("apply --file {} {options}", file.display()))
    }
}

#[test]
fn policy_is_set_value_by_value_and_shown() {
    let installation = Installation::new();
    installation.ok("org create acme");
    assert_eq!(installation.policy(), Value::Null);
    let set = |options: &str| installation.ok(&format!("org policy acme {options}")).out;
    let shown = set("--max-expiry 90d --default-expiry 720h");
    let line = |shown: &str| {
        let line = shown.lines().find(|line| line.starts_with("policy")).unwrap_or_else(|| panic!("{shown}"));
        line["policy".len()..].trim().to_owned()
    };
    assert_eq!(line(&shown), "max expiry 90d, default expiry 30d");
    set("--unused-keys 7d");
    let whole = serde_json::json!({ "max_expiry": "90d", "default_expiry": "30d", "unused_keys": "7d" });
    assert_eq!(installation.policy(), whole);
    assert_eq!(installation.json("org list")["items"][0]["policy"], whole);
    assert_eq!(line(&set("")), "max expiry 90d, default expiry 30d, unused keys 7d");
    set("--max-expiry none --unused-keys never");
    let rest = serde_json::json!({ "default_expiry": "30d", "unused_keys": "never" });
    assert_eq!(installation.policy(), rest);
    for (options, part) in [
        ("--max-expiry 1d", "default_expiry must not be longer than max_expiry"),
        ("--unused-keys 6d", "unused_keys must be never"),
        ("--default-expiry 1s", "must be 1m to"),
        ("--max-expiry never", "--max-expiry"),
        ("--unused-keys none", "--unused-keys"),
    ] {
        let refused = installation.run(&format!("org policy acme {options}"));
        assert!(refused.code == 2 && refused.err.contains(part), "{options}: {refused:?}");
    }
    assert_eq!(installation.policy(), rest);
    set("--default-expiry none --unused-keys default");
    assert_eq!((installation.policy(), line(&set(""))), (Value::Null, "-".into()));
    let records = installation.ok("audit export").out;
    let of_policy = records.lines().filter(|line| line.contains("\"action\":\"org.policy\""));
    let made = of_policy.filter(|line| line.contains("\"outcome\":\"completed\""));
    assert_eq!(made.count(), 4, "{records}");
}

#[test]
fn policy_of_a_file_is_applied_once_and_leaves_what_it_does_not_have() {
    let installation = Installation::new();
    let whole = "{ max_expiry: 90d, default_expiry: 30d, unused_keys: never }";
    let applied = installation.apply_policy(whole, "--yes");
    let plan = "+ organization acme: max_expiry 90d; default_expiry 30d; unused_keys never\napplied 1 change\n";
    assert_eq!((applied.code, applied.out.as_str()), (0, plan), "{}", applied.err);
    for same in [whole, "{ max_expiry: 90d }", "{}"] {
        let again = installation.apply_policy(same, "--dry-run");
        assert_eq!((again.code, again.out.as_str()), (0, "nothing to change\n"), "{same}: {again:?}");
    }
    let applied = installation.apply_policy("{ default_expiry: null, unused_keys: 10d }", "--yes");
    let change = "~ organization acme: default_expiry 30d -> none; unused_keys never -> 10d\n";
    assert!(applied.out.starts_with(change), "{applied:?}");
    assert_eq!(installation.policy(), serde_json::json!({ "max_expiry": "90d", "unused_keys": "10d" }));
    let conflict = installation.apply_policy("{ default_expiry: 100d }", "--yes");
    assert!(conflict.code == 1 && conflict.out.contains("must not be longer than max_expiry"), "{conflict:?}");
    for refused in ["{ unused_keys: 1d }", "{ max_expiry: soon }", "{ longest: 1d }"] {
        assert_eq!(installation.apply_policy(refused, "--yes").code, 2, "{refused}");
    }
}
