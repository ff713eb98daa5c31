//! Listeners: all of them are bound before any of them is served, so that a taken port ends the start early.
//!
//! A listening socket that systemd has opened, or that a process hands over, is taken in place of a new one.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::config::{AdminSettings, Config};
use control::admin;
use domain::counted::Counted;
use edge::transport::{self, ListenerRelease, WorkerListener, WorkerLoads};
use platform::accept_errors::AcceptErrorLog;

/// Runtime of the control plane. Its listeners are bound on it, and its thread runs it.
pub(super) struct ControlRuntime(pub(super) tokio::runtime::Runtime);

/// Place of a listening socket in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum ListenerPlace {
    /// `listen`, by its index.
    Listen(usize),
    /// `admin.address`.
    AdminAddress,
    /// `admin.socket`.
    AdminSocket,
}

/// Open listening sockets of one place.
#[derive(Debug)]
struct OpenSockets {
    place: ListenerPlace,
    /// systemd has them, too: they stay open when the gateway ends.
    is_shared: bool,
    files: Vec<OwnedFd>,
}

/// Listening sockets that another process has opened.
#[derive(Debug, Default)]
pub(super) struct InheritedListeners {
    sockets: Vec<OpenSockets>,
    /// They come from a gateway that drains: the sockets that it did not pass close soon.
    close_soon: bool,
}

/// Time for the sockets of a gateway that drains to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts to bind an address that a gateway leaves.
const CLOSE_INTERVAL: Duration = Duration::from_millis(10);

/// Copies of the listening sockets of this process, for one that takes over.
///
/// - A socket stays open as long as its copy. So the copies are closed before the listeners close.
#[derive(Debug, Default)]
pub(super) struct KeptListeners(Mutex<Vec<OpenSockets>>);

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
    pub(super) kept: KeptListeners,
    pub(super) release: ListenerRelease,
    /// Log of failed accepts, of all listeners.
    pub(super) accept_errors: AcceptErrorLog,
}

impl ControlRuntime {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self(tokio::runtime::Builder::new_current_thread().enable_all().build()?))
    }
}

impl InheritedListeners {
    /// Those of a gateway that is replaced; none yet.
    pub(super) fn from_gateway() -> Self {
        Self { sockets: Vec::new(), close_soon: true }
    }

    pub(super) fn has_admin_socket(&self) -> bool {
        self.sockets.iter().any(|sockets| sockets.place == ListenerPlace::AdminSocket)
    }

    /// Adds sockets of a place.
    pub(super) fn add(&mut self, place: ListenerPlace, is_shared: bool, mut files: Vec<OwnedFd>) {
        match self.sockets.iter_mut().find(|sockets| sockets.place == place) {
            Some(sockets) => sockets.files.append(&mut files),
            None => self.sockets.push(OpenSockets { place, is_shared, files }),
        }
    }

    fn take(&mut self, place: ListenerPlace) -> Option<OpenSockets> {
        let index = self.sockets.iter().position(|sockets| sockets.place == place)?;
        Some(self.sockets.swap_remove(index))
    }

    /// Binds an address, and waits while a gateway that drains has it.
    fn retry_bind<T>(&self, bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        loop {
            match bind() {
                Err(error)
                    if self.close_soon && error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline =>
                {
                    std::thread::sleep(CLOSE_INTERVAL);
                }
                bound => return bound,
            }
        }
    }
}

impl KeptListeners {
    fn keep<'a, S: 'a>(
        &self,
        place: ListenerPlace,
        is_shared: bool,
        sockets: impl IntoIterator<Item = &'a S>,
        copy: impl Fn(&S) -> io::Result<OwnedFd>,
    ) -> io::Result<()> {
        let files = sockets.into_iter().map(copy).collect::<io::Result<_>>()?;
        self.lock().push(OpenSockets { place, is_shared, files });
        Ok(())
    }

