//! `keygate apply` and `keygate key digest`.

use super::*;
use crate::support::SmallDisk;

const DIGEST: &str = "d6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03";

impl Installation {
    /// Writes a file, and applies it with these options.
    pub(super) fn apply(&self, text: &str, options: &str) -> Ended {
        let file = self.directory.path().join("apply.yaml");
        std::fs::write(&file, text).unwrap();
        self.run(&format!("apply --file {} {options}", file.display()))
    }
}

fn file(more: &str) -> String {
    format!(
        "organizations:
  - name: acme
    concurrent: 7
    users:
      - {{ email: Ada@example.com, permissions: [queries:write, queries:read] }}
    keys:
      - {{ name: laptop, user: ada@example.com, sha256: {DIGEST}{more} }}
"
    )
}

#[test]
fn file_is_planned_applied_and_then_nothing_is_left_to_do() {
    let installation = Installation::new();
    let planned = installation.apply(&file(""), "--dry-run");
    assert_eq!(planned.code, 3, "{planned:?}");
    let plan = "+ organization acme: concurrent 7
+ user acme/ada@example.com: permissions queries:read,queries:write
+ key acme/laptop: user ada@example.com
";
    assert_eq!(planned.out, plan);
    assert_eq!(installation.json("org list")["items"], serde_json::json!([]));
    // Without a terminal there is no answer.
    let unasked = installation.apply(&file(""), "");
    assert!(unasked.code == 2 && unasked.err.contains("--yes"), "{unasked:?}");
    assert_eq!(installation.json("org list")["items"], serde_json::json!([]));

    let applied = installation.apply(&file(""), "--yes");
    assert_eq!((applied.code, applied.out), (0, format!("{plan}applied 3 changes\n")), "{}", applied.err);
    let keys = installation.json("key list --org acme");
    assert_eq!(
        (keys["items"][0]["name"].as_str(), keys["items"][0]["imported"].as_bool()),
        (Some("laptop"), Some(true))
    );
    for options in ["--dry-run", "--yes"] {
        let again = installation.apply(&file(""), options);
        assert_eq!((again.code, again.out.as_str()), (0, "nothing to change\n"), "{again:?}");
    }
    let actions = installation.ok("audit export").out;
    for action in ["org.create", "org.limits", "user.create", "key.import"] {
        assert_eq!(actions.matches(&format!("\"action\":\"{action}\"")).count(), 1, "{action}: {actions}");
    }
}

#[test]
fn changes_are_shown_with_their_old_values_and_applied_through_a_gateway() {
    let installation = Installation::new();
    assert_eq!(installation.apply(&file(""), "--yes").code, 0);
    let other = file(", limits: { requests: 5, per: 1m }")
        .replace("concurrent: 7", "concurrent: null\n    suspended: true")
        .replace("queries:write, ", "");
    installation.with_gateway(|| {
        let planned = installation.apply(&other, "--dry-run --json");
        assert_eq!(planned.code, 3, "{planned:?}");
        let plan: Value = serde_json::from_str(&planned.out).unwrap();
        let org = &plan["plan"][0];
        assert_eq!((org["action"].as_str(), org["record"].as_str()), (Some("change"), Some("organization")));
        let concurrent = serde_json::json!({ "field": "concurrent", "old": "7", "new": "configured" });
        assert_eq!(org["changes"][0], concurrent);
        let applied = installation.apply(&other, "--yes");
        assert_eq!(applied.code, 0, "{applied:?}");
        assert!(
            applied.out.contains("~ user acme/ada@example.com: permissions queries:read,queries:write -> queries:read")
        );
        assert!(applied.out.contains("~ key acme/laptop: limits configured -> 5 per 1m, burst 5"), "{}", applied.out);
        assert_eq!(installation.apply(&other, "--dry-run").code, 0);
        let back = other.replace("suspended: true", "suspended: false").replace("{ requests: 5, per: 1m }", "null");
        let applied = installation.apply(&back, "--yes");
        assert!(
            applied.out.contains("suspended true -> false") && applied.out.contains("-> configured"),
            "{applied:?}"
        );
        assert_eq!(installation.apply(&back, "--dry-run").code, 0);
    });
}

