//! Listeners: all of them are bound before any of them is served, so that a taken port ends the start early.

use std::net::{SocketAddr, TcpListener};

use anyhow::Context as _;

use crate::admin;
use crate::config::Config;
use crate::transport::{self, WorkerListener, WorkerLoads};

/// Runtime of the control plane. Its listeners are bound on it, and its thread runs it.
pub(super) struct ControlRuntime(pub(super) tokio::runtime::Runtime);

/// All listeners of a gateway, bound.
pub(super) struct BoundListeners {
    /// The listeners of each worker, in the order of the configuration: every worker has its own on each address.
    pub(super) workers: Vec<Vec<WorkerListener>>,
    /// The addresses in the order of the configuration, with the ports that the system chose.
    pub(super) addresses: Vec<SocketAddr>,
    /// `/metrics`, `/live` and `/ready`.
    pub(super) admin: tokio::net::TcpListener,
    /// The admin socket.
    pub(super) socket: tokio::net::UnixListener,
}

impl ControlRuntime {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self(tokio::runtime::Builder::new_current_thread().enable_all().build()?))
    }
}

impl BoundListeners {
    pub(super) fn new(config: &Config, runtime: &ControlRuntime) -> anyhow::Result<Self> {
        // The listeners of the control plane register with the runtime that is entered when they are made.
        let _entered = runtime.0.enter();
        let loads = WorkerLoads::new(config.workers);
        let mut workers: Vec<Vec<WorkerListener>> = (0..config.workers).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for listener in &config.listen {
            let address = listener.address;
            let listeners =
                transport::bind(address, config.workers).with_context(|| format!("cannot listen on {address}"))?;
            addresses.push(listeners[0].local_addr()?);
            let listeners = WorkerListener::share(listeners, &loads);
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
