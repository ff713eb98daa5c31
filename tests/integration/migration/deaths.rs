//! Death of the gateway, or of the command, between two parts of an import: what was imported stays, and the same
//! import completes it.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use super::backup::{Directory, content, export};
use super::installation::runtime;
use super::records::RecordMaker;
use crate::support::redis::Redis;
use crate::support::{KEYGATE, Setup, Upstream, eventually};

/// Bounds of the gateways: those under which the file was exported.
const LIMITS: &str = "limits: { key: { requests: 60, per: 1h, burst: 40 }, org: { concurrent: 9 } }";
/// Records of a part of an import.
const PART: usize = 1024;

/// Process that is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Gateway,
    Command,
}

/// Lines of an export through the gateway, but for the first, which has the time.
fn exported(setup: &Setup) -> String {
    content(format!("{}\n", setup.ok(&["state", "export"])).as_bytes()).to_owned()
}

/// A command that imports what is written to it.
fn start_import(setup: &Setup) -> Child {
    let mut command = Command::new(KEYGATE);
    command.args(["state", "import", "-", "--config"]).arg(setup.path().join("keygate.yaml"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn import_completes_after_death(file: &[u8], state: &str, victim: Victim) {
    let upstream = Upstream::start();
    let setup = Setup::with_state(upstream.address, state, LIMITS);
    let mut gateway = setup.start();
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    // Two parts and the beginning of a third, for whose end the command waits.
    let (begun, rest) = lines.split_at(1 + 2 * PART + PART / 2);
    let mut command = start_import(&setup);
    let mut input = command.stdin.take().unwrap();
    input.write_all(&begun.concat()).unwrap();
    // Without the last line, which has the sums.
    let records = |setup: &Setup| exported(setup).lines().count() - 1;
    eventually("two parts are imported", || records(&setup) == 2 * PART);
    match victim {
        Victim::Gateway => gateway.kill(),
        Victim::Command => command.kill().unwrap(),
    }
    // It may have ended.
    input.write_all(&rest.concat()).ok();
    drop(input);
    assert!(!command.wait().unwrap().success(), "{victim:?}");
    if let Victim::Gateway = victim {
        gateway = setup.start();
    }
    assert_eq!(records(&setup), 2 * PART, "{victim:?}: what was imported, and no half of a part");
    let path = setup.path().join("state.jsonl");
    std::fs::write(&path, file).unwrap();
    setup.ok(&["state", "import", path.to_str().unwrap()]);
    assert!(exported(&setup) == content(file), "{victim:?}: all records, as they are in the file");
    gateway.stop();
    setup.ok(&["audit", "verify"]);
}

#[test]
fn import_that_was_killed_between_two_parts_is_completed_by_another() {
    let directory = Directory::new();
    let redis = Redis::start();
    let file = runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        maker.everything().await;
        maker.many("many", 3 * PART).await;
        export(&source).await
    });
    for (number, victim) in [Victim::Gateway, Victim::Command].into_iter().enumerate() {
        import_completes_after_death(&file, "{ embedded: { path: state.db } }", victim);
        let on_redis = format!("{{ redis: {{ url: '{}', deadline: 2s, prefix: 'import{number}' }} }}", redis.url());
        import_completes_after_death(&file, &on_redis, victim);
    }
}
