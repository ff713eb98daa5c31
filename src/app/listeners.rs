//! All listeners, bound before anything is served.

use std::net::{SocketAddr, TcpListener};

use anyhow::Context as _;

use crate::admin;
use crate::config::Config;
use crate::transport;

/// The control plane's runtime: its listeners are bound on it, and its thread runs it.
pub(super) struct ControlRuntime(pub(super) tokio::runtime::Runtime);

/// All listeners.
pub(super) struct BoundListeners {
    /// For each worker, its listener on each address.
    pub(super) workers: Vec<Vec<TcpListener>>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) admin: tokio::net::TcpListener,
    pub(super) socket: tokio::net::UnixListener,
}

impl ControlRuntime {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self(tokio::runtime::Builder::new_current_thread().enable_all().build()?))
    }
}

impl BoundListeners {
    pub(super) fn new(config: &Config, runtime: &ControlRuntime) -> anyhow::Result<Self> {
        let _entered = runtime.0.enter();
        let mut workers: Vec<Vec<TcpListener>> = (0..config.workers).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for listener in &config.listen {
            let address = listener.address;
            let listeners =
                transport::bind(address, config.workers).with_context(|| format!("cannot listen on {address}"))?;
            addresses.push(listeners[0].local_addr()?);
            workers.iter_mut().zip(listeners).for_each(|(worker, listener)| worker.push(listener));
        }
        let admin = TcpListener::bind(config.admin.address)
            .with_context(|| format!("cannot listen on {} (admin.address)", config.admin.address))?;
        admin.set_nonblocking(true)?;
        let admin = tokio::net::TcpListener::from_std(admin)?;
        let socket = admin::bind_socket(&config.admin.socket)?;
        Ok(Self { workers, addresses, admin, socket })
    }
}
