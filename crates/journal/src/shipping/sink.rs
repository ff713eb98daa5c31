//! Sinks: the places to which records go.
//!
//! A sink that fails is connected anew, with a pause that grows. Its futures may be dropped at any await: nothing has
//! happened then, or a batch was delivered and will be again.

use std::time::Duration;

use uuid::Uuid;

use super::batch::Batch;
use super::files::ObjectDirectory;
use super::otlp::LogCollector;
use super::postgresql::RecordTable;
use super::rejected_file::RejectedFile;
use super::settings::Destination;
use super::sink_error::SinkError;
use super::syslog::Syslog;
use super::webhook::Webhook;
use crate::audit::StreamPosition;
use platform::{postgresql, tls};

/// A sink.
#[derive(Debug)]
pub(super) enum Sink {
    Postgresql(Box<RecordTable>),
    Files(ObjectDirectory),
    Webhook(Box<Webhook>),
    Otlp(Box<LogCollector>),
    Syslog(Syslog),
}

/// Reason why a sink cannot be opened: a file that its connections need.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Of a database.
    #[error(transparent)]
    Postgresql(#[from] postgresql::Error),
    /// Of any other server.
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

impl Sink {
    /// Opens the files of a sink; makes no connection.
    pub(super) fn open(destination: &Destination) -> Result<Self, OpenError> {
        match destination {
            Destination::Postgresql(settings) => Ok(Self::Postgresql(Box::new(RecordTable::open(settings.clone())?))),
            Destination::Files(settings) => Ok(Self::Files(ObjectDirectory::new(settings.clone()))),
            Destination::Webhook(settings) => Ok(Self::Webhook(Box::new(Webhook::open(settings)?))),
            Destination::Otlp(settings) => Ok(Self::Otlp(Box::new(LogCollector::open(settings)?))),
            Destination::Syslog(settings) => Ok(Self::Syslog(Syslog::open(settings)?)),
        }
    }

    /// The place, for messages; without secrets.
    pub(super) fn target(&self) -> String {
        match self {
            Self::Postgresql(table) => table.server(),
            Self::Files(files) => files.target(),
            Self::Webhook(webhook) => webhook.target(),
            Self::Otlp(collector) => collector.target(),
            Self::Syslog(syslog) => syslog.target(),
        }
    }

    /// Returns whether uses that stay open are delivered as `in_progress`, and their outcome later.
    pub(super) fn takes_open_uses(&self) -> bool {
        match self {
            Self::Postgresql(_) => true,
            Self::Files(_) | Self::Webhook(_) | Self::Otlp(_) | Self::Syslog(_) => false,
        }
    }

    /// Time after which a batch without records is delivered, so that the sink knows how fresh it is; none: never.
    pub(super) fn heartbeat(&self) -> Option<Duration> {
        match self {
            Self::Postgresql(_) => Some(Duration::from_secs(5)),
            Self::Files(files) => Some(files.heartbeat()),
            Self::Webhook(_) | Self::Otlp(_) | Self::Syslog(_) => None,
        }
    }

    /// Connects, and returns the position that the sink itself keeps of a journal. `None` when the shipper keeps it.
    pub(super) async fn connect(&mut self, journal: Uuid, gateway: &str) -> Result<Option<StreamPosition>, SinkError> {
        match self {
            Self::Postgresql(table) => table.connect(journal, gateway).await.map(Some),
            Self::Files(files) => files.connect(journal, gateway).map_err(SinkError::Files),
            // They are connected to when there is something to send.
            Self::Webhook(_) | Self::Otlp(_) | Self::Syslog(_) => Ok(None),
        }
    }

    /// Delivers a batch, as a whole or not at all, but for the records that the sink refuses: these
    /// are in `rejected` then.
    pub(super) async fn deliver(&mut self, batch: &Batch, rejected: &mut RejectedFile) -> Result<(), SinkError> {
        match self {
            Self::Postgresql(table) => table.deliver(batch, rejected).await,
            Self::Files(files) => files.deliver(batch).map_err(SinkError::Files),
            Self::Webhook(webhook) => webhook.deliver(batch, rejected).await,
            Self::Otlp(collector) => collector.deliver(batch, rejected).await,
            Self::Syslog(syslog) => syslog.deliver(batch).await,
        }
    }

    /// Gives the connection up, after a failure or at the end.
    pub(super) fn disconnect(&mut self) {
        match self {
            Self::Postgresql(table) => table.disconnect(),
            Self::Files(files) => files.disconnect(),
            Self::Webhook(webhook) => webhook.disconnect(),
            Self::Otlp(collector) => collector.disconnect(),
            // A batch has a connection of its own.
            Self::Syslog(_) => {}
        }
    }
}
