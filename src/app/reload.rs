//! ConfigReloader: another content of the configuration file takes effect as a whole, or nothing of it does.
//!
//! - What can fail is done first: reading, checking, and making what the workers share. Then every worker takes the new
//!   snapshot for its next request; what is in flight ends under the old one. It is applied when all have taken it.
//! - Connections, buckets, slots and counts are not the configuration's, and survive it.
//! - Asked for by SIGHUP it happens at once, by a change of the files when they have settled ([`super::watch`]). What is
//!   refused is said once for each content, or each time when it is asked for.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::Certificates;
use super::ProcessHandles;
use super::config_watcher::{ConfigWatcher, Fingerprint, is_rereadable};
use super::worker_pool::{ConfigSnapshot, WorkerCommand, WorkerPool};
use crate::admin::{ConfigReport, ConfigStatus, RejectedConfig};
use crate::clock::Micros;
use crate::config::{Config, ConfigSource, ContentHash};
use crate::key;
use crate::metrics::Metrics;
use crate::settings::{Document, SettingsErrors};
use crate::state::State;
use crate::tls;
use crate::transport::ConnectionLimiter;

/// Between two looks at the files: a change is in force within two to three of them.
const INTERVAL: Duration = Duration::from_secs(1);
/// For the workers to take a snapshot. They take it between two polls, so this is only for those that hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a content of the configuration did not take effect.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Invalid(#[from] SettingsErrors),
    #[error("the configuration came from a pipe, which can be read once; restart the gateway")]
    NoFile,
    #[error("{}", .0.in_full())]
    Certificates(#[from] tls::Error),
    #[error("cannot change while the gateway runs: {}; restart it, or change them back", .0.join(", "))]
    NeedsRestart(Vec<&'static str>),
    #[error("{0} of the workers do not answer; nothing was changed")]
    Unresponsive(usize),
    #[error("{0} of the workers did not take it over in time; restart the gateway")]
    PartiallyApplied(usize),
}

/// What applies another configuration.
pub(super) struct ConfigReloader {
    /// What is in force, also for those who stop the gateway.
    pub(super) snapshot: Arc<ArcSwap<ConfigSnapshot>>,
    pub(super) worker_pool: WorkerPool,
    pub(super) state: Arc<State>,
    pub(super) metrics: Metrics,
    pub(super) connection_limiter: ConnectionLimiter,
    pub(super) certificates: Arc<Certificates>,
    pub(super) status: Arc<ConfigStatus>,
    pub(super) process: ProcessHandles,
}

/// What is said of the configuration at the start.
pub(super) fn initial_status(source: &ConfigSource, now: Micros) -> ConfigStatus {
    let (path, sha256) = (source.path.clone(), source.hash.to_string());
    ConfigStatus::new(ConfigReport { path, sha256, applied: now.to_string(), last_error: None })
}

/// Counts a configuration that took effect.
pub(super) fn record_loaded(metrics: &Metrics, now: Micros) {
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970")]
    metrics.config_loaded_at.set(now.0 as f64 / 1e6);
    metrics.config_reload_ok.set(1);
}

impl ConfigReloader {
    /// Starts the thread. It ends when nobody can ask any more.
    pub(super) fn start(self, asked: Receiver<()>) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("reload".into()).spawn(move || self.run(&asked))
    }

    /// Applies what changes, and at once what it is asked to.
    fn run(self, asked: &Receiver<()>) {
        let mut watch = self.watch();
        loop {
            match asked.recv_timeout(INTERVAL) {
                Ok(()) => {
                    // Whatever is written from now on is another change.
                    watch.set_baseline(self.fingerprint());
                    self.reload();
                }
                Err(RecvTimeoutError::Timeout) if watch.observe(self.fingerprint()) => self.reload(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Begins to watch. What has changed since the configuration was read is seen as a change.
    fn watch(&self) -> ConfigWatcher {
        let fingerprint = self.fingerprint();
        let source = &self.snapshot.load().config.source;
        let content = || std::fs::read(&source.path);
        let is_same = !is_rereadable(&source.path)
            || content().is_ok_and(|content| ContentHash::from_content(&content) == source.hash);
        ConfigWatcher::new(if is_same { fingerprint } else { Fingerprint::UNKNOWN })
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_files(&self.files())
    }

    /// The files whose content counts.
    fn files(&self) -> Vec<PathBuf> {
        vec![self.snapshot.load().config.source.path.clone()]
    }

    fn reload(&self) {
        self.process.notifier.reloading();
        // As it was given at the start: relative paths in it must come to the same.
        let path = self.snapshot.load().config.source.given.clone();
        let (mut hash, time) = (None, Micros::wall());
        let mut read = || {
            if !is_rereadable(&path) {
                return Err(ReloadError::NoFile);
            }
            let text = Document::text(&path)?;
            hash = Some(ContentHash::from_content(text.as_bytes()));
            self.apply(Config::parse(&path, &text)?)
        };
        match read() {
            Ok(()) => self.applied(time),
            Err(refused) => self.refused(&refused, hash, time),
        }
    }

    fn apply(&self, config: Config) -> Result<(), ReloadError> {
        let old = self.snapshot.load_full();
        let restart = old.config.restart_only_changes(&config);
        if !restart.is_empty() {
            return Err(ReloadError::NeedsRestart(restart));
        }
        let certificates = self.certificates.prepare(&config.listen)?;
        let new = old.next(config, &self.metrics)?;
        self.distribute(&old, &new)?;
        let config = &new.config;
        self.certificates.install(certificates, new.endpoints.tls());
        self.connection_limiter.resize(config.max_connections, config.max_connections_per_address, config.proxies());
        self.state.set_defaults(config.state.defaults());
        self.process.logs.set_level(config.telemetry.level);
        for vanished in old.endpoints.names().filter(|old| !new.endpoints.names().any(|new| new == *old)) {
            self.metrics.remove_endpoint(vanished);
        }
        self.snapshot.store(Arc::new(new));
        Ok(())
    }

    /// Has every worker take the snapshot, or none: those that hang are found before anything is changed.
    fn distribute(&self, old: &ConfigSnapshot, new: &ConfigSnapshot) -> Result<(), ReloadError> {
        let hang = self.worker_pool.broadcast(PATIENCE, WorkerCommand::Ping).timed_out;
        if hang > 0 {
            return Err(ReloadError::Unresponsive(hang));
        }
        let torn = self.worker_pool.broadcast(PATIENCE, |done| WorkerCommand::ApplyConfig(new.clone(), done)).timed_out;
        if torn > 0 {
            // Those that took it go back; the ones that hang are last to know of either.
            self.worker_pool.broadcast(Duration::ZERO, |done| WorkerCommand::ApplyConfig(old.clone(), done));
            return Err(ReloadError::PartiallyApplied(torn));
        }
        Ok(())
    }

    fn applied(&self, time: Micros) {
        let hash = self.snapshot.load().config.source.hash.to_string();
        record_loaded(&self.metrics, time);
        tracing::info!(sha256 = hash, "the configuration was reloaded");
        self.process.notifier.ready("serving");
        self.status.set_applied(hash, time.to_string());
    }

    fn refused(&self, refused: &ReloadError, hash: Option<ContentHash>, time: Micros) {
        // A key that stands where none belongs is not repeated.
        let error = refused.to_string();
        let error = String::from_utf8_lossy(&key::redacted(error.as_bytes())).into_owned();
        self.metrics.config_reload_failures.inc();
        self.metrics.config_reload_ok.set(0);
        let sha256 = hash.map(|hash| hash.to_string());
        tracing::error!(sha256, error, "the configuration was not reloaded: the old one stays in force");
        self.process.notifier.ready("serving; the configuration file was refused, see `keygate config status`");
        self.status.set_rejected(RejectedConfig { time: time.to_string(), sha256, error });
    }
}
