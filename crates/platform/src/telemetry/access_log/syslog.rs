//! Syslog server as the destination of the access log: UDP, TCP, or a socket of this machine.
//!
//! - The server is connected to when there is something to send; while it is away, the writer tries
//!   again about every second.
//! - A message is one datagram, or stands on a stream with its length in front. One that a datagram
//!   cannot hold is dropped.

use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::timeout;

use super::settings::{SyslogServer, SyslogSettings};
use crate::metrics::LineMetrics;
use crate::outbound::delivery::{Batch, SyslogConnection};
use crate::telemetry::lines::note_written;
use crate::telemetry::syslog_message::MessageWriter;
use domain::clock::Micros;

/// Time for a server to accept a connection, and to take what is sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// Name of the kind of messages: `MSGID`.
const MESSAGE_ID: &str = "access";
/// Bytes of messages that are sent on a stream at once.
const CHUNK: usize = 64 << 10;

/// A syslog server.
pub(super) struct Syslog {
    server: SyslogServer,
    messages: MessageWriter,
    connection: Option<SyslogConnection>,
}

impl Syslog {
    pub(super) fn new(settings: &SyslogSettings, gateway: &str) -> Self {
        let messages = MessageWriter::new(settings.facility, gateway, MESSAGE_ID);
        Self { server: settings.server.clone(), messages, connection: None }
    }

    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    pub(super) async fn write(&mut self, batch: &mut Batch<u8>, metrics: &LineMetrics) -> io::Result<()> {
        // A server that went away while nothing was sent is found before its connection swallows messages.
        let mut connection = match self.connection.take().and_then(SyslogConnection::if_open) {
            Some(connection) => connection,
            None => timeout(SEND_TIMEOUT, self.server.connect()).await??,
        };
        while !batch.rest().is_empty() {
            if connection.is_stream() {
                self.send_chunk(&mut connection, batch, metrics).await?;
            } else {
                self.send_datagram(&mut connection, batch, metrics).await?;
            }
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// Sends the next line as a datagram.
    async fn send_datagram(
        &mut self,
        connection: &mut SyslogConnection,
        batch: &mut Batch<u8>,
        metrics: &LineMetrics,
    ) -> io::Result<()> {
        let length = memchr::memchr(b'\n', batch.rest()).expect("lines end in a line feed");
        let mut message = Vec::new();
        self.messages.write(&mut message, Micros::wall(), &batch.rest()[..length]);
        match connection.send(&message, SEND_TIMEOUT).await {
            Ok(_) => note_written(batch, length + 1, metrics),
            Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                metrics.dropped.inc();
                batch.advance(length + 1);
            }
            Err(error) => {
                self.messages.take_back(1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends the next lines on a stream. Those that went whole are written; a new connection begins with the line in
    /// which this one failed.
    async fn send_chunk(
        &mut self,
        connection: &mut SyslogConnection,
        batch: &mut Batch<u8>,
        metrics: &LineMetrics,
    ) -> io::Result<()> {
        let now = Micros::wall();
        let mut frames = Vec::new();
        let mut scratch = Vec::new();
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
        let (sent, result) = connection.send_all(&frames, SEND_TIMEOUT).await;
        let whole = ends.iter().filter(|(frame_end, _)| *frame_end <= sent).count();
        self.messages.take_back((ends.len() - whole) as u64);
        let written = whole.checked_sub(1).map_or(0, |last| ends[last].1);
        note_written(batch, written, metrics);
        result
    }
}

impl SyslogServer {
    async fn connect(&self) -> io::Result<SyslogConnection> {
        match self {
            Self::Udp(address) => SyslogConnection::open_udp(address).await,
            Self::Tcp(address) => SyslogConnection::open_tcp(address).await,
            Self::Unix(path) => SyslogConnection::open_unix(path).await,
        }
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
