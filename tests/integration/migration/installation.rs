//! Installation that moves between an embedded and a Redis state, for the tests of the migration: the real binary, and
//! both states opened beside it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use domain::clock::Micros;
use domain::key::KeyDigest;
use domain::quota::RateLimitStatus;
use keygate::config::Config;
use serde_json::Value;
use state::embedded::OpenError;
use state::redis::{Clock, Settings};
use state::{Decision, Embedded, Key, Org, Redis as RedisState, State, User};

use crate::support::decide::decide_request;
use crate::support::redis::Redis;
use crate::support::{Ended, until};

/// Imports the file that [`Installation::export`] wrote.
pub(super) const IMPORT: &str = "state import state.jsonl --json";

/// Compares that file with a state.
pub(super) const VERIFY: &str = "state verify state.jsonl --json";

/// Error text for a state that another process has locked. A child process inherits all open files, locks included,
/// until it executes its program: so for a moment a state that was closed already can still be locked.
const LINGERS: &str = "in use by another process";

/// Time in which Redis replies to the tests' own decisions, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(10);

/// State that a command works on.
#[derive(Clone, Copy)]
pub(super) enum On {
    Embedded,
    Redis,
}

/// Directory of a gateway on one machine, with a configuration for each state.
pub(super) struct Installation {
    pub(super) directory: tempfile::TempDir,
}

impl Installation {
    /// Makes an installation; `more` are further settings of Redis.
    pub(super) fn moving_to(urls: &[String], more: &str) -> Self {
        let installation = Self { directory: tempfile::tempdir().unwrap() };
        installation.configure(On::Embedded, "{ embedded: { path: state.db } }");
        let redis = format!("{{ redis: {{ url: [{}], deadline: 2s{more} }} }}", urls.join(", "));
        installation.configure(On::Redis, &redis);
        installation
    }

    fn configure(&self, on: On, state: &str) {
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
        std::fs::write(self.path(on), text).unwrap();
    }

    fn path(&self, on: On) -> PathBuf {
        self.directory.path().join(match on {
            On::Embedded => "embedded.yaml",
            On::Redis => "redis.yaml",
        })
    }

    /// Changes both configurations.
    pub(super) fn change(&self, change: impl Fn(&str) -> String) {
        for path in [On::Embedded, On::Redis].map(|on| self.path(on)) {
            std::fs::write(&path, change(&std::fs::read_to_string(&path).unwrap())).unwrap();
        }
    }

    pub(super) fn config(&self, on: On) -> Config {
        Config::load(&self.path(on)).unwrap()
    }

    fn command(&self, on: On, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
        command.current_dir(self.directory.path());
        command.args(line.split_whitespace()).arg("--config").arg(self.path(on));
        command
    }

    /// Runs a command, again while the state is still locked; see [`LINGERS`].
    pub(super) fn run(&self, on: On, line: &str) -> Ended {
        until("the state is free", || {
            let ended = Ended::of(self.command(on, line).output().unwrap());
            (!ended.err.contains(LINGERS)).then_some(ended)
        })
    }

    /// Exports a state to the file that [`IMPORT`] names.
    pub(super) fn export(&self, from: On) {
        let exported = self.run(from, "state export --out state.jsonl");
        assert_eq!(exported.code, 0, "{exported:?}");
    }

    /// Exports one state, imports it into the other, and returns the report, which must tell of no conflict.
    pub(super) fn move_records(&self, from: On, to: On) -> Value {
        self.export(from);
        let imported = self.run(to, IMPORT);
        assert_eq!(imported.code, 0, "{imported:?}");
        serde_json::from_str(&imported.out).unwrap()
    }

    /// Moves the embedded state to Redis.
    pub(super) fn copy(&self) -> Value {
        self.move_records(On::Embedded, On::Redis)
    }

    /// Exports the embedded state, begins an import into Redis, and returns when Redis has this many keys.
    pub(super) fn begin(&self, redis: &Redis, names: u64) -> Child {
        self.export(On::Embedded);
        let begin = || self.command(On::Redis, IMPORT).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut importing = begin();
        until("a part is imported", || {
            if importing.try_wait().unwrap().is_some_and(|ended| ended.code() == Some(75)) {
                importing = begin();
            }
            (redis.cli::<u64>(&["DBSIZE"]) > names).then_some(())
        });
        importing
    }

    /// Opens the embedded state.
    pub(super) fn source(&self) -> Embedded {
        let state = self.directory.path().join("state.db");
        let state::Settings::Embedded(settings) = self.config(On::Embedded).state else { unreachable!() };
        assert_eq!(settings.path, state);
        until("the state is free", || match Embedded::open(&settings) {
            Err(OpenError::Locked(_)) => None,
            opened => Some(opened.unwrap()),
        })
    }

    /// Opens the Redis state, which takes the times of its callers.
    pub(super) async fn target(&self) -> State {
        let state::Settings::Redis(settings) = self.config(On::Redis).state else { unreachable!() };
        let state = State::Redis(
            RedisState::open(Settings { clock: Clock::Caller, deadline: DEADLINE, ..*settings }).await.unwrap(),
        );
        // On a Cluster it takes a moment until all nodes are known.
        while !readable(&state).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // As a start does: the state has an identity before an import begins. One that begins without misses the state
        // that its records are of, and meanwhile a gateway serves nothing.
        let memory = tempfile::tempdir_in(self.directory.path()).unwrap().keep();
        state.remember_in(&memory).await.unwrap();
        state
    }
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
        let (principal, rate_limit) = match state.decide(decide_request(digest, now)).await.unwrap() {
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
        let is_kept =
            |name: &String| !name.contains(":{gateways}") && !name.contains(":{alive:") && !name.ends_with(":probe");
        for name in names.into_iter().filter(is_kept) {
            // A hash with a long value has no order: `replaces` of the identity has 65 bytes.
            let value = if name.ends_with("{revocations}") {
                let fields: BTreeMap<String, String> = server.cli(&["HGETALL", &name]);
                format!("{fields:?}").into_bytes()
            } else {
                server.cli(&["DUMP", &name])
            };
            content.insert(name, value);
        }
    }
    content
}
