//! Failures of sinks.

use std::io;
use std::time::Duration;

use platform::outbound::ServerError;
use platform::outbound::delivery::{self, PostError, Retry};
use platform::postgresql;

/// Failure of a sink.
#[derive(Debug, thiserror::Error)]
pub(super) enum SinkError {
    #[error(transparent)]
    Postgresql(#[from] postgresql::Error),
    #[error(
        "the database has taken records of this journal from another process meanwhile; reading its position again"
    )]
    Overtaken,
    #[error("the objects cannot be written")]
    Files(#[source] io::Error),
    #[error("there is no connection to the server")]
    Server(#[from] ServerError),
    #[error(transparent)]
    Post(#[from] PostError),
    #[error("the syslog server has not taken all messages")]
    Syslog(#[source] io::Error),
    #[error("the journal cannot be read")]
    Journal(#[source] io::Error),
    #[error("the position of the sink cannot be written")]
    Position(#[source] io::Error),
    #[error("the file of the records that the sink refuses cannot be written")]
    Rejected(#[source] io::Error),
    #[error("the sink refuses every record that it is sent")]
    AllRefused(#[source] Box<SinkError>),
    #[error("the sink took nothing within {} s", .0.as_secs())]
    TimedOut(Duration),
}

impl SinkError {
    /// True when the sink refuses the content of a message: the same would be refused again, and another may be taken.
    ///
    /// Of HTTP these are the statuses of class 4xx, but those that are about the connection, the time or the client.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Post(PostError::Status { status, .. }) => {
                status.is_client_error() && !matches!(status.as_u16(), 401 | 407 | 408 | 421 | 425 | 429)
            }
            Self::Postgresql(error) => error.is_of_content(),
            _ => false,
        }
    }

    /// When the sink may be tried again.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Post(error) => error.retry(),
            Self::AllRefused(refusal) => refusal.retry(),
            _ => Retry::Later,
        }
    }

    /// The whole chain of causes, in one line.
    pub(super) fn in_full(&self) -> String {
        delivery::in_full(self)
    }
}
