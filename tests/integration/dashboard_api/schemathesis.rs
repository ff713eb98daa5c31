//! The API tried by schemathesis: requests made from its own description, good and bad, and no answer that it does not
//! promise.
//!
//! With SCHEMATHESIS_EXAMPLES in the environment, it makes that many requests where it makes a few else, and others every
//! time.

use std::path::{Path, PathBuf};
use std::process::Command;

use keygate::key;

use super::rig::{API, SessionUser, Setup};

/// Seconds after which a run is broken off: it usually takes a quarter of that.
const SECONDS: &str = "120";
/// The same for more requests than usual.
const LONG: &str = "3600";
/// Requests that each phase makes for each operation, at most.
const EXAMPLES: &str = "25";
/// The same requests every time.
const SEED: &str = "7";

/// Where `deploy/setup.sh` puts it.
fn tool() -> PathBuf {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/schemathesis/bin/schemathesis");
    assert!(tool.exists(), "{} is not there: run `make setup` (deploy/setup.sh), which installs it", tool.display());
    tool
}

/// Tries the operations that these options choose, as a person.
fn run(setup: &Setup, person: &SessionUser<'_>, options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let address = setup.address();
    let (_, token) = person.cookie.split_once('=').unwrap();
    // As a credential of the description's own, it is left out where that is what is tried.
    let config = "[auth.openapi.session]\napi_key = \"${SESSION}\"\n";
    std::fs::write(directory.path().join("schemathesis.toml"), config).unwrap();
    let examples = std::env::var("SCHEMATHESIS_EXAMPLES").ok();
    let ended = Command::new("timeout")
        .arg(if examples.is_some() { LONG } else { SECONDS })
        .arg(tool())
        .current_dir(directory.path())
        .env("SESSION", token)
        .arg("run")
        .arg(format!("http://{address}/settings/api/openapi.json"))
        .args(["--url", &format!("http://{address}{API}")])
        .args(["--header", "Sec-Fetch-Site: same-origin"])
        .args(["--checks", "all", "--mode", "all", "--continue-on-failure", "--request-timeout", "20"])
        .args(["--generation-database", "none", "--max-examples", examples.as_deref().unwrap_or(EXAMPLES)])
        .args(if examples.is_some() { &[][..] } else { &["--seed", SEED] })
        .args(["--no-color", "--output-truncate", "false"])
        .args(options)
        .output()
        .unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&key::redacted(&said)).replace(token, "(the session)");
    assert!(ended.status.success(), "{said}");
    assert_eq!(person.get("/session").status, 200, "the session was there to the end");
}

#[test]
fn api_conforms_to_its_document() {
    let setup = Setup::new();
    let ada = setup.admin();
    ada.key("laptop");
    run(&setup, &ada, &["--exclude-operation-id", "signOut", "--exclude-operation-id", "endSession"]);
    // Alone, because it would find its own session in an answer to another operation, and end it. Only what ends the
    // session by itself, signing out, is left to the other tests.
    run(&setup, &ada, &["--include-operation-id", "endSession", "--phases", "examples,coverage,fuzzing"]);
    let made = ada.get("/keys").json()["keys"].as_array().unwrap().len();
    assert!(made > 1, "schemathesis made no key: was it signed in?");
}
