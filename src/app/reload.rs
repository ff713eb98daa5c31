//! Configuration reload: a new content of the configuration file is applied as a whole, or not at all.
//!
//! - Everything that can fail is done first: reading, checking, and building the new [`ConfigSnapshot`]. Then every
//!   worker serves its next requests by the new snapshot; requests in flight end under the old one. The snapshot is
//!   active when all workers have acknowledged it.
//! - Connections, buckets, slots and counts do not belong to the configuration and survive a reload.
//! - Endpoints that discovery has found are applied in the same way, with the active configuration.
//! - SIGHUP reloads at once, and opens the file of the access log again. A changed file is reloaded when its content is
//!   stable ([`super::config_watcher`]). A rejected content is reported once, and again at each SIGHUP.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::config_snapshot::{ConfigSnapshot, SnapshotError};
use super::config_watcher::{ConfigWatcher, Fingerprint, is_rereadable};
use super::fleet;
use super::process_handles::ProcessHandles;
use super::shared_handles::SharedHandles;
use super::worker_pool::{WorkerCommand, WorkerPool};
use crate::config::{Config, ConfigSource, ContentHash};
use crate::doctor::{self, Check};
use control::admin::{ConfigReport, ConfigStatus, RejectedConfig};
use control::management::Management;
use domain::clock::Micros;
use domain::counted::counted;
use domain::key;
use platform::metrics::Metrics;
use platform::settings::{Document, SettingsErrors};
use platform::telemetry::access_log::AccessLog;
use platform::tls;
use upstream::{Discovered, Discovery, DiscoveryEnded};