    /// Calls a function with the sockets of each place.
    pub(super) fn for_each(
        &self,
        mut each: impl FnMut(ListenerPlace, bool, &[OwnedFd]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.lock().iter().try_for_each(|sockets| each(sockets.place, sockets.is_shared, &sockets.files))
    }

    /// Closes the copies of all sockets for clients.
    pub(super) fn close_for_clients(&self) {
        self.lock().retain(|sockets| !matches!(sockets.place, ListenerPlace::Listen(_)));
    }

    /// Closes all copies.
    pub(super) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OpenSockets>> {
        self.0.lock()
    }
}

impl BoundListeners {
    /// Binds all listeners but those that were inherited.
    pub(super) fn new(
        config: &Config,
        runtime: &ControlRuntime,
        mut inherited: InheritedListeners,
    ) -> anyhow::Result<Self> {
        // The listeners of the control plane register with the runtime that is entered when they are made.
        let _entered = runtime.0.enter();
        let loads = WorkerLoads::new(config.workers);
        let release = ListenerRelease::new();
        let kept = KeptListeners::default();
        let mut workers: Vec<Vec<WorkerListener>> = (0..config.workers).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        let accept_errors = AcceptErrorLog::default();
        for (index, listener) in config.listen.iter().enumerate() {
            let place = ListenerPlace::Listen(index);
            let (sockets, is_shared) = match inherited.take(place) {
                Some(open) => (listeners_of_workers(open.files, config.workers)?, open.is_shared),
                None => {
                    let address = listener.address;
                    let bound = inherited.retry_bind(|| transport::bind(address, config.workers));
                    (bound.with_context(|| format!("cannot listen on {address}"))?, false)
                }
            };
            addresses.push(sockets[0].local_addr()?);
            kept.keep(place, is_shared, &sockets, |socket: &TcpListener| Ok(socket.try_clone()?.into()))?;
            let release = if is_shared { release.of_shared() } else { release.clone() };
            let listeners = WorkerListener::share(sockets, &loads, &release, &accept_errors);
            workers.iter_mut().zip(listeners).for_each(|(worker, listener)| worker.push(listener));
        }
        let admin = bind_admin_address(config, &mut inherited, &kept)?;
        let socket = bind_admin_socket(&config.admin, &mut inherited, &kept)?;
        Ok(Self { workers, addresses, admin, socket, kept, release, accept_errors })
    }
}

/// One listener for each worker: the sockets themselves, or copies of the only one.
fn listeners_of_workers(files: Vec<OwnedFd>, workers: usize) -> anyhow::Result<Vec<TcpListener>> {
    let mut sockets: Vec<TcpListener> = files.into_iter().map(TcpListener::from).collect();
    if sockets.len() == 1 {
        let copies = (1..workers).map(|_| sockets[0].try_clone()).collect::<io::Result<Vec<_>>>()?;
        sockets.extend(copies);
    }
    if sockets.len() != workers {
        bail!("handed over: {} for {}", Counted(sockets.len(), "listening socket"), Counted(workers, "worker"));
    }
    sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    Ok(sockets)
}

fn bind_admin_address(
    config: &Config,
    inherited: &mut InheritedListeners,
    kept: &KeptListeners,
) -> anyhow::Result<tokio::net::TcpListener> {
    let place = ListenerPlace::AdminAddress;
    let open = inherited.take(place).and_then(|open| Some((open.files.into_iter().next()?, open.is_shared)));
    let (listener, is_shared) = match open {
        Some((file, is_shared)) => (TcpListener::from(file), is_shared),
        None => {
            let address = config.admin.address;
            let bound = TcpListener::bind(address);
            (bound.with_context(|| format!("cannot listen on {address} (admin.address)"))?, false)
        }
    };
    listener.set_nonblocking(true)?;
    kept.keep(place, is_shared, [&listener], |listener: &TcpListener| Ok(listener.try_clone()?.into()))?;
    Ok(tokio::net::TcpListener::from_std(listener)?)
}

fn bind_admin_socket(
    settings: &AdminSettings,
    inherited: &mut InheritedListeners,
    kept: &KeptListeners,
) -> anyhow::Result<tokio::net::UnixListener> {
    let place = ListenerPlace::AdminSocket;
    let open = inherited.take(place).and_then(|open| Some((open.files.into_iter().next()?, open.is_shared)));
    let (listener, is_shared) = match open {
        Some((file, is_shared)) => (UnixListener::from(file), is_shared),
        None => (admin::bind_socket(&settings.socket)?.into_std()?, false),
    };
    listener.set_nonblocking(true)?;
    kept.keep(place, is_shared, [&listener], |listener: &UnixListener| Ok(listener.try_clone()?.into()))?;
    Ok(tokio::net::UnixListener::from_std(listener)?)
}
