//! Secrets that exist once: no change without a standard output that takes them, and a way out when they are lost.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Ended, Installation};

/// Commands that print a secret, and the word by which their way out is found.
const COMMANDS: [(&str, &str); 4] = [
    ("key create --org acme --user ada@example.com other", "`keygate key rotate "),
    ("key rotate KEY", "`keygate key rotate "),
    ("token create --allow keys:read automation", "`keygate token revoke "),
    ("session link --org acme ada@example.com", "create another one"),
];

/// An installation with the dashboard, and the id of its only key.
fn installation() -> (Installation, String) {
    let installation = Installation::new();
    let text = std::fs::read_to_string(&installation.config).unwrap();
    let dashboard = "session: { origin: 'http://127.0.0.1:8080' }\n";
    std::fs::write(&installation.config, text + dashboard).unwrap();
    installation.with_key();
    let id = installation.json("key list --org acme")["items"][0]["id"].as_str().unwrap().to_owned();
    (installation, id)
}

/// All that the commands could have changed.
fn records(installation: &Installation) -> [Value; 3] {
    ["key list --org acme", "token list", "session list"].map(|line| installation.json(line))
}

fn run_into(installation: &Installation, line: &str, stdout: Stdio) -> Ended {
    Ended::of(installation.command(line).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).output().unwrap())
}

/// A pipe whose reader is gone.
fn dead_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn no_secret_is_made_for_a_standard_output_that_takes_none() {
    let (installation, id) = installation();
    let before = records(&installation);
    for (line, _) in COMMANDS {
        for json in ["", " --json"] {
            let line = format!("{}{json}", line.replace("KEY", &id));
            let piped = run_into(&installation, &line, dead_pipe());
            assert!(piped.code == 1 && piped.err.contains("a pipe that nothing reads"), "{line}: {piped:?}");
            let config = installation.config.display();
            let shell = format!("exec {} {line} --config {config} >&-", env!("CARGO_BIN_EXE_keygate"));
            let closed = Ended::of(Command::new("sh").args(["-c", &shell]).output().unwrap());
            assert!(closed.code == 1 && closed.err.contains("is closed"), "{line}: {closed:?}");
            assert!(closed.err.contains("nothing was changed"), "{closed:?}");
        }
    }
    assert_eq!(records(&installation), before);
    let generated = run_into(&installation, "key generate --tag abc", dead_pipe());
    assert!(generated.code == 1 && generated.err.contains("a pipe that nothing reads"), "{generated:?}");
    // Commands without a secret go on as before.
    let listed = run_into(&installation, "key list --org acme", dead_pipe());
    assert_eq!((listed.code, &*listed.err), (0, ""), "{listed:?}");
}

#[test]
fn lost_secret_is_a_failure_with_a_way_out() {
    let (installation, id) = installation();
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    for (line, way_out) in COMMANDS {
        for json in ["", " --json"] {
            let line = format!("{}{json}", line.replace("KEY", &id));
            let lost = run_into(&installation, &line, full());
            assert_eq!(lost.code, 1, "{line}: {lost:?}");
            assert!(lost.err.contains("No space left on device") && lost.err.contains(way_out), "{line}: {lost:?}");
            let has_secret = ["sk_live_", "kgm_", "/auth/link"].iter().any(|secret| lost.err.contains(secret));
            assert!(!has_secret, "{line}: {lost:?}");
        }
    }
    // The new keys are there, and the way out leads on.
    let keys = installation.json("key list --org acme");
    assert_eq!(keys["items"].as_array().unwrap().len(), 3, "{keys}");
    assert!(installation.ok(&format!("key rotate {id}")).out.starts_with("sk_live_"));
    let generated = run_into(&installation, "key generate --tag abc", full());
    assert!(generated.code == 1 && generated.err.contains("no gateway has these keys yet"), "{generated:?}");
}
