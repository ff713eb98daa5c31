//! Command line of the real binary: output, exit codes, and use with and without a running gateway.

mod apply;
mod apply_policies;
mod audit;
mod backup;
mod convert;
mod failures;
mod key_policies;
mod keys;
mod offline_keys;
mod permissions;
mod plans;
mod policy;
mod secret_output;
mod services;
mod usage;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use ::control::admin;
use ::control::api::Api;
use control::management;
use control::management::{Actor, Management, NewKeyRequest, PolicyUpdate, SecretSource, UnixUser};
use domain::clock;
use domain::clock::Micros;
use domain::key::{self, KeyDigest, KeyId};
use journal::audit::{Journal, Outcome, Use, UseEnd};
use keygate::app;
use keygate::config::Config;
use platform::accept_errors::AcceptErrorLog;
use platform::metrics::Metrics;
use serde_json::Value;
use state::{Decision, State};
use tokio::sync::oneshot;

use crate::journal::support::{Caller, END};
use crate::support::decide::decide_request;
use crate::support::{Ended, until};

/// A configuration, with its state and journal, in a temporary directory.
struct Installation {
    directory: tempfile::TempDir,
    config: PathBuf,
}

impl Installation {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("keygate.yaml");
        let text = "\
listen: [{ address: 127.0.0.1:0 }]
admin: { socket: admin.sock, address: 127.0.0.1:1 }
upstream: { endpoints: [http://127.0.0.1:8081] }
state: { embedded: { path: state.db } }
audit: { low_water: 0%, path: audit }
";
        std::fs::write(&config, text).unwrap();
        Self { directory, config }
    }

    /// Runs a command.
    ///
    /// Retries while the state is locked: a process that another test forks inherits the open files of this one until
    /// it executes its program, so a closed state may stay locked for a moment.
    fn run(&self, line: &str) -> Ended {
        self.run_with(line, "")
    }

    /// The same, of a command that reads this text.
    fn run_with(&self, line: &str, input: &str) -> Ended {
        until("the state is unlocked", || {
            let ended = self.run_once(line, input);
            (!ended.err.contains("in use by another process")).then_some(ended)
        })
    }

    /// The same, also of a state that stays locked.
    fn run_once(&self, line: &str, input: &str) -> Ended {
        Ended::of_reading(&mut self.command(line), input)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
        command.args(line.split_whitespace()).arg("--config").arg(&self.config).env_remove("SUDO_UID");
        command
    }

    /// Runs a command that must succeed.
    fn ok(&self, line: &str) -> Ended {
        let ended = self.run(line);
        assert_eq!(ended.code, 0, "{line}: {ended:?}");
        ended
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json")).out).unwrap()
    }

    /// Creates the organization acme, its user ada and a key; returns the printed key.
    fn with_key(&self) -> String {
        self.ok("org create acme");
        self.ok("user create --org acme ada@example.com --permission queries:read --permission queries:write");
        let created = self.ok("key create --org acme --user ada@example.com laptop");
        assert!(created.err.contains("shown only once"), "{created:?}");
        created.out
    }

    /// An installation with that key, its text and its id.
    fn with_key_id() -> (Self, String, KeyId) {
        let installation = Self::new();
        let key = installation.with_key().trim().to_owned();
        let id = key::parse(key.as_bytes()).unwrap();
        (installation, key, id)
    }

    /// Works with the state and the journal as a gateway would.
    fn with_state<T>(&self, work: impl AsyncFnOnce(&Arc<State>, &Journal) -> T) -> T {
        let config = Config::load(&self.config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (state, journal) = app::open_and_recover(&config, &Metrics::new()).await.unwrap();
            let done = work(&state, &journal).await;
            journal.close().await;
            state.close().await;
            done
        })
    }

