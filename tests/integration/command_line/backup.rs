//! `keygate state export` and `import`: with and without a running gateway, and with files that are not good.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

impl Installation {
    pub(super) fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// All lines of an export but the first, which has the time.
    fn exported(&self, name: &str) -> String {
        let file = self.file(name);
        self.ok(&format!("state export --out {file}"));
        let text = std::fs::read_to_string(file).unwrap();
        text.split_once('\n').unwrap().1.to_owned()
    }
}

#[test]
fn state_moves_from_one_installation_to_another() {
    let (source, target, third) = (Installation::new(), Installation::new(), Installation::new());
    let key = source.with_key();
    source.with_use_of(key.trim());
    let file = source.file("state.jsonl");
    let report = source.json(&format!("state export --out {file}"));
    assert_eq!(
        (report["orgs"].as_u64(), report["users"].as_u64(), report["keys"].as_u64()),
        (Some(1), Some(1), Some(1))
    );
    assert_eq!((report["digests"].as_u64(), report["file"].as_str()), (Some(1), Some(file.as_str())));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(key.trim()), "the key itself");

    let imported = target.json(&format!("state import {file}"));
    assert_eq!(imported["keys"], serde_json::json!({ "copied": 1, "already_there": 0 }));
    assert_eq!(target.exported("again.jsonl"), text.split_once('\n').unwrap().1);
    assert_eq!(target.json("key list --org acme")["items"], source.json("key list --org acme")["items"]);

    let verified = source.with_gateway(|| source.ok(&format!("state verify {file}")).out);
    assert_eq!(
        (verified.as_str(), &*target.ok(&format!("state verify {file}")).out),
        ("the same: 3 records\n", &*verified)
    );

    // The same through gateways, one of which exports to standard output.
    let (of_gateway, to_stdout) =
        source.with_gateway(|| (source.exported("gateway.jsonl"), source.ok("state export").out));
    assert_eq!(of_gateway, text.split_once('\n').unwrap().1);
    assert_eq!(to_stdout.split_once('\n').unwrap().1, of_gateway);
    let through = third.with_gateway(|| (third.ok(&format!("state import {file}")).out, third.exported("third.jsonl")));
    assert!(through.0.contains("IMPORTED"), "{}", through.0);
    assert_eq!(through.1, of_gateway);

    let audit = third.ok("audit export").out;
    let actions: Vec<String> = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|record| format!("{} {}", record["action"].as_str().unwrap(), record["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(actions, ["state.import completed", "state.export completed"]);
}

#[test]
fn flawed_file_is_not_imported_and_each_bad_line_is_named() {
    let (source, target) = (Installation::new(), Installation::new());
    source.with_key();
    let file = source.file("state.jsonl");
    source.ok(&format!("state export --out {file}"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"email\"", "\"mail\"").replace("\"name\":\"laptop\"", "\"name\":1")).unwrap();
    let refused = target.run(&format!("state import {file}"));
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
    assert!(refused.err.contains("state.jsonl: line 3: ") && refused.err.contains("line 4: "), "{refused:?}");
    assert!(refused.err.contains("2 errors, so nothing was imported"), "{refused:?}");
    std::fs::write(&file, &text[..text.len() - 100]).unwrap();
    let refused = target.run(&format!("state import {file}"));
    assert!(refused.code == 1 && refused.err.contains("truncated"), "{refused:?}");
    assert_eq!(target.json("org list")["items"], serde_json::json!([]));
    assert_eq!(target.run("state import missing.jsonl").code, 1);
    assert_eq!(source.run("state export --json").code, 2);
}

#[test]
fn import_from_standard_input_says_how_far_it_came() {
    let (source, target) = (Installation::new(), Installation::new());
    source.with_key();
    let text = source.ok("state export").out;
    let import = |input: &str| target.run_with("state import -", input);
    let cut = import(&text[..text.len() - 100]);
    assert_eq!(cut.code, 1, "{cut:?}");
    assert!(cut.err.contains("nothing was imported") && cut.err.contains("truncated"), "{cut:?}");
    assert_eq!(import(&text).code, 0);
    assert_eq!(target.json("key list --org acme")["items"], source.json("key list --org acme")["items"]);
}

#[test]
fn failed_export_leaves_no_file_and_keeps_the_last_one() {
    let installation = Installation::new();
    installation.with_key();
    let file = installation.file("state.jsonl");
    installation.ok(&format!("state export --out {file}"));
    let before = std::fs::read(&file).unwrap();
    let locked = installation.with_gateway(|| {
        // The gateway is there, and its socket is not: a temporary failure.
        let socket = installation.directory.path().join("admin.sock");
        let aside = installation.directory.path().join("aside.sock");
        std::fs::rename(&socket, &aside).unwrap();
        let ended = installation.run_once(&format!("state export --out {file}"), "");
        std::fs::rename(&aside, &socket).unwrap();
        ended
    });
    assert_eq!(locked.code, 75, "{locked:?}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let names: Vec<_> =
        std::fs::read_dir(installation.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("partial")), "{names:?}");
}

#[test]
fn difference_is_a_conflict_with_exit_code_4() {
    let (source, target) = (Installation::new(), Installation::new());
    let file = source.file("state.jsonl");
    source.ok("org create globex");
    source.ok("org limits globex --concurrent 7");
    source.ok(&format!("state export --out {file}"));
    target.ok(&format!("state import {file}"));
    target.ok("org limits globex --concurrent 9");
    let conflict = target.run(&format!("state import {file}"));
    assert!(conflict.code == 4 && conflict.out.contains("conflict: organization org_"), "{conflict:?}");
    assert!(conflict.out.contains("it is there, and is not the same: concurrent"), "{conflict:?}");
    assert_eq!(target.json("org show globex")["concurrent"], 9);
}
