//! Connections to a syslog server: UDP (RFC 5426), TCP (RFC 6587), TLS (RFC 5425), or a socket of this machine.
//!
//! - A message is one datagram, or stands on a stream with its length in front; the sender puts it there.
//! - Syslog acknowledges nothing: what the kernel has taken counts as sent. Only the end of a stream in good order
//!   tells that the server has read all ([`SyslogConnection::end`]).

use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt as _;
use rustix::io::Errno;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket, UnixDatagram, UnixStream, lookup_host};
use tokio::time::timeout;

use crate::outbound::server::OutboundStream;

/// Connection to a syslog server.
#[allow(missing_debug_implementations, reason = "a stream of any kind has none")]
pub enum SyslogConnection {
    /// Datagrams.
    Udp(UdpSocket),
    /// Datagrams to a socket of this machine.
    UnixDatagram(UnixDatagram),
    /// Messages with their length in front.
    Stream(Box<dyn OutboundStream>),
}

impl SyslogConnection {
    /// Connects to a host and port, for one datagram for each message.
    ///
    /// # Errors
    /// Those of the last address of the host.
    pub async fn open_udp(address: &str) -> io::Result<Self> {
        let mut result = Err(io::Error::new(io::ErrorKind::NotFound, "the name of the syslog server has no address"));
        for address in lookup_host(address).await? {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).await?;
            result = socket.connect(address).await.map(|()| Self::Udp(socket));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Connects to a host and port, for a stream.
    ///
    /// # Errors
    /// Those of the last address of the host.
    pub async fn open_tcp(address: &str) -> io::Result<Self> {
        Ok(Self::Stream(Box::new(TcpStream::connect(address).await?)))
    }

    /// Opens a socket of this machine, of whichever kind it is.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn open_unix(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        match socket.connect(path) {
            Ok(()) => Ok(Self::UnixDatagram(socket)),
            Err(error) if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => {
                Ok(Self::Stream(Box::new(UnixStream::connect(path).await?)))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether messages have their length in front.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// The connection, unless it is a stream that the server has closed. A server sends nothing.
    pub fn if_open(mut self) -> Option<Self> {
        let Self::Stream(stream) = &mut self else { return Some(self) };
        let read = stream.read(&mut [0; 64]).now_or_never();
        read.is_none_or(|read| read.is_ok_and(|bytes| bytes > 0)).then_some(self)
    }

    /// Sends a message: all of it as a datagram, or what a stream takes of it within a time. Returns
    /// the number of bytes.
    ///
    /// # Errors
    /// Those of the connection, and that a stream takes nothing in time.
    pub async fn send(&mut self, message: &[u8], within: Duration) -> io::Result<usize> {
        let sent = async {
            match self {
                Self::Udp(socket) => socket.send(message).await,
                Self::UnixDatagram(socket) => socket.send(message).await,
                Self::Stream(stream) => match stream.write(message).await? {
                    0 => Err(io::ErrorKind::WriteZero.into()),
                    sent => Ok(sent),
                },
            }
        };
        timeout(within, sent).await?
    }

    /// Sends messages with their lengths in front on a stream, which must take some of it within a time. Returns the
    /// number of bytes that were sent, also when it fails.
    pub async fn send_all(&mut self, messages: &[u8], within: Duration) -> (usize, io::Result<()>) {
        let mut sent = 0;
        while sent < messages.len() {
            match self.send(&messages[sent..], within).await {
                Ok(bytes) => sent += bytes,
                Err(error) => return (sent, Err(error)),
            }
        }
        (sent, Ok(()))
    }

    /// Ends a stream, and waits for the server to end it, too: it has read all then.
    ///
    /// # Errors
    /// The server has not ended the stream in good order.
    pub async fn end(self) -> io::Result<()> {
        let Self::Stream(mut stream) = self else { return Ok(()) };
        stream.shutdown().await?;
        let mut ignored = [0; 1024];
        loop {
            match stream.read(&mut ignored).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // It has closed the connection without the message of TLS that says so. One that is closed with bytes
                // that were not read is reset instead, which is another error.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