/// Time between two checks of the files: a change is active within two to three of them.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for all workers to acknowledge a command. They take it between two polls, so only a hung worker needs longer.
const ACK_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why a content of the configuration file was not applied.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Invalid(#[from] SettingsErrors),
    #[error("the configuration was read from a pipe, which can be read only once; restart the gateway")]
    NotRereadable,
    #[error("{}", .0.in_full())]
    Certificates(#[from] tls::Error),
    #[error("cannot open the access log (telemetry.access_log): {0}")]
    AccessLog(#[source] std::io::Error),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Discovery(#[from] DiscoveryEnded),
    #[error("{} {} a restart: restart the gateway or revert the change", .0.join(", "), needs(.0))]
    NeedsRestart(Vec<&'static str>),
    #[error("{} did not respond in time; nothing was changed", counted(.0, "worker"))]
    Unresponsive(usize),
    #[error("{} did not apply the configuration in time; restart the gateway", counted(.0, "worker"))]
    PartiallyApplied(usize),
}

/// The verb behind these keys.
fn needs(keys: &[&str]) -> &'static str {
    if keys.len() == 1 { "needs" } else { "need" }
}

/// Request to the thread.
pub(super) enum ReloadRequest {
    /// Read the configuration file now.
    File,
    /// Serve by other endpoints of an upstream.
    Endpoints(Discovered),
}

/// Applies new configurations and endpoints, on a thread of its own.
pub(super) struct ConfigReloader {
    /// The active snapshot, shared with the thread that stops the gateway.
    pub(super) snapshot: Arc<ArcSwap<ConfigSnapshot>>,
    pub(super) worker_pool: WorkerPool,
    pub(super) handles: SharedHandles,
    /// It reads the audit of all gateways.
    pub(super) management: Arc<Management>,
    pub(super) discovery: Discovery,
    /// The result that `keygate config status` shows.
    pub(super) status: Arc<ConfigStatus>,
    pub(super) process: ProcessHandles,
}

/// The configuration status of a gateway that starts.
pub(super) fn initial_status(source: &ConfigSource, now: Micros) -> ConfigStatus {
    let path = source.path.clone();
    let sha256 = source.hash.to_string();
    ConfigStatus::new(ConfigReport { path, sha256, applied: now, last_error: None })
}

/// Sets the metrics of a configuration that was applied.
pub(super) fn record_loaded(metrics: &Metrics, now: Micros) {
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970")]
    metrics.config_loaded_at.set(now.0 as f64 / 1e6);
    metrics.config_reload_ok.set(1);
}

impl ConfigReloader {
    /// Starts the thread. It ends when the sender of `requests` is dropped.
    pub(super) fn start(self, requests: Receiver<ReloadRequest>) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("reload".into()).spawn(move || self.run(&requests))
    }

    /// Reloads when the files have changed, and at once when a reload is requested.
    fn run(self, requests: &Receiver<ReloadRequest>) {
        let mut watcher = self.start_watching();
        // Endpoints that the workers have not taken yet.
        let mut pending: Vec<Discovered> = Vec::new();
        loop {
            let request = requests.recv_timeout(INTERVAL);
            match request {
                Ok(ReloadRequest::Endpoints(discovered)) => {
                    pending.retain(|older| older.upstream != discovered.upstream);
                    pending.push(discovered);
                }
                Ok(ReloadRequest::File) => {
                    // Taken before the file is read: a change that is written during the reload is another change.
                    watcher.set_baseline(self.fingerprint());
                    // Before the reload, which may fail: the file may have been renamed for its rotation.
                    if let Some(access_log) = &self.snapshot.load().access_log {
                        access_log.reopen();
                    }
                    self.reload();
                }
                Err(RecvTimeoutError::Timeout) if watcher.observe(self.fingerprint()) => self.reload(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // A reload may have come in between, with endpoints that are newer.
            pending.retain(|discovered| self.discovery.is_current(discovered));
            // A hung worker is tried again at the next turn.
            if !pending.is_empty() && self.apply_endpoints(&pending) {
                pending.clear();
            }
        }
    }

    /// Serves by other endpoints. Returns false when that must be tried again.
    fn apply_endpoints(&self, discovered: &[Discovered]) -> bool {
        let old = self.snapshot.load_full();
        let new = old.with_endpoints(discovered, &self.handles.metrics);
        let applied = new.map_err(ReloadError::from).and_then(|new| self.distribute(&old, &new).map(|()| new));
        match applied {
            Ok(new) => {
                self.complete(&old, new);
                true
            }
            Err(error) => {
                tracing::error!(%error, "cannot serve by changed endpoints yet; those of before stay in use");
                false
            }
        }
    }

    /// A watcher that reports a change if the file no longer has the content that was applied at the start.
    fn start_watching(&self) -> ConfigWatcher {
        let fingerprint = self.fingerprint();
        let source = &self.snapshot.load().config.source;
        let content = || std::fs::read(&source.path);
        // A pipe cannot be read again, so it never counts as changed.
        let is_same = !is_rereadable(&source.path)
            || content().is_ok_and(|content| ContentHash::from_content(&content) == source.hash);
        ConfigWatcher::new(if is_same { fingerprint } else { Fingerprint::UNKNOWN })
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_files(&self.files())
    }

    /// The watched files.
    fn files(&self) -> Vec<PathBuf> {
        vec![self.snapshot.load().config.source.path.clone()]
    }

    fn reload(&self) {
        self.process.notifier.notify_reloading();
        // The path as it was given at the start: relative paths in the file must resolve to the same files.
        let path = self.snapshot.load().config.source.given.clone();
        let mut hash = None;
        let time = Micros::wall();
        let mut read_and_apply = || {
            if !is_rereadable(&path) {
                return Err(ReloadError::NotRereadable);
            }
            let text = Document::read_text(&path)?;
            hash = Some(ContentHash::from_content(text.as_bytes()));
            self.apply(Config::parse(&path, &text)?)
        };
        match read_and_apply() {
            Ok(()) => self.report_applied(time),
            Err(error) => self.report_rejected(&error, hash, time),
        }
    }

    fn apply(&self, mut config: Config) -> Result<(), ReloadError> {
        let old = self.snapshot.load_full();
        let restart = old.config.restart_only_changes(&config);
        if !restart.is_empty() {
            return Err(ReloadError::NeedsRestart(restart));
        }
        let certificates = self.handles.certificates.prepare(&config.listen)?;
        self.discovery
            .resolve(config.upstreams.iter_mut().map(|upstream| (&mut upstream.settings, &upstream.discovery)))?;
        let new = old.with_config(config, &self.handles.metrics)?;
        let access_log = AccessLog::follow(
            old.access_log.as_ref(),
            new.config.access_log.as_ref(),
            &self.handles.metrics.access_log,
        );
        let new = new.with_access_log(access_log.map_err(ReloadError::AccessLog)?);
        self.distribute(&old, &new)?;
        // Nothing below can fail. The workers serve by the new snapshot; the services that they share follow.
        let config = &new.config;
        self.handles.certificates.install(certificates, &new.upstreams);
        self.discovery.follow(config.upstreams.iter().map(|upstream| (&upstream.settings, &upstream.discovery)));
        self.handles.connection_limiter.resize(
            config.max_connections,
            config.max_connections_per_address,
            config.proxies(),
        );
        self.handles.shippers.follow(&config.shipping);
        if old.config.shipping.postgresql() != config.shipping.postgresql() {
            fleet::replace_fleet(&self.management, config);
        }
        self.handles.state.set_defaults(config.state.defaults());
        self.handles.state.set_bounds(config.bounds);
        self.handles.state.replace_logins(&config.state);
        self.process.logs.set_level(config.telemetry.level);
        self.complete(&old, new);
        Ok(())
    }

    /// Notes a snapshot that all workers serve by.
    fn complete(&self, old: &ConfigSnapshot, new: ConfigSnapshot) {
        // A removed endpoint would keep its last values in the metrics for ever.
        for endpoints in &*old.upstreams {
            endpoints.remove_metrics_unless_in(&new.upstreams);
        }
        self.snapshot.store(Arc::new(new));
    }

    /// Applies a snapshot on every worker, or on none.
    fn distribute(&self, old: &ConfigSnapshot, new: &ConfigSnapshot) -> Result<(), ReloadError> {
        // Finds hung workers before anything is changed, so that workers rarely serve by different snapshots.
        let hung = self.worker_pool.broadcast(ACK_TIMEOUT, WorkerCommand::Ping).timed_out;
        if hung > 0 {
            return Err(ReloadError::Unresponsive(hung));
        }
        let apply = |snapshot: &ConfigSnapshot, timeout| {
            self.worker_pool.broadcast(timeout, |ack| WorkerCommand::ApplyConfig(Box::new(snapshot.clone()), ack))
        };
        let timed_out = apply(new, ACK_TIMEOUT).timed_out;
        if timed_out > 0 {
            // Rolls back the workers that applied it. A hung worker has both commands in its queue, and so also ends
            // with the old snapshot.
            apply(old, Duration::ZERO);
            return Err(ReloadError::PartiallyApplied(timed_out));
        }
        Ok(())
    }

    fn report_applied(&self, time: Micros) {
        let hash = self.snapshot.load().config.source.hash.to_string();
        record_loaded(&self.handles.metrics, time);
        tracing::info!(sha256 = hash, "reloaded the configuration");
        let config = &self.snapshot.load().config;
        let of_certificates = doctor::warnings(config, &[Check::Certificates], true).unwrap_or_default();
        config.warnings().iter().chain(&of_certificates).for_each(|warning| tracing::warn!("{warning}"));
        self.process.notifier.notify_ready("serving");
        self.status.set_applied(hash, time);
    }

    fn report_rejected(&self, error: &ReloadError, hash: Option<ContentHash>, time: Micros) {
        // The error quotes the file, which may hold an API key in the wrong place: its secret must not reach the log.
        let error = error.to_string();
        let error = String::from_utf8_lossy(&key::redact(error.as_bytes())).into_owned();
        self.handles.metrics.config_reload_failures.inc();
        self.handles.metrics.config_reload_ok.set(0);
        let sha256 = hash.map(|hash| hash.to_string());
        tracing::error!(sha256, error, "cannot reload the configuration; the previous one stays active");
        // A reload that was announced to systemd must also end when it failed.
        let status = "serving; the configuration file was rejected, see `keygate config status`";
        self.process.notifier.notify_ready(status);
        self.status.set_rejected(RejectedConfig { time, sha256, error });
    }
}
