//! The new process of a hand-over: takes the place of a gateway that runs.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};

use super::channel::{Channel, STEP_TIMEOUT};
use super::link;
use super::message::{FromNew, FromOld, Hello, Identity, VERSION};
use crate::app::listeners::InheritedListeners;
use crate::config::Config;
use control::admin::{HANDOVER_PATH, HANDOVER_PROTOCOL};
use state::State;

/// Bytes of the head of the response that begins the hand-over.
const MAX_HEAD: usize = 4096;

/// The old process, from which this one takes over.
pub(crate) struct Takeover {
    channel: Channel,
    socket: PathBuf,
    /// The old process has not ended.
    is_alive: Arc<AtomicBool>,
}

impl Takeover {
    /// Asks the gateway that listens on the admin socket for its listening sockets; none when no gateway runs.
    /// `replaces`: also one in full service.
    ///
    /// # Errors
    /// The gateway refuses, or does not answer.
    pub(crate) fn begin(config: &Config, replaces: bool) -> anyhow::Result<Option<(Self, InheritedListeners)>> {
        let socket = &config.admin.socket;
        let talked = match connect(socket)? {
            None => None,
            Some(stream) => match talk(stream, config, replaces) {
                // It has ended meanwhile, as one that drains may at any moment: its socket refuses connections now.
                Err(_) if connect(socket)?.is_none() => None,
                talked => Some(talked),
            },
        };
        let Some(talked) = talked else {
            if replaces {
                bail!("{}: no gateway listens on this socket, so that none can be replaced", socket.display());
            }
            return Ok(None);
        };
        let (channel, listeners) = talked.with_context(|| {
            let addresses: Vec<String> = config.listen.iter().map(|listener| listener.address.to_string()).collect();
            let socket = socket.display();
            let addresses = addresses.join(", ");
            format!("cannot listen on {addresses}: another gateway has the admin socket {socket}")
        })?;
        let is_alive = Arc::new(AtomicBool::new(true));
        Ok(Some((Self { channel, socket: socket.clone(), is_alive }, listeners)))
    }

    /// Has the old process stop deciding, and returns the files of its locks: of the state, if it is embedded, and of
    /// the journal. Call when nothing else is missing.
    pub(crate) fn locks(&self) -> anyhow::Result<Locks> {
        let locks = || {
            self.channel.send(&FromNew::Ready)?;
            self.expect(&FromOld::Locks)
        };
        let mut files =
            locks().with_context(|| self.failed("did not hand its locks over"))?.into_iter().map(File::from);
        let last = files.next_back().context("a lock is missing")?;
        Ok(Locks { journal: last, state: files.next() })
    }

    /// Takes over: from now on the journal and the state belong to this process. Call when the state was read.
    pub(crate) fn commit(&self) -> anyhow::Result<()> {
        let commit = || {
            self.channel.send(&FromNew::Prepared)?;
            self.expect(&FromOld::Commit)
        };
        commit().map(drop).with_context(|| self.failed("took everything back"))
    }

    /// Reports that this process serves, and decides for the old one from then on, until that has ended.
    pub(crate) fn finish(self, state: &Arc<State>) -> anyhow::Result<()> {
        let relinquished = self.channel.send(&FromNew::Serving).and_then(|()| self.expect(&FromOld::Relinquished));
        match relinquished {
            Ok(_) => Ok(link::serve_old_process(self.channel, state, self.is_alive)?),
            // It has ended meanwhile: its requests have ended as well.
            Err(error) => {
                tracing::warn!(%error, "the process that was replaced ended before its requests had");
                self.is_alive.store(false, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// True while the old process has not ended.
    pub(crate) fn liveness(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_alive)
    }

    /// Receives a message, which must be this one, and returns its files.
    fn expect(&self, expected: &FromOld) -> io::Result<Vec<OwnedFd>> {
        match self.channel.receive::<FromOld>()? {
            (message, files) if message == *expected => Ok(files),
            (FromOld::Refused { reason }, _) => Err(io::Error::other(reason)),
            (other, _) => Err(io::Error::other(format!("{other:?} came in place of {expected:?}"))),
        }
    }

    fn failed(&self, how: &str) -> String {
        format!("{}: the gateway that is to be replaced {how}", self.socket.display())
    }
}

/// Files of the locks of the old process.
pub(crate) struct Locks {
    pub(crate) journal: File,
    /// None on Redis.
    pub(crate) state: Option<File>,
}

/// Connects to the admin socket; none when no process listens on it.
fn connect(socket: &Path) -> anyhow::Result<Option<UnixStream>> {
    match UnixStream::connect(socket) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        // Binding the socket reports its error.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{}: cannot be reached", socket.display())),
    }
}

/// Begins a hand-over, and receives the listening sockets.
fn talk(stream: UnixStream, config: &Config, replaces: bool) -> anyhow::Result<(Channel, InheritedListeners)> {
    stream.set_read_timeout(Some(STEP_TIMEOUT))?;
    upgrade_connection(&stream)?;
    let mut channel = Channel::new(stream)?;
    channel.set_timeout(Some(STEP_TIMEOUT))?;
    let program = env!("CARGO_PKG_VERSION").to_owned();
    channel.send(&Hello { version: VERSION, program, replaces, identity: Identity::new(config) })?;
    let mut listeners = InheritedListeners::from_gateway();
    loop {
        match channel.receive::<FromOld>().context("it does not answer")? {
            (FromOld::Listeners { place, is_shared }, files) => listeners.add(place, is_shared, files),
            (FromOld::Offered, _) => return Ok((channel, listeners)),
            (FromOld::Refused { reason }, _) => bail!(reason),
            (other, _) => bail!("it answered {other:?}"),
        }
    }
}

/// Has the admin socket's server hand the connection over (RFC 9110, section 7.8).
fn upgrade_connection(mut stream: &UnixStream) -> anyhow::Result<()> {
    let request = format!(
        "POST {HANDOVER_PATH} HTTP/1.1\r\nhost: keygate\r\nconnection: upgrade\r\nupgrade: \
         {HANDOVER_PROTOCOL}\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut head = Vec::new();
    // One byte at a time: what follows the head is for the channel.
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD {
        let mut byte = [0];
        stream.read_exact(&mut byte).context("it does not answer")?;
        head.extend(byte);
    }
    if !head.starts_with(b"HTTP/1.1 101") {
        bail!("it is of a version that cannot be replaced while it runs; stop it, or configure another admin.socket");
    }
    Ok(())
}
