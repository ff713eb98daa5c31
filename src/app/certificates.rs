//! What encrypted connections are made with, on both sides: kept up to date with the files, and shown in the metrics.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwapOption;

use crate::config::Listener;
use crate::metrics::TlsMetrics;
use crate::tls::{self, CertificateExpiry, ClientTls, PreparedTls, ServerTls};

/// Between two looks at the files: certificates are in force long before anybody who changed them would look.
const INTERVAL: Duration = Duration::from_secs(1);

/// The certificates of both sides.
pub struct Certificates {
    /// In the order of the configuration; none for listeners that are not encrypted.
    stores: Vec<Option<Arc<ServerTls>>>,
    /// Of connections to the upstream; none when they are not encrypted.
    upstream: ArcSwapOption<ClientTls>,
    /// The names in the metrics.
    shown: Mutex<BTreeMap<String, i64>>,
    metrics: TlsMetrics,
}

/// What will be in force once it is installed.
pub struct PreparedCertificates(Vec<(Arc<ServerTls>, PreparedTls)>);

/// Has the files looked at every second, on a thread of its own, until it is dropped.
pub(super) struct CertWatcher {
    _until_dropped: mpsc::Sender<Infallible>,
}

impl CertWatcher {
    pub(super) fn start(certificates: Arc<Certificates>) -> io::Result<Self> {
        let (sender, dropped) = mpsc::channel();
        let look = move || {
            while dropped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                certificates.reload();
            }
        };
        std::thread::Builder::new().name("certificates".into()).spawn(look)?;
        Ok(Self { _until_dropped: sender })
    }
}

impl Certificates {
    pub(super) fn open(
        listeners: &[Listener],
        upstream: Option<&Arc<ClientTls>>,
        metrics: TlsMetrics,
    ) -> anyhow::Result<Self> {
        let open = |listener: &Listener| {
            let store = listener.tls.as_ref().map(|tls| ServerTls::open(tls).map(Arc::new)).transpose();
            store.with_context(|| format!("cannot encrypt connections to {}", listener.address))
        };
        let stores = listeners.iter().map(open).collect::<anyhow::Result<_>>()?;
        let upstream = ArcSwapOption::new(upstream.cloned());
        let certificates = Self { stores, upstream, shown: Mutex::default(), metrics };
        certificates.show();
        Ok(certificates)
    }

    /// The store of a listener, by its place in the configuration.
    pub fn store(&self, listener: usize) -> Option<&Arc<ServerTls>> {
        self.stores.get(listener)?.as_ref()
    }

    /// Reads the files of other settings for the same listeners, all of which can be used, or none.
    ///
    /// # Errors
    /// [`tls::Error`] names the file that is of no use.
    pub fn prepare(&self, listeners: &[Listener]) -> Result<PreparedCertificates, tls::Error> {
        let pairs = self.stores.iter().zip(listeners).filter_map(|(store, listener)| {
            let (store, settings) = store.as_ref().zip(listener.tls.as_ref())?;
            Some(store.prepare(settings).map(|ready| (Arc::clone(store), ready)))
        });
        pairs.collect::<Result<_, _>>().map(PreparedCertificates)
    }

    /// Puts into force what was prepared, and looks after another store of the upstream's from now on.
    pub fn install(&self, PreparedCertificates(all): PreparedCertificates, upstream: Option<&Arc<ClientTls>>) {
        all.into_iter().for_each(|(store, ready)| store.install(ready));
        self.upstream.store(upstream.cloned());
        self.show();
    }

    /// Looks at all files, and puts into force what has changed, each listener's and the upstream's by itself. A failure is logged and counted
    /// once for each content, at the second look that sees it; what was in force still is.
    ///
    /// Cheap enough to be called every second.
    pub fn reload(&self) {
        let listeners = self.stores.iter().flatten().map(|store| store.reload());
        for reloaded in listeners.chain(self.upstream.load().iter().map(|store| store.reload())) {
            match reloaded {
                Ok(files) if files.is_empty() => {}
                Ok(files) => tracing::info!(?files, "changed certificates are in force"),
                Err(error) => {
                    self.metrics.reload_failures.inc();
                    let error = error.in_full();
                    tracing::error!(%error, "changed certificates cannot be used; those before them are in force");
                }
            }
        }
        self.show();
    }

    /// Our own certificate at the upstream is named by what it is for: those of clients need no DNS name.
    fn expiries(&self) -> Vec<CertificateExpiry> {
        let own = self.upstream.load().as_ref().and_then(|store| store.not_after());
        let own = own.map(|not_after| CertificateExpiry { certificate: "upstream".into(), not_after });
        self.stores.iter().flatten().flat_map(|store| store.expiries()).chain(own).collect()
    }

    /// Shows in the metrics when certificates end: of those with the same name, the first to end.
    fn show(&self) {
        let mut current: BTreeMap<String, i64> = BTreeMap::new();
        for expiry in self.expiries() {
            let ends = current.entry(expiry.certificate).or_insert(expiry.not_after);
            *ends = expiry.not_after.min(*ends);
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown != current {
            shown
                .keys()
                .filter(|name| !current.contains_key(*name))
                .for_each(|name| self.metrics.remove_certificate(name));
            current.iter().for_each(|(name, at)| self.metrics.set_expiry(name, *at));
            *shown = current;
        }
    }
}
