//! Syslog server as a sink: messages of RFC 5424 over TLS (RFC 5425), each with its length in front (RFC 6587).
//!
//! - The text of a message is the record, or the checkpoint, in JSON. The same one gives the same message each time: it
//!   has the time of the record or of the signature, and no number.
//! - Syslog acknowledges nothing. A batch has a connection of its own, which the gateway ends after the last message;
//!   that the server ends it, too, and in order, tells that it has read all. Otherwise the batch is delivered again.

mod message;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::batch::Batch;
use super::ndjson;
use super::settings::SyslogSettings;
use super::sink_error::SinkError;
use crate::audit::JournalCheckpoint;
use domain::clock::Micros;
use platform::outbound::{OutboundStream, Server};
use platform::tls::{self, ClientTls};

use message::MessageWriter;

/// Bytes of messages that are written at once.
const CHUNK: usize = 64 << 10;
/// Time for the server to take anything of what is sent: that of the whole delivery.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for the server to read the rest of a batch, and to end the connection.
const END_TIMEOUT: Duration = Duration::from_secs(15);
/// Names of the kinds of messages: `MSGID`.
const RECORD_ID: &str = "audit";
const CHECKPOINT_ID: &str = "checkpoint";

/// A syslog server.
#[derive(Debug)]
pub(super) struct Syslog {
    server: Server,
    facility: u8,
}

impl Syslog {
    pub(super) fn open(settings: &SyslogSettings) -> Result<Self, tls::Error> {
        let server = Server {
            host: settings.host.clone(),
            port: settings.port,
            tls: Some(Arc::new(ClientTls::open(&settings.tls, &[])?)),
        };
        Ok(Self { server, facility: settings.facility })
    }

    pub(super) fn target(&self) -> String {
        format!("{}:{}", self.server.host, self.server.port)
    }

    /// Sends the records and checkpoints of a batch, and waits until the server has read them.
    pub(super) async fn deliver(&self, batch: &Batch) -> Result<(), SinkError> {
        if batch.records.is_empty() && batch.checkpoints.is_empty() {
            return Ok(());
        }
        let mut stream = self.server.connect().await?;
        self.write(&mut *stream, batch).await.map_err(SinkError::Syslog)?;
        match timeout(END_TIMEOUT, end(&mut *stream)).await {
            Ok(ended) => ended.map_err(SinkError::Syslog),
            Err(_) => Err(SinkError::Syslog(io::Error::new(
                io::ErrorKind::TimedOut,
                "the server has not ended the connection, and may not have read all",
            ))),
        }
    }

    async fn write(&self, stream: &mut dyn OutboundStream, batch: &Batch) -> io::Result<()> {
        let mut frames = Frames { facility: self.facility, ..Frames::default() };
        for record in &batch.records {
            frames.push(RECORD_ID, &record.gateway, record.time, |text| ndjson::push_line(text, record));
            if frames.ready.len() >= CHUNK {
                send(stream, &frames.ready).await?;
                frames.ready.clear();
            }
        }
        for checkpoint in &batch.checkpoints {
            let JournalCheckpoint { gateway, time, .. } = checkpoint;
            frames.push(CHECKPOINT_ID, gateway, *time, |text| ndjson::push_checkpoint(text, checkpoint));
        }
        send(stream, &frames.ready).await
    }
}

/// Sends messages, of which the server must take some within [`SEND_TIMEOUT`] each time.
async fn send(stream: &mut dyn OutboundStream, mut messages: &[u8]) -> io::Result<()> {
    while !messages.is_empty() {
        match timeout(SEND_TIMEOUT, stream.write(messages)).await?? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            sent => messages = &messages[sent..],
        }
    }
    Ok(())
}

/// Ends the stream, and waits for the server to end it, too: it has read all then.
///
/// # Errors
/// The server has not ended the stream in good order.
async fn end(stream: &mut dyn OutboundStream) -> io::Result<()> {
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

/// Messages that are ready to be written.
#[derive(Default)]
struct Frames {
    facility: u8,
    ready: Vec<u8>,
    scratch: Vec<u8>,
    text: Vec<u8>,
    /// Writer for messages of this kind and gateway: those of a batch are nearly all alike.
    writer: Option<(&'static str, String, MessageWriter)>,
}

impl Frames {
    /// Appends a message, whose text `push_line` writes with a line feed.
    fn push(&mut self, kind: &'static str, gateway: &str, time: Micros, push_line: impl FnOnce(&mut Vec<u8>)) {
        self.text.clear();
        push_line(&mut self.text);
        self.text.pop();
        let known = self.writer.take().filter(|known| (known.0, &*known.1) == (kind, gateway));
        let new = || (kind, gateway.to_owned(), MessageWriter::new(self.facility, gateway, kind));
        let (_, _, messages) = self.writer.insert(known.unwrap_or_else(new));
        messages.write(&mut self.ready, &mut self.scratch, time, &self.text);
    }
}
