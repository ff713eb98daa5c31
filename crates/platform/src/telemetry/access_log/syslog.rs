//! Syslog server as the destination of the access log: UDP (RFC 5426), TCP (RFC 6587), or a socket of this machine.
//!
//! - The server is connected to when there is something to send; while it is away, the writer tries again every second.
//! - A message is one datagram, or stands on a stream with its length in front. One that a datagram cannot hold is dropped.
//! - Syslog acknowledges nothing: what the kernel has taken counts as written.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use super::settings::{SyslogServer, SyslogSettings};
use crate::metrics::LineMetrics;
use crate::telemetry::lines::Batch;
use crate::telemetry::syslog_message::MessageWriter;
use domain::clock::Micros;

/// Time for a server to accept a connection, and to take what is sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// Name of the kind of messages: `MSGID`.
const MESSAGE_ID: &str = "access";
/// Bytes of messages that are sent on a stream at once.
const CHUNK: usize = 64 << 10;

/// A syslog server.
#[derive(Debug)]
pub(super) struct Syslog {
    server: SyslogServer,
    messages: MessageWriter,
    connection: Option<Connection>,
}

#[derive(Debug)]
enum Connection {
    Udp(UdpSocket),
    UnixDatagram(UnixDatagram),
    Tcp(TcpStream),
    UnixStream(UnixStream),
}

impl Syslog {
    pub(super) fn new(settings: &SyslogSettings, gateway: &str) -> Self {
        let messages = MessageWriter::new(settings.facility, gateway, MESSAGE_ID);
        Self { server: settings.server.clone(), messages, connection: None }
    }

    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    pub(super) fn write(&mut self, batch: &mut Batch, metrics: &LineMetrics) -> io::Result<()> {
        // A server that went away while nothing was sent is found before its connection swallows messages.
        if self.connection.as_ref().is_some_and(Connection::is_closed) {
            self.connection = None;
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.server)?,
        };
        while !batch.rest().is_empty() {
            match connection.is_stream() {
                true => self.send_chunk(&mut connection, batch, metrics)?,
                false => self.send_datagram(&connection, batch, metrics)?,
            }
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// Sends the next line as a datagram.
    fn send_datagram(&mut self, connection: &Connection, batch: &mut Batch, metrics: &LineMetrics) -> io::Result<()> {
        let length = memchr::memchr(b'\n', batch.rest()).expect("lines end in a line feed");
        let mut message = Vec::new();
        self.messages.write(&mut message, Micros::wall(), &batch.rest()[..length]);
        let result = connection.send(&message);
        match result {
            Ok(()) => metrics.written.inc_by(batch.advance(length + 1)),
            Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                metrics.dropped.inc_by(batch.advance(length + 1));
            }
            Err(error) => {
                self.messages.take_back(1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends the next lines on a stream. Those that went whole are written; a new connection begins with the line in which
    /// this one failed.
    fn send_chunk(&mut self, connection: &mut Connection, batch: &mut Batch, metrics: &LineMetrics) -> io::Result<()> {
        let now = Micros::wall();
        let (mut frames, mut scratch) = (Vec::new(), Vec::new());
        // For each line its end among the frames, and in the batch.
        let mut ends = Vec::new();
        let mut end = 0;
        for line in batch.rest().split_inclusive(|byte| *byte == b'\n') {
            self.messages.write_framed(&mut frames, &mut scratch, now, &line[..line.len() - 1]);
            end += line.len();
            ends.push((frames.len(), end));
            if frames.len() >= CHUNK {
                break;
            }
        }
        let (sent, result) = connection.send_all(&frames);
        let whole = ends.iter().rev().find(|(frame_end, _)| *frame_end <= sent).map_or(0, |(_, end)| *end);
        let lines = batch.advance(whole);
        metrics.written.inc_by(lines);
        self.messages.take_back(ends.len() as u64 - lines);
        result
    }
}

impl Connection {
    fn open(server: &SyslogServer) -> io::Result<Self> {
        match server {
            SyslogServer::Udp(address) => open_udp(address).map(Self::Udp),
            SyslogServer::Tcp(address) => open_tcp(address).map(Self::Tcp),
            SyslogServer::Unix(path) => open_unix(path),
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self, Self::Tcp(_) | Self::UnixStream(_))
    }

    /// Returns whether the server has closed a stream. A server sends nothing.
    fn is_closed(&self) -> bool {
        let is_ended = |read: io::Result<usize>| match read {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        let read = |set: &dyn Fn(bool) -> io::Result<()>, read: &mut dyn FnMut() -> io::Result<usize>| {
            set(true).is_err() || is_ended(read()) || set(false).is_err()
        };
        match self {
            Self::Tcp(stream) => read(&|on| stream.set_nonblocking(on), &mut || (&mut &*stream).read(&mut [0; 64])),
            Self::UnixStream(stream) => {
                read(&|on| stream.set_nonblocking(on), &mut || (&mut &*stream).read(&mut [0; 64]))
            }
            Self::Udp(_) | Self::UnixDatagram(_) => false,
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(message).map(drop),
            Self::UnixDatagram(socket) => socket.send(message).map(drop),
            Self::Tcp(_) | Self::UnixStream(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sends all bytes on a stream. Returns the bytes that were sent, also when it fails.
    fn send_all(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut sent = 0;
        while sent < bytes.len() {
            let result = match self {
                Self::Tcp(stream) => stream.write(&bytes[sent..]),
                Self::UnixStream(stream) => stream.write(&bytes[sent..]),
                Self::Udp(_) | Self::UnixDatagram(_) => Err(io::ErrorKind::Unsupported.into()),
            };
            match result {
                Ok(0) => return (sent, Err(io::ErrorKind::WriteZero.into())),
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (sent, Err(error)),
            }
        }
        (sent, Ok(()))
    }
}

/// Tries the addresses of a name in turn.
fn try_each<T>(address: &str, open: impl Fn(std::net::SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut result = Err(io::Error::new(io::ErrorKind::NotFound, "the name of the syslog server has no address"));
    for address in address.to_socket_addrs()? {
        result = open(address);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn open_udp(address: &str) -> io::Result<UdpSocket> {
    try_each(address, |address| {
        let any: &str = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        Ok(socket)
    })
}

fn open_tcp(address: &str) -> io::Result<TcpStream> {
    try_each(address, |address| {
        let stream = TcpStream::connect_timeout(&address, SEND_TIMEOUT)?;
        // A server that takes nothing must not hold the writer for ever.
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(stream)
    })
}

/// Opens a socket of this machine, of whichever kind it is.
fn open_unix(path: &Path) -> io::Result<Connection> {
    let socket = UnixDatagram::unbound()?;
    match socket.connect(path) {
        Ok(()) => {
            socket.set_write_timeout(Some(SEND_TIMEOUT))?;
            Ok(Connection::UnixDatagram(socket))
        }
        Err(error) if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => {
            let stream = UnixStream::connect(path)?;
            stream.set_write_timeout(Some(SEND_TIMEOUT))?;
            Ok(Connection::UnixStream(stream))
        }
        Err(error) => Err(error),
    }
}

impl fmt::Display for Syslog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            SyslogServer::Udp(address) => write!(f, "syslog at udp://{address}"),
            SyslogServer::Tcp(address) => write!(f, "syslog at tcp://{address}"),
            SyslogServer::Unix(path) => write!(f, "syslog at unix:{}", path.display()),
        }
    }
}
