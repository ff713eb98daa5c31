//! Following of the audit while it grows.

use std::io;

use super::arrivals::Arrivals;
use super::status::ViewStatus;
use crate::audit::format::record::Record;
use crate::audit::read::follower::Follower;

/// Follower of a growing audit: of this gateway's journal, and of the records that the other gateways ship.
#[derive(Debug)]
pub struct ViewFollower {
    /// The journal; `None` where there is none.
    own: Option<Follower>,
    others: Option<Arrivals>,
    /// Records for the first poll.
    first: Vec<Record>,
}

impl ViewFollower {
    /// Follows this gateway's journal.
    pub(super) fn of_journal(own: Follower) -> Self {
        Self { own: Some(own), others: None, first: Vec::new() }
    }

    /// Follows the records of all gateways. The first poll returns the records `first` as well.
    pub(super) fn of_fleet(own: Option<Follower>, others: Arrivals, first: Vec<Record>) -> Self {
        Self { own, others: Some(others), first }
    }

    /// Returns the records completed since the last poll: those of this gateway in the order of their completion, then
    /// those that the others have shipped since.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn poll(&mut self) -> io::Result<Vec<Record>> {
        let mut records = std::mem::take(&mut self.first);
        if let Some(own) = &mut self.own {
            records.append(&mut own.poll()?);
        }
        if let Some(others) = &mut self.others {
            others.poll(&mut records);
        }
        Ok(records)
    }

    /// Scope and freshness of the last poll; `None` when only this gateway's journal is read.
    pub fn status(&self) -> Option<&ViewStatus> {
        self.others.as_ref().map(Arrivals::status)
    }
}
