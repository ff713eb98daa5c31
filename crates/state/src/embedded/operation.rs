//! An operation on the state file, as the writer thread gets it.

use tokio::sync::oneshot;

use crate::identity::StateIdentity;
use crate::import::Import;
use crate::plan::Planned;
use crate::{Change, ChangeError};
use domain::clock::Micros;
use domain::session::TokenDigest;

/// An operation, and where its answer goes.
pub(super) struct Request {
    pub(super) operation: Operation,
    /// Answered with the content of the ticket that was taken.
    pub(super) reply: oneshot::Sender<Reply>,
}

impl Request {
    /// The same request, whose change leaves no record.
    pub(super) fn without_record(self) -> Self {
        Self { operation: self.operation.without_record(), ..self }
    }
}

/// The answer: the content of a ticket that was taken.
pub(super) type Reply = Result<Option<Vec<u8>>, ChangeError>;

/// The effect of an operation that was written.
#[allow(clippy::large_enum_variant, reason = "nearly every one is a change; a box would only add an allocation")]
pub(super) enum Written {
    /// A change, as it was planned.
    Change(Planned),
    /// The content of the ticket that was taken, if there was one.
    Ticket(Option<Vec<u8>>),
    /// That of an import, or of an acceptance, is the operation's own.
    AsGiven,
}

/// An operation on the state file.
#[allow(clippy::large_enum_variant, reason = "nearly every one is a change; a box would only add an allocation")]
pub(super) enum Operation {
    Change(Change),
    /// Takes the ticket with this digest, at this time.
    TakeTicket(TokenDigest, Micros),
    /// Gives the state this identity.
    Accept(StateIdentity),
    /// Imports a record from another state.
    Import(Import),
}

impl Operation {
    /// Returns whether it accepts the state.
    pub(super) fn is_accept(&self) -> bool {
        matches!(self, Self::Accept(_))
    }

    /// Returns whether it counts as a change by management.
    pub(super) fn is_counted(&self) -> bool {
        match self {
            Self::Change(change) => change.as_made().is_counted(),
            Self::Import(_) => true,
            Self::TakeTicket(..) | Self::Accept(_) => false,
        }
    }

    pub(super) fn is_import(&self) -> bool {
        matches!(self, Self::Import(_))
    }

    /// True when it adds records, so that the file may grow.
    pub(super) fn adds(&self) -> bool {
        match self {
            Self::Change(change) => !change.withdraws(),
            Self::TakeTicket(..) | Self::Accept(_) => false,
            Self::Import(_) => true,
        }
    }

    /// True when it adds the record of a request.
    pub(super) fn has_record(&self) -> bool {
        matches!(self, Self::Change(change) if change.has_record())
    }

    /// Drops the record of its request.
    pub(super) fn without_record(self) -> Self {
        match self {
            Self::Change(change) => Self::Change(change.without_record()),
            operation => operation,
        }
    }
}

/// Copies an error: one failed commit is the answer to many operations.
pub(super) fn unavailable(error: &rusqlite::Error) -> ChangeError {
    let copy = match error {
        rusqlite::Error::SqliteFailure(code, message) => rusqlite::Error::SqliteFailure(*code, message.clone()),
        other => rusqlite::Error::ToSqlConversionFailure(other.to_string().into()),
    };
    ChangeError::Unavailable(copy.into())
}
