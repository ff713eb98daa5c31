//! Installation with both states, for the tests of the migration: the real binary, and both states opened beside it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use domain::clock::Micros;
use domain::key::KeyDigest;
use domain::quota::RateLimitStatus;
use keygate::config::Config;
use serde_json::Value;
use state::embedded::OpenError;
use state::redis::{Clock, Settings};
use state::{DecideRequest, Decision, Embedded, Key, Org, Redis as RedisState, RouteAccess, State, User};

use crate::support::redis::Redis;
use crate::support::until;

pub(super) const COPY: &str = "state copy --from embedded --to redis";

/// Error text for a state that another process has locked. A child process inherits all open files, locks included,
/// until it executes its program: so for a moment a state that was closed already can still be locked.
const LINGERS: &str = "in use by another process";

/// Time in which Redis replies to the tests' own decisions, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(10);

/// Directory of a gateway on one machine, with a configuration that names both states.
pub(super) struct Installation {
    pub(super) directory: tempfile::TempDir,
    pub(super) config: PathBuf,
}

/// Output and exit code of a command.
#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Installation {
    /// Makes an installation with both states; `more` are further settings of Redis.
    pub(super) fn moving_to(urls: &[String], more: &str) -> Self {
        Self::with_state(&format!(
            "{{ embedded: {{ path: state.db }}, redis: {{ url: [{}], deadline: 2s{more} }} }}",
            urls.join(", ")
        ))
    }

    pub(super) fn with_state(state: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("keygate.yaml");
        let installation = Self { directory, config };
        installation.configure(state);
        installation
    }

    pub(super) fn configure(&self, state: &str) {
        let text = format!(
            "\
listen: [{{ address: 127.0.0.1:0 }}]
admin: {{ socket: admin.sock, address: 127.0.0.1:1 }}
upstream: {{ endpoints: [http://127.0.0.1:8081] }}
limits: {{ key: {{ requests: 60, per: 1h, burst: 40 }}, org: {{ concurrent: 9 }} }}
state: {state}
audit: {{ low_water: 0%, path: audit }}
"
        );
        std::fs::write(&self.config, text).unwrap();
    }

    /// Changes the configuration.
    pub(super) fn change(&self, change: impl FnOnce(&str) -> String) {
        std::fs::write(&self.config, change(&std::fs::read_to_string(&self.config).unwrap())).unwrap();
    }

    /// The configuration, before the move: only the embedded state.
    pub(super) fn before(&self) -> Config {
        let config = self.config();
        let from = config.copy_from.clone().unwrap();
        Config { state: state::Settings::Embedded(from), copy_from: None, ..config }
    }

    pub(super) fn config(&self) -> Config {
        Config::load(&self.config).unwrap()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
        command.args(line.split_whitespace()).arg("--config").arg(&self.config);
        command
    }

    /// Runs a command, again while the state is still locked; see [`LINGERS`].
    pub(super) fn run(&self, line: &str) -> CommandResult {
        until("the state is free", || {
            let ended = self.run_at_once(line);
            (!ended.err.contains(LINGERS)).then_some(ended)
        })
    }

    pub(super) fn run_at_once(&self, line: &str) -> CommandResult {
        ended(self.command(line).output().unwrap())
    }

    /// Starts a copy, and returns when Redis has this many keys.
    pub(super) fn begin(&self, redis: &Redis, names: u64) -> Child {
        let begin =
            || self.command(&format!("{COPY} --json")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut copying = begin();
        until("a part is copied", || {
            if copying.try_wait().unwrap().is_some_and(|ended| ended.code() == Some(75)) {
                copying = begin();
            }
            (redis.cli::<u64>(&["DBSIZE"]) > names).then_some(())
        });
        copying
    }

    /// Runs a copy that must succeed, and returns its report.
    pub(super) fn copy(&self) -> Value {
        let copied = self.run(&format!("{COPY} --json"));
        assert_eq!(copied.code, 0, "{copied:?}");
        serde_json::from_str(&copied.out).unwrap()
    }

    /// Opens the embedded state.
    pub(super) fn source(&self) -> Embedded {
        let state = self.directory.path().join("state.db");
        let state::Settings::Embedded(settings) = self.before().state else { unreachable!() };
        assert_eq!(settings.path, state);
        until("the state is free", || match Embedded::open(&settings) {
            Err(OpenError::Locked(_)) => None,
            opened => Some(opened.unwrap()),
        })
    }

    /// Opens the Redis state, which takes the times of its callers.
    pub(super) async fn target(&self) -> State {
        let state::Settings::Redis(settings) = self.config().state else { unreachable!() };
        let state = State::Redis(
            RedisState::open(Settings { clock: Clock::Caller, deadline: DEADLINE, ..*settings }).await.unwrap(),
        );
        // On a Cluster it takes a moment until all nodes are known.
        while !readable(&state).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        state
    }
}

pub(super) fn ended(output: Output) -> CommandResult {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandResult { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn readable(state: &State) -> bool {
    let Ok(orgs) = state.orgs().await else { return false };
    let keys = orgs.iter().map(|org| state.keys(org.id));
    futures_util::future::join_all(keys).await.iter().all(Result::is_ok)
}

/// All organizations, users and keys, as management lists them.
pub(super) async fn listed(state: &State) -> Vec<(Org, Vec<User>, Vec<Key>)> {
    let mut listed = Vec::new();
    for org in state.orgs().await.unwrap() {
        let (users, keys) = (state.users(org.id).await.unwrap(), state.keys(org.id).await.unwrap());
        listed.push((org, users, keys));
    }
    listed
}

/// Rate-limit statuses of all keys, without the slots, which Redis releases a little later.
pub(super) async fn rate_limits(state: &State, now: Micros) -> Vec<RateLimitStatus> {
    let mut rate_limits = Vec::new();
    for key in listed(state).await.iter().flat_map(|(_, _, keys)| keys) {
        let rate_limit = state.rate_limit_status(key.id, now).await.unwrap().unwrap();
        rate_limits.push(RateLimitStatus { in_flight: 0, ..rate_limit });
    }
    rate_limits
}

/// Decisions for digests at one time, as texts, without the slots.
pub(super) async fn decisions(state: &State, digests: &[KeyDigest], now: Micros) -> Vec<String> {
    let mut told = Vec::new();
    for digest in digests {
        let mut text = format!("{:?}: ", state.key_of(digest).await.unwrap());
        let (principal, rate_limit) =
            match state.decide(DecideRequest { digest, id: None, access: RouteAccess::Everyone, now }).await.unwrap() {
                Decision::Admitted(admitted) => {
                    write!(text, "admitted {} ", admitted.number).unwrap();
                    (Some(admitted.principal), Some(admitted.rate_limit))
                }
                Decision::Denied { refusal, principal, rate_limit } => {
                    write!(text, "{refusal:?} ").unwrap();
                    (principal, rate_limit)
                }
            };
        let rate_limit = rate_limit.map(|rate_limit| RateLimitStatus { in_flight: 0, ..rate_limit });
        write!(text, "{principal:?} {rate_limit:?}").unwrap();
        told.push(text);
    }
    told
}

/// Content of servers, without the list of live gateways and the probe for writability.
pub(super) fn content(servers: &[Redis]) -> BTreeMap<String, Vec<u8>> {
    let mut content = BTreeMap::new();
    for server in servers {
        let names: Vec<String> = server.cli(&["KEYS", "*"]);
        for name in names.into_iter().filter(|name| !name.ends_with("{gateways}") && !name.ends_with(":probe")) {
            content.insert(name.clone(), server.cli(&["DUMP", &name]));
        }
    }
    content
}