    /// Creates this many keys of Ada; returns their ids in the order of their creation.
    fn create_keys(&self, org: &str, count: usize) -> Vec<String> {
        let settings = Config::load(&self.config).unwrap().audit;
        self.with_state(async |state, journal| {
            let management = Management::new(Arc::clone(state), journal.clone(), &settings, &Metrics::new().state);
            let operator = Actor::operator(UnixUser::ROOT);
            let mut ids = Vec::new();
            for number in 0..count {
                let name = format!("key {number}");
                let request =
                    NewKeyRequest { user: "ada@example.com", name: &name, policy: PolicyUpdate::default(), plan: None };
                let source = SecretSource::Generated;
                let created = management::create_key(&management, &operator, org, request, source, clock::now()).await;
                ids.push(created.unwrap().key.id.to_string());
            }
            ids
        })
    }

    /// Decides and records one use of a key, as a gateway would.
    fn with_use_of(&self, presented: &str) {
        self.record_use(presented, clock::now(), None);
    }

    /// As [`Installation::with_use_of`], by a clock that shows this time.
    fn with_use_at(&self, presented: &str, now: Micros) {
        self.record_use(presented, now, None);
    }

    /// As [`Installation::with_use_of`], by a client with this user agent.
    fn with_use_by(&self, presented: &str, agent: Option<&str>) {
        self.record_use(presented, clock::now(), agent);
    }

    fn record_use(&self, presented: &str, now: Micros, agent: Option<&str>) {
        self.with_state(async |state, journal| {
            let digest = KeyDigest::of(presented.as_bytes());
            let ask = decide_request(&digest, now);
            let Decision::Admitted(admitted) = state.decide(ask).await.unwrap() else { panic!("admitted") };
            let principal = &admitted.principal;
            let opening = Use {
                number: Some(admitted.number),
                key_id: principal.key_id,
                user_id: Some(principal.user_id),
                org_id: Some(principal.org_id),
                ip: None,
                user_agent: agent.map(str::as_bytes),
                action: "GET /",
                ..Caller::random().opening_at(now)
            };
            drop(journal.begin(&opening).await.unwrap());
        });
    }

    /// Records a refusal of a key, as a gateway would.
    fn with_refusal_of(&self, key: KeyId, outcome: Outcome) {
        self.with_state(async |_, journal| {
            let caller = Caller { key, ..Caller::random() };
            let unnamed = Use { user_id: None, org_id: None, ip: None, user_agent: None, ..caller.opening() };
            let opening = Use { number: None, action: "GET /", ..unnamed };
            let end = UseEnd { outcome, status: Some(401), ..END };
            assert!(journal.record(&opening, end).await.unwrap());
        });
    }

    /// Runs `then` while the admin socket is served, as by a gateway.
    fn with_gateway<T>(&self, then: impl FnOnce() -> T) -> T {
        let config = Config::load(&self.config).unwrap();
        let (started, starting) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let gateway = thread::spawn(move || serve(&config, &started, stopped));
        starting.recv().unwrap();
        let done = then();
        stop.send(()).unwrap();
        gateway.join().unwrap();
        done
    }
}

fn serve(config: &Config, started: &std::sync::mpsc::Sender<()>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let metrics = Metrics::new();
        let (state, journal) = app::open_and_recover(config, &metrics).await.unwrap();
        let management = Arc::new(Management::new(Arc::clone(&state), journal.clone(), &config.audit, &metrics.state));
        let api = Api::new(&management, admin::API_PATH);
        let listener = admin::bind_socket(&config.admin.socket).unwrap();
        started.send(()).unwrap();
        let status = admin::ConfigReport {
            path: config.source.path.clone(),
            sha256: config.source.hash.to_string(),
            applied: clock::now(),
            last_error: None,
        };
        let status = Arc::new(admin::ConfigStatus::new(status));
        let upstreams: admin::Reports<_> = Arc::new(Vec::new);
        let shipping: admin::Reports<_> = Arc::new(Vec::new);
        let (handover, accept_errors) = (admin::HandoverServices::none(), AcceptErrorLog::default());
        let services = admin::SocketServices { api, config: status, upstreams, shipping, handover, accept_errors };
        admin::serve_socket(listener, services, async { drop(stopped.await) }).await;
        journal.close().await;
        state.close().await;
    });
}
