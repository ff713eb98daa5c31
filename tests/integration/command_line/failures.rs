//! Commands with and without a running gateway, and their exit codes.

use std::process::Command;
use std::time::Duration;

use domain::clock;
use domain::identity::{OrgId, UserId};
use domain::key;

use super::{Ended, Installation};

#[test]
fn commands_give_the_same_offline_and_online() {
    let installation = Installation::new();
    installation.with_key();
    let look = |line: &str| installation.json(line);
    let lines = ["org list", "user list --org acme", "key list --org acme"];
    let offline = lines.map(look);
    let online = installation.with_gateway(|| lines.map(look));
    assert_eq!(offline, online);
    let refused = "key create --org none --user x y";
    let offline = installation.run(refused);
    let online = installation.with_gateway(|| installation.run(refused));
    assert_eq!((offline.code, &offline.err), (online.code, &online.err));
    assert_eq!(offline.code, 1);

    installation.with_gateway(|| installation.ok("org suspend acme"));
    assert_eq!(installation.json("org show acme")["suspended"], true, "what was done online stays");
}

#[test]
fn state_in_use_without_a_socket_is_a_temporary_failure() {
    let installation = Installation::new();
    installation.with_gateway(|| {
        std::fs::remove_file(installation.directory.path().join("admin.sock")).unwrap();
        let ended = installation.run_once("org list", "");
        assert_eq!(ended.code, 75, "{ended:?}");
        assert!(ended.err.contains("does not listen on") && ended.err.contains("in use"), "{ended:?}");
        assert!(ended.err.contains("restart the gateway"), "{ended:?}");
    });
}

/// A crash is the state's file as it was before a use that the journal has.
#[test]
fn uses_before_a_crash_are_replayed_offline_too() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let presented = printed.trim();
    let id = key::parse(presented.as_bytes()).unwrap();
    let state = installation.directory.path().join("state.db");
    let before = std::fs::read(&state).unwrap();
    installation.with_use_of(presented);
    std::fs::write(&state, before).unwrap();
    assert_eq!(installation.json(&format!("key show {id}"))["requests"], 1);
    let explained = installation.json(&format!("explain {id}"));
    assert_eq!(explained["standing"]["remaining"], 999, "the bucket is no fuller than it was");
}

/// The clock is set back by an hour before a start, and the gateway is killed afterwards: the times of its uses are
/// before that of the last write-back.
#[test]
fn uses_by_a_clock_that_was_set_back_are_replayed() {
    let installation = Installation::new();
    let text = std::fs::read_to_string(&installation.config).unwrap();
    let limits = "limits: { key: { requests: 1, per: 1h, burst: 100 } }\n";
    std::fs::write(&installation.config, text + limits).unwrap();
    let printed = installation.with_key();
    let presented = printed.trim();
    let id = key::parse(presented.as_bytes()).unwrap();
    installation.with_use_of(presented);
    let state = installation.directory.path().join("state.db");
    let before = std::fs::read(&state).unwrap();
    let set_back = clock::now().before(Duration::from_secs(3600));
    (0..10).for_each(|_| installation.with_use_at(presented, set_back));
    std::fs::write(&state, before).unwrap();
    assert_eq!(installation.json(&format!("key show {id}"))["requests"], 11);
    let remaining = installation.json(&format!("explain {id}"))["standing"]["remaining"].clone();
    // One has flowed in since by the clock of today.
    assert!(remaining.as_u64().unwrap() <= 90, "{remaining} tokens are left of 100");
    // The next write-back has all of them, by the line.
    assert_eq!(installation.json(&format!("key show {id}"))["requests"], 11);
}

#[test]
fn invalid_values_exit_with_2_and_advice() {
    let (installation, _, id) = Installation::with_key_id();
    let import = "key import --org acme --user ada@example.com --sha256";
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let imported = installation.json(&format!("{import} {digest} old"))["id"].as_str().unwrap().to_owned();
    let lines = [
        (2, format!("{import} abc old"), "64 hexadecimal digits".to_owned()),
        (1, format!("{import} {digest} again"), format!("imported or made already, as key {imported}")),
        (2, "user create --org acme nobody".into(), "is not an email address".into()),
        (2, format!("key limits {id} --requests 0"), "requests must be".into()),
        (2, format!("key set {id} --permission queries:drop"), "does not have the permission".into()),
        (1, "org create ACME".into(), "differs from it in case only".into()),
        (2, format!("key rotate {id} --overlap 400d"), "overlap must be at most 366d".into()),
        (1, "key show abcDEF123".into(), "`keygate key list --org ORG`".into()),
        (1, "key create --org acme --user bob x".into(), "`keygate user list --org ORG`".into()),
    ];
    let check = || {
        for (code, line, advice) in &lines {
            let refused = installation.run(line);
            assert_eq!(refused.code, *code, "{line}: {refused:?}");
            assert!(refused.err.contains(advice) && !refused.err.contains("letters and digits"), "{refused:?}");
        }
    };
    check();
    installation.with_gateway(check);
}

#[test]
fn exit_codes_classify_results() {
    let installation = Installation::new();
    let checked = installation.ok("check");
    assert!(checked.out.ends_with("keygate.yaml: ok\n"), "{checked:?}");
    assert_eq!(installation.run("org show nobody").code, 1);
    assert_eq!(installation.run("org").code, 2);
    assert_eq!(installation.run("key show sk").code, 1);
    assert_eq!(installation.run("audit list --key sk").code, 2);
    let health = installation.run("health");
    assert_eq!(health.code, 69, "{health:?}");
    assert!(health.err.contains("http://127.0.0.1:1/ready cannot be reached: "), "{health:?}");

    let empty = installation.ok("org list");
    assert_eq!((empty.out.as_str(), empty.err.as_str()), ("", "there are no organizations yet\n"));

    let text = std::fs::read_to_string(&installation.config).unwrap();
    std::fs::write(&installation.config, text.replace("listen", "listn").replace("audit: {", "audit: { x: 1,"))
        .unwrap();
    for command in ["check", "org list"] {
        let wrong = installation.run(command);
        assert_eq!((wrong.code, wrong.out.as_str()), (64, ""));
        let lines: Vec<&str> = wrong.err.lines().collect();
        assert!(lines[0].ends_with("keygate.yaml:1:1: listen: is required"), "{wrong:?}");
        assert!(lines[1].ends_with("keygate.yaml:1:1: listn: is not a known key; did you mean `listen`?"), "{wrong:?}");
        assert!(lines[2].contains("keygate.yaml:5:10: audit.x: is not a known key"), "{wrong:?}");
    }
}

#[test]
fn query_store_prints_its_version_and_what_it_seeded() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("query-store.yaml");
    std::fs::write(&config, "store: { sqlite: { path: queries.db } }\n").unwrap();
    let run = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_query-store"));
        Ended::of(command.args(line.split_whitespace()).arg("--config").arg(&config).output().unwrap())
    };
    assert!(run("--version").out.starts_with("query-store "));
    let (org, user) = (OrgId::generate(), UserId::generate());
    let seeded = run(&format!("seed --org {org} --user {user} --count 3"));
    assert_eq!((seeded.code, seeded.out.as_str()), (0, ""));
    assert!(seeded.err.starts_with(&format!("stored 3 queries of {org} in ")), "{seeded:?}");
    assert_eq!(run(&format!("seed --org {org} --user {user} --count 0")).code, 2);
}
