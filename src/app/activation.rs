//! Socket activation: listening sockets that systemd has opened (`sd_listen_fds(3)`).
//!
//! - A name (`FileDescriptorName=`) says what a socket is for: `listen` for a listener of `listen`, which one
//!   is found by its address; `admin` for `admin.address`; `admin-socket` for `admin.socket`. Without names,
//!   all are for `listen`.
//! - A socket that fits nothing ends the start: clients that connect to it would wait for ever.

use std::collections::HashSet;
use std::env;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::{Context as _, bail};
use listenfd::ListenFd;
use socket2::SockRef;

use super::listeners::{InheritedListeners, ListenerPlace};
use crate::config::Config;

/// Names of the sockets, in the order in which systemd passes them.
const NAMES: &str = "LISTEN_FDNAMES";

/// Takes the listening sockets that systemd passes to this process; none without any.
///
/// # Errors
/// A socket that fits no listener of the configuration, by its name, its kind or its address.
pub(super) fn take_sockets(config: &Config) -> anyhow::Result<InheritedListeners> {
    let mut sockets = ListenFd::from_env();
    let names = env::var(NAMES).unwrap_or_default();
    let mut names = names.split(':').filter(|name| !name.is_empty());
    let mut inherited = InheritedListeners::default();
    let mut taken = HashSet::new();
    for index in 0..sockets.len() {
        let name = names.next().unwrap_or("listen");
        let (place, file) = take_socket(&mut sockets, index, name, config)
            .with_context(|| format!("socket {index} that systemd passes, named `{name}`, fits nothing"))?;
        // systemd passes several sockets of one address with `ReusePort=`: the workers share them.
        if !taken.insert(place) && !matches!(place, ListenerPlace::Listen(_)) {
            bail!("systemd passes more than one socket named `{name}`");
        }
        inherited.add(place, true, vec![file]);
    }
    Ok(inherited)
}

fn take_socket(
    sockets: &mut ListenFd,
    index: usize,
    name: &str,
    config: &Config,
) -> anyhow::Result<(ListenerPlace, OwnedFd)> {
    match name {
        "listen" => {
            let listener = take_tcp(sockets, index)?;
            let address = listener.local_addr()?;
            let Some(place) = config.listen.iter().position(|listener| listener.address == address) else {
                let addresses: Vec<String> =
                    config.listen.iter().map(|listener| listener.address.to_string()).collect();
                bail!("it listens on {address}, and `listen` has {}", addresses.join(", "));
            };
            Ok((ListenerPlace::Listen(place), listener.into()))
        }
        "admin" => {
            let listener = take_tcp(sockets, index)?;
            require_address(listener.local_addr()?, config.admin.address)?;
            Ok((ListenerPlace::AdminAddress, listener.into()))
        }
        "admin-socket" => {
            let listener = take_unix(sockets, index)?;
            require_path(&listener, &config.admin.socket)?;
            Ok((ListenerPlace::AdminSocket, listener.into()))
        }
        _ => bail!("FileDescriptorName= must be `listen`, `admin` or `admin-socket`"),
    }
}

fn take_tcp(sockets: &mut ListenFd, index: usize) -> anyhow::Result<TcpListener> {
    let listener = sockets.take_tcp_listener(index).context("it is no TCP socket")?.context("it is missing")?;
    require_listening(SockRef::from(&listener.as_fd()))?;
    Ok(listener)
}

fn take_unix(sockets: &mut ListenFd, index: usize) -> anyhow::Result<UnixListener> {
    let listener =
        sockets.take_unix_listener(index).context("it is no Unix stream socket")?.context("it is missing")?;
    require_listening(SockRef::from(&listener.as_fd()))?;
    Ok(listener)
}

/// With `Accept=yes`, systemd passes connections and not listening sockets.
fn require_listening(socket: SockRef<'_>) -> anyhow::Result<()> {
    if !socket.is_listener()? {
        bail!("it does not listen; the socket unit needs `Accept=no`");
    }
    Ok(())
}

fn require_address(address: SocketAddr, configured: SocketAddr) -> anyhow::Result<()> {
    if address != configured {
        bail!("it listens on {address}, and `admin.address` is {configured}");
    }
    Ok(())
}

fn require_path(listener: &UnixListener, configured: &Path) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let path = address.as_pathname().context("it has no path")?;
    let configured = std::path::absolute(configured)?;
    if path != configured {
        bail!("it listens on {}, and `admin.socket` is {}", path.display(), configured.display());
    }
    Ok(())
}
