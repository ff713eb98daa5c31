//! The API tested by schemathesis: valid and invalid requests generated from the OpenAPI document must get documented
//! responses.
//!
//! The environment variable SCHEMATHESIS_EXAMPLES sets the number of requests, which are then random; by default they
//! are few and the same every time.

use std::path::{Path, PathBuf};
use std::process::Command;

use domain::key;

use super::fixture::{API, SessionUser, Setup};

/// Time-out of a run in seconds; it takes half a minute on an idle machine.
const SECONDS: &str = "600";
/// Time-out with SCHEMATHESIS_EXAMPLES.
const LONG: &str = "3600";
/// Requests that each phase makes for each operation, at most.
const EXAMPLES: &str = "25";
/// Seed of the requests, so that they are the same every time.
const SEED: &str = "7";

/// Path at which `deploy/setup.sh` installs schemathesis.
fn tool() -> PathBuf {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/schemathesis/bin/schemathesis");
    assert!(tool.exists(), "{} is missing: run `make setup` (deploy/setup.sh), which installs it", tool.display());
    tool
}

/// Tests the operations that these options select, with a user's session.
fn run(setup: &Setup, person: &SessionUser<'_>, options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let address = setup.address();
    let (_, token) = person.cookie.split_once('=').unwrap();
    // Configured as the document's credential, the session is left out where schemathesis tests its absence. No
    // generated cursor is one that the gateway has sealed; and no pattern says which characters Unicode has assigned.
    let config = "[auth.openapi.session]\napi_key = \"${SESSION}\"\n[[operations]]\ninclude-operation-id = \
                  [\"listUsers\", \"listKeys\", \"listChanges\", \"listSessions\", \"listUses\", \
                  \"createKey\", \"setKey\", \"listTokens\", \
                  \"createToken\"]\nchecks.positive_data_acceptance.expected-statuses = [\"2xx\", \"400\", \
                  \"401\", \"403\", \"404\", \"409\", \"429\"]\n";
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
    let said = String::from_utf8_lossy(&key::redact(&said)).replace(token, "(the session)");
    assert!(ended.status.success(), "{said}");
    assert_eq!(person.get("/session").status, 200, "the session is still valid");
}

#[test]
fn api_conforms_to_its_document() {
    // With the default limit, most requests would be refused.
    let setup = Setup::with_limit("{ requests: 1000000, per: 1m }");
    let ada = setup.admin();
    ada.key("laptop");
    run(&setup, &ada, &["--exclude-operation-id", "signOut", "--exclude-operation-id", "endSession"]);
    // Apart from the others: schemathesis would find its own session in another response, and end it. Signing out,
    // which ends the session of the run, is covered by other tests.
    run(&setup, &ada, &["--include-operation-id", "endSession", "--phases", "examples,coverage,fuzzing"]);
    let made = ada.get("/keys").json()["items"].as_array().unwrap().len();
    assert!(made > 1, "schemathesis created no key: was it signed in?");
}
