//! TLS certificates of listeners, of upstream connections and of connections to collectors of traces: reloaded when
//! their files change. The expiry of the first two is in the metrics.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::Listener;
use platform::metrics::TlsMetrics;
use platform::telemetry::trace::TraceExporters;
use platform::tls::{self, CertificateExpiry, ClientTls, PreparedTls, ServerTls};
use upstream::{DEFAULT_NAME, Endpoints};

/// Time between two checks of the files: short enough that a new certificate is in use before an operator checks it.
const INTERVAL: Duration = Duration::from_secs(1);

/// Certificate stores of the encrypted listeners and of connections to the upstreams.
pub struct Certificates {
    /// One for each listener, in the order of the configuration; none for a listener without TLS.
    stores: Vec<Option<Arc<ServerTls>>>,
    /// Stores of the upstreams with TLS.
    upstreams: ArcSwap<Vec<UpstreamStore>>,
    /// Certificates in the metrics, by name, with the end of their validity in Unix seconds.
    shown: Mutex<BTreeMap<String, i64>>,
    metrics: TlsMetrics,
}

/// Store of one upstream.
struct UpstreamStore {
    /// Name of its client certificate in the metrics: a client certificate need not have a DNS name.
    certificate: String,
    tls: Arc<ClientTls>,
}

/// Certificates that were read and checked, to be installed.
pub struct PreparedCertificates(Vec<(Arc<ServerTls>, PreparedTls)>);

/// Thread that checks the certificate files every second, until this is dropped.
pub(super) struct CertWatcher {
    _until_dropped: mpsc::Sender<Infallible>,
}

impl CertWatcher {
    pub(super) fn start(certificates: Arc<Certificates>, exporters: TraceExporters) -> io::Result<Self> {
        let (sender, dropped) = mpsc::channel();
        let check = move || {
            while dropped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                certificates.reload_with(&exporters.tls());
            }
        };
        std::thread::Builder::new().name("certificates".into()).spawn(check)?;
        Ok(Self { _until_dropped: sender })
    }
}

impl Certificates {
    pub(super) fn open(listeners: &[Listener], upstreams: &[Endpoints], metrics: TlsMetrics) -> anyhow::Result<Self> {
        let open = |listener: &Listener| {
            let store = listener.tls.as_ref().map(|tls| ServerTls::open(tls).map(Arc::new)).transpose();
            store.with_context(|| format!("cannot encrypt connections to {}", listener.address))
        };
        let stores = listeners.iter().map(open).collect::<anyhow::Result<_>>()?;
        let upstreams = ArcSwap::from_pointee(stores_of(upstreams));
        let certificates = Self { stores, upstreams, shown: Mutex::default(), metrics };
        certificates.update_metrics();
        Ok(certificates)
    }

    /// The store of a listener, by its index in the configuration; none for a listener without TLS.
    pub fn store(&self, listener: usize) -> Option<&Arc<ServerTls>> {
        self.stores.get(listener)?.as_ref()
    }

    /// Reads the files of other settings for the same listeners. Nothing changes until [`Certificates::install`].
    ///
    /// # Errors
    /// [`tls::Error`] names the first file that cannot be used.
    pub fn prepare(&self, listeners: &[Listener]) -> Result<PreparedCertificates, tls::Error> {
        let pairs = self.stores.iter().zip(listeners).filter_map(|(store, listener)| {
            let (store, settings) = store.as_ref().zip(listener.tls.as_ref())?;
            Some(store.prepare(settings).map(|ready| (Arc::clone(store), ready)))
        });
        pairs.collect::<Result<_, _>>().map(PreparedCertificates)
    }

    /// Uses the prepared certificates and the stores of these upstreams from the next connection on.
    pub fn install(&self, PreparedCertificates(all): PreparedCertificates, upstreams: &[Endpoints]) {
        all.into_iter().for_each(|(store, ready)| store.install(ready));
        self.upstreams.store(Arc::new(stores_of(upstreams)));
        self.update_metrics();
    }

    /// Checks all files, and uses those that have changed, for each listener and each upstream by itself. A failure is
    /// logged and counted once for each content, at the second check that sees it; the previous certificates stay in
    /// use.
    ///
    /// Cheap enough to be called every second.
    pub fn reload(&self) {
        self.reload_with(&[]);
    }

    /// The same, and the files of other outgoing connections.
    fn reload_with(&self, others: &[Arc<ClientTls>]) {
        let upstreams = self.upstreams.load();
        let outgoing = upstreams.iter().map(|upstream| &upstream.tls).chain(others).map(|tls| tls.reload());
        for reloaded in self.stores.iter().flatten().map(|store| store.reload()).chain(outgoing) {
            match reloaded {
                Ok(files) if files.is_empty() => {}
                Ok(files) => tracing::info!(?files, "reloaded changed certificates"),
                Err(error) => {
                    self.metrics.reload_failures.inc();
                    let text = error.in_full();
                    match error {
                        tls::Error::Outdated { .. } => {
                            tracing::warn!(error = text, "the previous certificates stay in use: they are valid");
                        }
                        _ => {
                            tracing::error!(
                                error = text,
                                "cannot use changed certificates; the previous ones stay in use"
                            );
                        }
                    }
                }
            }
        }
        self.update_metrics();
    }

    /// Expiry of every certificate in use.
    fn expiries(&self) -> Vec<CertificateExpiry> {
        let upstreams = self.upstreams.load();
        let own = upstreams.iter().filter_map(|UpstreamStore { certificate, tls }| {
            Some(CertificateExpiry { certificate: certificate.clone(), not_after: tls.not_after()? })
        });
        self.stores.iter().flatten().flat_map(|store| store.expiries()).chain(own).collect()
    }

    /// Sets the expiry metrics. Of certificates with the same name, the earliest end counts.
    fn update_metrics(&self) {
        let mut current: BTreeMap<String, i64> = BTreeMap::new();
        for expiry in self.expiries() {
            let ends = current.entry(expiry.certificate).or_insert(expiry.not_after);
            *ends = expiry.not_after.min(*ends);
        }
        let mut shown = self.shown.lock();
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

/// Stores of those upstreams that have TLS.
fn stores_of(upstreams: &[Endpoints]) -> Vec<UpstreamStore> {
    let store = |upstream: &Endpoints| {
        let certificate = match upstream.name() {
            DEFAULT_NAME => "upstream".to_owned(),
            name => format!("upstream:{name}"),
        };
        Some(UpstreamStore { certificate, tls: Arc::clone(upstream.tls()?) })
    };
    upstreams.iter().filter_map(store).collect()
}
