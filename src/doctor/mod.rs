//! Diagnosis of a running gateway and its environment, as an expert would make it: `keygate doctor`.
//!
//! - Each check collects facts, and a pure function judges them. A [`Finding`] has a severity, the thing that was
//!   looked at, its state, and the change to make.
//! - Checks only read: files, `/proc`, the admin interfaces of the gateway, Redis' settings, one request without
//!   credentials to each endpoint of the upstreams, and the public documents of identity providers.
//! - A gateway makes some of them at its start, beside its work, and logs what they find: [`warnings`].
//! - Each check has a time-out: one that hangs is a finding, and the others go on.

mod finding;
mod client;
mod running_gateway;
mod environment;
mod gateway;
mod configuration;
mod process;
mod proc_files;
mod clock;
mod disk;
mod sinks;
mod redis;
mod redis_security;
mod redis_replication;
mod certificates;
mod certificate_chain;
mod upstreams;
mod providers;
mod exposure;
mod routes;
mod plans;
mod listeners;
mod decisions;
mod files;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use platform::settings::WithUnit;

use environment::Environment;
use finding::Findings;

pub use finding::{Finding, Severity};
pub use plans::{MissingPlan, OddLimits, SmallBurst, find_odd_limits};

/// Time-out of a check: a Redis or an upstream that is away takes a few connection attempts.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// One check, named after the part of the set-up that it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Active configuration, compared with the file.
    Configuration,
    /// Readiness of the gateway, and its admin interfaces.
    Gateway,
    /// Limits and user of the process.
    Process,
    /// Synchronization and steps of the clock.
    Clock,
    /// Volumes of the journal and the state.
    Disk,
    /// Sinks of the audit.
    Sinks,
    /// Redis: settings, persistence, replication, access.
    Redis,
    /// Certificates of listeners and of the upstream side.
    Certificates,
    /// Reachability of the upstreams beside the gateway.
    Upstreams,
    /// Identity providers, and issuers of federation rules.
    Providers,
    /// Routes.
    Routes,
    /// Plans that records name and the configuration does not have.
    Plans,
    /// Addresses of listeners, and the origin of the dashboard.
    Listeners,
    /// Modes of files with secrets.
    Files,
}

impl Check {
    /// All checks, in their order.
    pub const ALL: [Self; 14] = [
        Self::Configuration,
        Self::Gateway,
        Self::Process,
        Self::Clock,
        Self::Disk,
        Self::Sinks,
        Self::Redis,
        Self::Certificates,
        Self::Upstreams,
        Self::Providers,
        Self::Routes,
        Self::Plans,
        Self::Listeners,
        Self::Files,
    ];

    /// Checks that a gateway makes at its start: of itself, and of identity providers, which are asked by the first
    /// sign-in only. What it meets by itself soon, such as Redis, it logs anyway.
    pub const OF_START: [Self; 6] =
        [Self::Process, Self::Disk, Self::Certificates, Self::Listeners, Self::Files, Self::Providers];

    /// Name of the check, in findings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Gateway => "gateway",
            Self::Process => "process",
            Self::Clock => "clock",
            Self::Disk => "disk",
            Self::Sinks => "sinks",
            Self::Redis => "redis",
            Self::Certificates => "certificates",
            Self::Upstreams => "upstreams",
            Self::Providers => "providers",
            Self::Routes => "routes",
            Self::Plans => "plans",
            Self::Listeners => "listeners",
            Self::Files => "files",
        }
    }

    async fn run(self, environment: &Arc<Environment>, findings: &mut Findings) {
        match self {
            Self::Configuration => configuration::check(environment, findings),
            Self::Gateway => gateway::check(environment, findings),
            Self::Process => process::check(environment, findings),
            Self::Clock => clock::check(environment, findings).await,
            Self::Disk => disk::check(environment, findings).await,
            Self::Sinks => sinks::check(environment, findings),
            Self::Redis => redis::check(environment, findings).await,
            Self::Certificates => certificates::check(environment, findings).await,
            Self::Upstreams => upstreams::check(environment, findings).await,
            Self::Providers => providers::check(environment, findings).await,
            Self::Routes => routes::check(environment, findings),
            Self::Plans => plans::check(environment, findings).await,
            Self::Listeners => listeners::check(environment, findings),
            Self::Files => files::check(environment, findings).await,
        }
    }
}

/// Runs checks one after another, and calls `begin` before each. A configuration file with errors is the only finding
/// then: every other check needs it.
pub async fn examine(file: &Path, checks: &[Check], begin: impl FnMut(Check)) -> Vec<Finding> {
    let environment = match Environment::collect(file).await {
        Ok(environment) => Arc::new(environment),
        Err(invalid) => {
            let mut findings = Findings::new(Check::Configuration.name());
            configuration::judge_invalid(file, &invalid, &mut findings);
            return findings.into_list();
        }
    };
    run(&environment, checks, begin).await
}

/// The warnings and errors that checks of a configuration find, each a sentence, for `check`, and for the log of a
/// gateway that starts or reloads it. `is_own`: this is the process of that gateway.
///
/// # Errors
/// The operating system refuses a runtime.
pub fn warnings(config: &Config, checks: &[Check], is_own: bool) -> io::Result<Vec<String>> {
    let environment = Arc::new(Environment::of_config(config.clone(), is_own));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let findings = runtime.block_on(run(&environment, checks, |_| {}));
    // A reader of a file system that hangs must not keep the caller from going on.
    runtime.shutdown_background();
    let problems = findings.into_iter().filter(|finding| finding.severity >= Severity::Warning);
    Ok(problems.map(|finding| finding.sentence()).collect())
}

async fn run(environment: &Arc<Environment>, checks: &[Check], mut begin: impl FnMut(Check)) -> Vec<Finding> {
    let mut all = Vec::new();
    for check in checks {
        begin(*check);
        let mut findings = Findings::new(check.name());
        if tokio::time::timeout(CHECK_TIMEOUT, check.run(environment, &mut findings)).await.is_err() {
            let found = format!("the check did not end within {}", WithUnit::Duration(CHECK_TIMEOUT));
            findings.error(check.name(), found, "look for a file system or a server that does not respond");
        }
        all.append(&mut findings.into_list());
    }
    all
}

/// Runs a function that reads files on a thread of its own: on a file system that hangs, the check times out.
async fn read_files<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(read).await.expect("readers of files do not panic")
}
