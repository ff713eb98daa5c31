//! Runs of schemathesis: valid and invalid requests generated from an OpenAPI document must get documented responses.
//!
//! The environment variable SCHEMATHESIS_EXAMPLES sets the number of requests, which are then random; by default they
//! are few and the same every time.

use std::path::{Path, PathBuf};
use std::process::Command;

use domain::key;

/// Time-out of a run in seconds; it takes half a minute on an idle machine.
const SECONDS: &str = "600";
/// Time-out with SCHEMATHESIS_EXAMPLES.
const LONG: &str = "3600";
/// Requests that each phase makes for each operation, at most.
const EXAMPLES: &str = "10";
/// Seed of the requests, so that they are the same every time.
const SEED: &str = "7";

/// Generated cursors, names, references, tags, entity tags and digests are seldom ones that there are, or that fit each
/// other; no pattern says which characters Unicode has assigned; of several errors in a new key or a user one is told;
/// and idempotency keys come again with other bodies.
pub const CHECKS: &str = r#"
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "304", "400", "403", "404", "409", "412", "422"]
negative_data_rejection.expected-statuses = ["400", "401", "404", "405", "412", "415", "422"]
[[operations]]
include-operation-id = ["createKey", "putKey", "changeUser"]
checks.negative_data_rejection.expected-statuses = ["400", "401", "404", "405", "409", "412", "415", "422"]
"#;

/// An API to be tested.
pub struct Schemathesis<'a> {
    /// URL of its document.
    pub document: String,
    /// URL of its paths.
    pub url: String,
    /// The credential of the requests.
    pub credential: &'a str,
    /// Configuration (`schemathesis.toml`), in which `${CREDENTIAL}` is the credential.
    pub config: &'a str,
}

impl Schemathesis<'_> {
    /// Tests the operations that these options select; fails when schemathesis finds a flaw.
    pub fn run(&self, options: &[&str]) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("schemathesis.toml"), self.config).unwrap();
        let examples = std::env::var("SCHEMATHESIS_EXAMPLES").ok();
        let ended = Command::new("timeout")
            .arg(if examples.is_some() { LONG } else { SECONDS })
            .arg(tool())
            .current_dir(directory.path())
            .env("CREDENTIAL", self.credential)
            .args(["run", &self.document, "--url", &self.url])
            .args(["--checks", "all", "--mode", "all", "--continue-on-failure", "--request-timeout", "20"])
            .args(["--generation-database", "none", "--max-examples", examples.as_deref().unwrap_or(EXAMPLES)])
            .args(if examples.is_some() { &[][..] } else { &["--seed", SEED] })
            .args(["--no-color", "--output-truncate", "false"])
            .args(options)
            .output()
            .unwrap();
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8_lossy(&key::redact(&said)).replace(self.credential, "(the credential)");
        assert!(ended.status.success(), "{said}");
    }
}

/// Path at which `deploy/setup.sh` installs schemathesis.
fn tool() -> PathBuf {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/schemathesis/bin/schemathesis");
    assert!(tool.exists(), "{} is missing: run `make setup` (deploy/setup.sh), which installs it", tool.display());
    tool
}
