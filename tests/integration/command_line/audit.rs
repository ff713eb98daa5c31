//! Commands on the audit journal: lists, filters, exports and verification.

use std::path::{Path, PathBuf};

use domain::refusal::Refusal;
use journal::audit::{Outcome, UseEnd};
use serde_json::Value;

use super::Installation;
use crate::journal::support::{Caller, END, block_on, open_journal, settings};

#[test]
fn audit_lists_and_exports_changes() {
    let (installation, printed, id) = Installation::with_key_id();
    let records = installation.json("audit list")["records"].clone();
    let actions: Vec<&str> = records.as_array().unwrap().iter().map(|r| r["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["key.create", "user.create", "org.create"], "newest first");

    let of_key = installation.json(&format!("audit list --key {id}"));
    assert_eq!(of_key["records"].as_array().unwrap().len(), 1);
    let of_user = installation.json("audit list --org acme --subject ada@example.com --since 1h");
    assert_eq!(of_user["records"].as_array().unwrap().len(), 2);
    let by_user = installation.json("audit list --org acme --user ada@example.com --since 1h");
    assert_eq!(by_user["records"], serde_json::json!([]), "the operator has changed all of this");
    let before = installation.ok("audit list --until 1h");
    assert_eq!((before.out.as_str(), before.err.as_str()), ("", "there are no such records\n"));

    let exported = installation.ok("audit export").out;
    let first: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    assert_eq!((exported.lines().count(), first["action"].as_str()), (3, Some("org.create")));
    let table = installation.ok("audit list --limit 1").out;
    assert!(table.lines().nth(1).unwrap().contains("completed  200"), "{table}");

    let explained = installation.ok(&format!("explain {id}")).out;
    assert!(
        explained.starts_with("requests are admitted, to routes with these permissions: queries:read"),
        "{explained}"
    );
    assert!(explained.contains("1000 of 1000 tokens") && !explained.contains("key.create"), "{explained}");
    assert_eq!(installation.json(&format!("explain {id}"))["decisions"], serde_json::json!([]), "requests only");
    installation.with_use_of(printed.trim());
    assert_eq!(installation.json(&format!("explain {id}"))["decisions"][0]["action"], "GET /");
}

/// One spelling of a user is the same in all commands.
#[test]
fn user_is_found_in_any_case() {
    let installation = Installation::new();
    installation.ok("org create acme");
    installation.ok("user create --org acme J\u{d6}RG@example.com");
    for (number, user) in ["j\u{f6}rg@example.com", "J\u{f6}rg@Example.com", "J\u{d6}RG@example.com"].iter().enumerate()
    {
        installation.ok(&format!("key create --org acme --user {user} key-{number}"));
        let of_user = installation.json(&format!("audit list --org acme --subject {user}"));
        assert_eq!(of_user["records"].as_array().unwrap().len(), 2 + number, "{user}");
        installation.ok(&format!("audit list --org acme --user {user}"));
        let listed = installation.json(&format!("user list --email {user}"));
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{user}");
        let keys = installation.json(&format!("key list --org acme --user {user}"));
        assert_eq!(keys["items"].as_array().unwrap().len(), 1 + number, "{user}");
    }
}

#[test]
fn change_names_the_unix_user_who_made_it() {
    let installation = Installation::new();
    installation.with_key();
    let own = installation.json("audit list --limit 1")["records"][0].clone();
    let by = own["actor"].as_str().unwrap().to_owned();
    assert!(by.starts_with("unix:") && own["user_id"].is_null(), "{own}");
    assert!(own["subject"].as_str().unwrap().starts_with("usr_"), "{own}");
    let table = installation.ok("audit list").out;
    assert!(table.lines().next().unwrap().trim_end().ends_with("BY"), "{table}");
    assert!(table.lines().skip(1).all(|line| line.trim_end().ends_with(&by)), "{table}");

    let suspended = installation.command("org suspend acme").env("SUDO_UID", "4711").output().unwrap();
    assert!(suspended.status.success(), "{suspended:?}");
    // Of root only, it is believed for whom it acts.
    let expected = if by.ends_with("(0)") { format!("{by} sudo:4711") } else { by };
    assert_eq!(installation.json("audit list --limit 1")["records"][0]["actor"], expected);
}

#[test]
fn text_of_users_cannot_control_the_terminal() {
    let installation = Installation::new();
    let printed = installation.with_key();
    installation.with_use_by(printed.trim(), Some("agent\u{9b}31m\u{202e}\u{1b}[2K"));
    for line in ["audit list", "audit list --json", "audit export"] {
        let shown = installation.ok(line).out;
        let raw = shown.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
        assert_eq!(raw, None, "{line}: {shown:?}");
    }
    let records = installation.json("audit list")["records"].clone();
    assert!(records[0]["user_agent"].as_str().unwrap().starts_with("agent"), "{records}");
    // The operator's input comes back in the error.
    let unknown = installation.run("org show a\u{1b}[2K\u{9b}b");
    assert!(unknown.code == 1 && unknown.err.contains("`a\\u{1b}[2K\\u{9b}b`"), "{unknown:?}");
}

#[test]
fn audit_records_are_found_by_request_id_and_outcome() {
    let installation = Installation::new();
    let printed = installation.with_key();
    installation.with_use_of(printed.trim());
    let listed = installation.ok("audit list --json --outcome aborted").out;
    let [id, time, key] = ["\"id\":", "\"time\":", "\"key_id\":"].map(|name| listed.find(name).unwrap());
    assert!(id < time && time < key, "in the contract's order: {listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["records"].as_array().unwrap().len(), 1);
    let id = listed["records"][0]["id"].as_str().unwrap();
    assert_eq!(installation.json(&format!("audit list --id {id}")), listed);
    assert_eq!(installation.ok(&format!("audit export --id {id} --outcome completed")).out, "");

    for (line, message) in [
        ("audit list --outcome gone", "give one of in_progress, completed"),
        ("audit verify --since 1h", "unexpected argument"),
        ("audit list --since 1h --until 2h", "--since is not before --until"),
    ] {
        let refused = installation.run(line);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains(message), "{refused:?}");
    }
}

#[test]
fn verify_and_export_say_the_same_number_of_records() {
    let installation = Installation::new();
    installation.with_key();
    let journal = open_journal(&settings(installation.directory.path()));
    let limited = UseEnd { outcome: Outcome::Refused(Refusal::RateLimited), ..END };
    let caller = Caller::random();
    (0..30).for_each(|_| assert!(block_on(journal.record_refusal(&caller.opening(), limited)).unwrap()));
    block_on(journal.close());
    let exported = installation.ok("audit export");
    let said = exported.err.trim_end();
    assert_eq!(said, format!("{} records (0 open) of 33 requests", exported.out.lines().count()));
    let verified = installation.ok("audit verify").out;
    assert!(verified.contains(&format!(", {said}, ")), "{verified}{said}");
}

#[test]
fn damaged_journal_does_not_verify() {
    let installation = Installation::new();
    installation.with_key();
    let sound = installation.ok("audit verify").out;
    assert!(sound.contains(" 3 records (0 open)") && sound.contains(" 0 problems"), "{sound}");
    let segment = first_segment(&installation.directory.path().join("audit"));
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replacen("user.create", "user.delete", 1)).unwrap();
    let damaged = installation.run("audit verify");
    assert_eq!(damaged.code, 1, "{damaged:?}");
    assert!(damaged.out.contains("segment 1 line"), "{damaged:?}");
}

#[test]
fn journal_is_compared_with_an_old_checkpoint() {
    let installation = Installation::new();
    let directory = installation.directory.path();
    let text = std::fs::read_to_string(&installation.config).unwrap();
    let text = text.replace("path: audit }", "path: audit, checkpoints: { key_file: audit.key } }");
    std::fs::write(&installation.config, text).unwrap();
    let key = installation.ok("audit key new --name example.org/gw-1").out;
    assert!(key.starts_with("example.org/gw-1+"), "{key}");
    assert_eq!(installation.ok("audit key show").out, key);
    assert_eq!(installation.json("audit key show")["public_key"], key.trim());
    assert_eq!(installation.run("audit key new").code, 1, "a key is not replaced");

    let printed = installation.with_key();
    let old = directory.join("old");
    std::fs::copy(directory.join("audit/checkpoint"), &old).unwrap();
    installation.with_use_of(printed.trim());
    let line = format!("audit verify --checkpoint {}", old.display());
    let proven = installation.ok(&line).out;
    assert!(proven.contains(" 0 problems\n") && proven.contains("checkpoint of example.org/gw-1: "), "{proven}");
    let report = installation.json(&line)["checkpoint"].clone();
    assert!(report["proven"].as_u64() > report["covered"].as_u64() && report["problems"] == serde_json::json!([]));
    let id = installation.json("audit list --limit 1")["records"][0]["id"].as_str().unwrap().to_owned();
    let proof = installation.ok(&format!("audit prove {id}")).out;
    assert!(proof.starts_with("c2sp.org/tlog-proof@v1\nextra "), "{proof}");
    assert_eq!(installation.json(&format!("audit prove {id}"))["later_lines"], 0);
    let early = installation.run(&format!("audit prove {id} --checkpoint {}", old.display()));
    assert!(early.code == 1 && early.err.contains("does not cover the record"), "{early:?}");
    let elsewhere = directory.join("elsewhere");
    let other = installation.ok(&format!("audit key new --out {} --name example.org/gw-1", elsewhere.display())).out;
    let unsigned = installation.run(&format!("{line} --public-key {}", other.trim()));
    assert!(unsigned.code == 1 && unsigned.err.contains("not signed by this key"), "{unsigned:?}");
    assert_eq!(installation.run(&format!("{line} --witness-key {}", other.trim())).code, 1);

    let segment = first_segment(&directory.join("audit"));
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replacen("user.create", "user.delete", 1)).unwrap();
    let changed = installation.run(&line);
    assert!(changed.code == 1 && changed.out.contains("are not those of the checkpoint"), "{changed:?}");
}

#[test]
fn journal_without_segments_verifies_only_if_it_was_never_written() {
    let installation = Installation::new();
    let audit = installation.directory.path().join("audit");
    std::fs::create_dir(&audit).unwrap();
    installation.ok("audit verify");
    installation.with_key();
    for entry in std::fs::read_dir(&audit).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|e| e == "jsonl") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let deleted = installation.run("audit verify");
    assert_eq!(deleted.code, 1, "{deleted:?}");
    assert!(deleted.out.contains("there is an index but no segment"), "{deleted:?}");
}

/// The oldest segment that holds a user's creation.
fn first_segment(directory: &Path) -> PathBuf {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    segments.sort();
    let holds = |path: &PathBuf| std::fs::read_to_string(path).unwrap().contains("user.create");
    segments.into_iter().find(holds).unwrap()
}