/// Flaws that the operations would refuse, each behind its line.
const REFUSED: &str = "organizations:
  - name: acme
    concurrent: 0
    users: [{ email: ada@example.com }, { email: bob }]
    keys:
      - name: laptop
        user: ada@example.com
        sha256: d6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03
        limits: { requests: 0, per: 1h }
      - { name: \"x\\n+ organization globex\\e[2K\", user: ada@example.com, sha256: ab12 }
";

#[test]
fn file_that_an_operation_would_refuse_is_refused_whole_before_the_first_change() {
    let installation = Installation::new();
    for options in ["--dry-run", "--yes", "--yes --json"] {
        let refused = installation.apply(REFUSED, options);
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{options}: {refused:?}");
        let lines: Vec<&str> = refused.err.lines().map(|line| line.split("apply.yaml:").nth(1).unwrap()).collect();
        let places: Vec<&str> = lines.iter().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(places, ["3", "4", "9", "10", "10"], "{options}: {}", refused.err);
        for part in
            ["concurrent must be", "`bob` is not an email", "requests must be", "1 to 100 characters", "64 hexa"]
        {
            assert!(refused.err.contains(part), "{part}: {}", refused.err);
        }
        assert!(!refused.err.contains('\u{1b}') && refused.err.contains("\\u{1b}[2K"), "{:?}", refused.err);
        assert_eq!(installation.json("org list")["items"], serde_json::json!([]), "{options}");
    }
}

#[test]
fn key_is_created_with_its_limits_by_one_operation() {
    let installation = Installation::new();
    let limited = file(", limits: { requests: 5, per: 1m, burst: 2 }");
    let applied = installation.apply(&limited, "--yes");
    assert_eq!(applied.code, 0, "{applied:?}");
    let limits = &installation.json("key list --org acme")["items"][0]["limits"];
    assert_eq!(*limits, serde_json::json!({ "requests": 5, "per": "1m", "burst": 2, "own": true }));
    let records = installation.ok("audit export").out;
    assert_eq!(records.matches("\"path\":\"key.import/limits\"").count(), 1, "{records}");
    assert!(!records.contains("\"action\":\"key.limits\""), "{records}");
    assert_eq!(installation.apply(&limited, "--dry-run").code, 0);
}

#[test]
fn organization_that_looks_like_another_one_is_a_conflict() {
    let installation = Installation::new();
    assert_eq!(installation.apply(&file(""), "--yes").code, 0);
    let like = "organizations: [{ name: \"\u{430}cme\" }]\n";
    for options in ["--dry-run", "--yes"] {
        let conflict = installation.apply(like, options);
        assert_eq!(conflict.code, 1, "{conflict:?}");
        assert!(conflict.out.contains("looks the same as the organization acme"), "{conflict:?}");
    }
    let created = installation.run("org create \u{430}cme");
    assert!(created.code == 1 && created.err.contains("one that looks the same"), "{created:?}");
    // White space around a name is no part of it.
    assert_eq!(installation.apply("organizations: [{ name: \" acme\u{a0}\" }]\n", "--dry-run").code, 0);
}

#[test]
fn nothing_is_withdrawn_unasked_and_nothing_revoked_comes_back() {
    let installation = Installation::new();
    assert_eq!(installation.apply(&file(""), "--yes").code, 0);
    let empty = installation.apply("organizations: [{ name: acme }]\n", "--yes");
    assert_eq!((empty.code, empty.out.as_str()), (0, "nothing to change\n"), "{empty:?}");
    let revoked = installation.apply(&file(", revoked: true"), "--yes");
    assert!(revoked.code == 0 && revoked.out.starts_with("- key acme/laptop"), "{revoked:?}");
    assert_eq!(installation.apply(&file(", revoked: true"), "--dry-run").code, 0);
    // As valid, it is a conflict; and then the rest of the file is not applied either.
    let conflict = installation.apply(&file("").replace("concurrent: 7", "concurrent: 9"), "--yes");
    assert_eq!(conflict.code, 1, "{conflict:?}");
    assert!(
        conflict.out.contains("! key acme/laptop: key ") && conflict.err.contains("nothing was changed"),
        "{conflict:?}"
    );
    assert_eq!(installation.json("org show acme")["concurrent"], 7);
    assert_eq!(installation.json("key list --org acme")["items"][0]["status"], "revoked");

    let removed = "organizations: [{ name: acme, users: [{ email: ada@example.com, removed: true }] }]\n";
    let told = installation.apply(removed, "--yes");
    assert!(told.code == 0 && told.out.starts_with("- user acme/ada@example.com"), "{told:?}");
    assert_eq!(installation.apply(removed, "--dry-run").code, 0);
    let back = installation.apply(&removed.replace(", removed: true", ""), "--yes");
    assert!(back.code == 1 && back.out.contains("was removed, for good"), "{back:?}");
    assert_eq!(installation.json("user list --org acme")["items"].as_array().unwrap().len(), 1);
}

#[test]
fn users_are_suspended_and_resumed_as_the_file_says() {
    let installation = Installation::new();
    let with = |more: &str| {
        format!("organizations: [{{ name: acme, users: [{{ email: ada@example.com, permissions: [a]{more} }}] }}]\n")
    };
    let created = installation.apply(&with(", suspended: true"), "--yes");
    assert!(created.code == 0 && created.out.contains("permissions a; suspended true"), "{created:?}");
    assert_eq!(installation.apply(&with(", suspended: true"), "--dry-run").code, 0);
    assert_eq!(installation.apply(&with(""), "--dry-run").code, 0, "absent: as it is");
    let listed = installation.ok("user list --org acme").out;
    assert!(listed.contains("suspended"), "{listed}");
    let resumed = installation.apply(&with(", suspended: false"), "--yes");
    assert!(resumed.code == 0 && resumed.out.contains("suspended true -> false"), "{resumed:?}");
    let suspended = installation.ok("user suspend --org acme ada@example.com").out;
    assert!(suspended.lines().any(|line| line.starts_with("suspended") && line.contains("20")), "{suspended}");
    let resumed = installation.ok("user resume --org acme ada@example.com").out;
    assert!(resumed.lines().any(|line| line.starts_with("suspended") && line.ends_with('-')), "{resumed}");
}

#[test]
fn keys_of_others_are_conflicts_and_existing_keys_have_ids() {
    let installation = Installation::new();
    installation.with_key();
    let id = installation.json("key list --org acme")["items"][0]["id"].as_str().unwrap().to_owned();
    let by_id = |more: &str| format!("organizations: [{{ name: acme, keys: [{{ id: {id}{more} }}] }}]\n");
    assert_eq!(installation.apply(&by_id(""), "--dry-run").code, 0);
    let limited = installation.apply(&by_id(", limits: { requests: 3, per: 1h, burst: 2 }"), "--yes");
    assert!(limited.code == 0 && limited.out.contains("3 per 1h, burst 2"), "{limited:?}");
    let other_user = installation.apply(&by_id(", user: bob@example.com"), "--yes");
    assert!(other_user.code == 1 && other_user.out.contains("a key stays with its user"), "{other_user:?}");
    let renamed = installation.apply(&by_id(", name: desktop"), "--yes");
    assert!(renamed.code == 0 && renamed.out.contains("name laptop -> desktop"), "{renamed:?}");
    assert_eq!(installation.apply(&by_id(", name: desktop"), "--yes").out, installation.apply(&by_id(""), "--yes").out);
    let shown = installation.ok(&format!("key set {id} --name laptop")).out;
    assert!(shown.lines().any(|line| line.starts_with("name") && line.ends_with("laptop")), "{shown}");
    let other_org = installation.apply(&by_id("").replace("acme", "globex"), "--yes");
    assert!(other_org.code == 1 && other_org.out.contains("another organization"), "{other_org:?}");
    assert_eq!(installation.json("org list")["items"].as_array().unwrap().len(), 1);
    let missing = file("").replace("Ada@", "bob@").replace("acme", "globex");
    let missing = installation.apply(&missing, "--yes");
    assert!(missing.code == 1 && missing.out.contains("there is no user ada@example.com"), "{missing:?}");
}

#[test]
fn no_key_goes_to_a_user_whom_the_file_removes() {
    let installation = Installation::new();
    assert_eq!(installation.apply(&file(""), "--yes").code, 0);
    let other = DIGEST.replace('5', "6");
    let removed = format!(
        "organizations: [{{ name: acme, users: [{{ email: ada@example.com, removed: true }}], keys: [{{ name: new, \
         user: ada@example.com, sha256: {other} }}] }}]\n"
    );
    let refused = installation.apply(&removed, "--yes");
    assert!(refused.code == 1 && refused.out.contains("! key acme/new: there is no user"), "{refused:?}");
    assert_eq!(installation.apply(&file(""), "--dry-run").code, 0, "the user is there");
}

#[test]
fn flawed_file_is_refused_with_its_lines() {
    let installation = Installation::new();
    let refused = installation.apply(&file("").replace("concurrent", "concurent"), "--yes");
    assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{refused:?}");
    assert!(refused.err.contains("concurent") && refused.err.contains("line 3"), "{refused:?}");
    let large = installation.apply(&format!("{}# {}", file(""), "x".repeat(65 << 20)), "--yes");
    assert!(large.code == 2 && large.err.contains("larger than 64 MiB"), "{large:?}");
}

#[test]
fn full_disk_stops_an_application_which_goes_on_when_there_is_room() {
    let test = "command_line::apply::full_disk_stops_an_application_which_goes_on_when_there_is_room";
    let Some(disk) = SmallDisk::mount(test, 24) else { return };
    let installation = Installation::new();
    let text = std::fs::read_to_string(&installation.config).unwrap();
    let path = disk.path().display();
    let text = text.replace("path: state.db", &format!("path: {path}/state.db"));
    let text = text.replace("path: audit", &format!("path: {path}/audit"));
    std::fs::write(&installation.config, text).unwrap();
    installation.ok("org create first");
    disk.fill();
    // More than fits into the space that is kept for changes.
    let count = 6000;
    let orgs: Vec<String> = (0..count).map(|number| format!("{{ name: org-{number} }}")).collect();
    let document = format!("organizations: [{}]\n", orgs.join(", "));
    let stopped = installation.apply(&document, "--yes");
    assert_eq!(stopped.code, 75, "{}", stopped.err);
    assert!(stopped.err.contains(&format!("of {count} changes, then `+ organization org-")), "{}", stopped.err);
    assert!(stopped.err.contains("run it again"), "{}", stopped.err);
    disk.make_room();
    let done = installation.apply(&document, "--yes");
    assert_eq!(done.code, 0, "{}", done.err);
    let again = installation.apply(&document, "--dry-run");
    assert_eq!((again.code, again.out.as_str()), (0, "nothing to change\n"), "{again:?}");
    assert_eq!(installation.ok("audit verify").code, 0);
}

#[test]
fn digest_of_a_key_is_printed_from_standard_input() {
    let digest = |key: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
        // Without a configuration.
        Ended::of_reading(command.args(["key", "digest", "--config", "missing.yaml"]), key)
    };
    assert_eq!(
        (digest("keygate tests").out, digest("keygate tests\n").out),
        (format!("{DIGEST}\n"), format!("{DIGEST}\n"))
    );
    assert_eq!(digest("").code, 2);
}

/// A copied example must not give a key to everybody who knows its text.
#[test]
fn digests_of_the_documentation_are_refused() {
    let installation = Installation::new();
    let page = std::fs::read_to_string("docs/backup.md").unwrap();
    let example = page.split("sha256: ").nth(1).unwrap();
    let example = example.split(' ').next().unwrap();
    let password = "5E884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
    installation.ok("org create acme");
    installation.ok("user create --org acme ada@example.com");
    for digest in [example, password] {
        assert_eq!(digest.len(), 64, "{digest}");
        let imported =
            installation.run(&format!("key import --org acme --user ada@example.com --sha256 {digest} laptop"));
        assert!(imported.code != 0 && imported.err.contains("an example of the documentation"), "{imported:?}");
        let file = installation.directory.path().join("acme.yaml");
        let key = format!("{{ name: laptop, user: ada@example.com, sha256: '{digest}' }}");
        std::fs::write(&file, format!("organizations:\n  - name: acme\n    keys:\n      - {key}\n")).unwrap();
        let applied = installation.run(&format!("apply --yes --file {}", file.display()));
        assert!(applied.code == 2 && applied.err.contains("an example of the documentation"), "{applied:?}");
    }
}
