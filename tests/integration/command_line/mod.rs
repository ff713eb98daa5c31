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
mod policy;
mod secret_output;
mod services;
mod usage;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use ::control::admin;
use ::control::api::Api;
use control::management::{Actor, Management, NewKeyRequest, PolicyUpdate, SecretSource, UnixUser};
use domain::clock;
use domain::clock::Micros;
use domain::identity::AuthMethod;
use domain::key::{KeyDigest, KeyId};
use journal::audit::{Outcome, Use, UseEnd};
use keygate::app;
use keygate::config::Config;
use platform::accept_errors::AcceptErrorLog;
use platform::metrics::Metrics;
use serde_json::Value;
use state::{DecideRequest, Decision, RouteAccess};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::support::until;

/// A configuration, with its state and journal, in a temporary directory.
struct Installation {
    directory: tempfile::TempDir,
    config: PathBuf,
}

/// Output and exit code of a command.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
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
        let mut command = self.command(line);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that reads nothing may have ended.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        ended(child.wait_with_output().unwrap())
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

    /// Creates this many keys of Ada; returns their ids in the order of their creation.
    fn create_keys(&self, org: &str, count: usize) -> Vec<String> {
        let config = Config::load(&self.config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let metrics = Metrics::new();
            let (state, journal) = app::open_and_recover(&config, &metrics).await.unwrap();
            let management = Management::new(Arc::clone(&state), journal.clone(), &config.audit, &metrics.state);
            let mut ids = Vec::new();
            for number in 0..count {
                let name = format!("key {number}");
                let request = NewKeyRequest { user: "ada@example.com", name: &name, policy: PolicyUpdate::default() };
                let operator = Actor::operator(UnixUser::ROOT);
                let created =
                    management.create_key(&operator, org, request, SecretSource::Generated, clock::now()).await;
                ids.push(created.unwrap().key.id.to_string());
            }
            journal.close().await;
            state.close().await;
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
        let config = Config::load(&self.config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (state, journal) = app::open_and_recover(&config, &Metrics::new()).await.unwrap();
            let digest = KeyDigest::of(presented.as_bytes());
            let Decision::Admitted(admitted) = state
                .decide(DecideRequest { digest: &digest, id: None, access: RouteAccess::Everyone, client: None, now })
                .await
                .unwrap()
            else {
                panic!("admitted")
            };
            let opening = Use {
                id: Uuid::now_v7(),
                time: now,
                number: Some(admitted.number),
                key_id: admitted.principal.key_id,
                user_id: Some(admitted.principal.user_id),
                org_id: Some(admitted.principal.org_id),
                auth_method: AuthMethod::ApiKey,
                ip: None,
                user_agent: agent.map(str::as_bytes),
                action: "GET /",
                method: "GET",
                path: "/",
                provisional: false,
                trace_id: None,
            };
            drop(journal.begin(&opening).await.unwrap());
            drop(admitted);
            journal.close().await;
            state.close().await;
        });
    }

    /// Records a refusal of a key, as a gateway would.
    fn with_refusal_of(&self, key: KeyId, outcome: Outcome) {
        let config = Config::load(&self.config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (state, journal) = app::open_and_recover(&config, &Metrics::new()).await.unwrap();
            let opening = Use {
                id: Uuid::now_v7(),
                time: clock::now(),
                number: None,
                key_id: Some(key),
                user_id: None,
                org_id: None,
                auth_method: AuthMethod::ApiKey,
                ip: None,
                user_agent: None,
                action: "GET /",
                method: "GET",
                path: "/",
                provisional: false,
                trace_id: None,
            };
            let end = UseEnd { outcome, status: Some(401), duration_us: 1, request_bytes: 0, response_bytes: 0 };
            assert!(journal.record(&opening, end).await.unwrap());
            journal.close().await;
            state.close().await;
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

fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}
