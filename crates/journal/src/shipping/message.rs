//! Message of a batch: what a sink takes, or refuses, at once.

use crate::audit::{JournalCheckpoint, Record};

/// Message of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Message<'a> {
    Records(&'a [Record]),
    Checkpoints(&'a [JournalCheckpoint]),
}

impl<'a> Message<'a> {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Records(records) => records.len(),
            Self::Checkpoints(checkpoints) => checkpoints.len(),
        }
    }

    /// The records in it; none in a message of checkpoints.
    pub(super) fn records(self) -> &'a [Record] {
        match self {
            Self::Records(records) => records,
            Self::Checkpoints(_) => &[],
        }
    }

    pub(super) fn halves(self) -> (Self, Self) {
        match self {
            Self::Records(records) => {
                let (first, rest) = records.split_at(records.len() / 2);
                (Self::Records(first), Self::Records(rest))
            }
            Self::Checkpoints(checkpoints) => {
                let (first, rest) = checkpoints.split_at(checkpoints.len() / 2);
                (Self::Checkpoints(first), Self::Checkpoints(rest))
            }
        }
    }
}
