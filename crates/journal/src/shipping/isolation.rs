//! Isolation of what a sink refuses: a message that is refused is halved until the refused record is alone.
//!
//! ```text
//! 1000: refused -> 500: taken, 500: refused -> 250: taken, … 1: refused -> another: taken   -> 1: refused: set aside
//!                                                                       -> another: refused -> nothing: try later
//! ```
//!
//! - A record is set aside only when it is refused before and after the sink has taken another one. That is the last
//!   record that it has taken, which comes again and changes nothing, or one of the batch.
//! - A sink that refuses everything, as with a wrong token, costs some twenty messages for each try, and
//!   nothing is set aside.
//! - A record that is alone in the journal, at a sink that has taken nothing since the start, waits
//!   for the next record.

use std::slice;

use super::message::Message;
use super::rejected_file::RejectedFile;
use super::sink_error::SinkError;
use crate::audit::Record;

/// Records of a batch by which it is tried whether the sink takes anything, when none of before is known.
const PROBES: usize = 8;

/// Knowledge about a sink, by which a refusal of one record is told from a refusal of all.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    /// The last record that the sink has taken.
    known: Option<Record>,
    /// Number of times that others were looked for: the next time, other ones are.
    turn: usize,
}

/// A part of a message, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentPart<'a> {
    pub(super) part: Message<'a>,
    pub(super) is_rejected: bool,
}

impl Isolation {
    /// Notes a record that the sink has taken.
    pub(super) fn note_taken(&mut self, record: Option<&Record>) {
        if let Some(record) = record {
            self.known = Some(record.clone());
        }
    }

    /// Forgets a record that is not to be sent again.
    pub(super) fn keep_known_if(&mut self, keep: impl FnOnce(&Record) -> bool) {
        self.known = self.known.take().filter(|known| keep(known));
    }

    /// Sends a message of a batch, in parts when it is refused; sets aside what is refused alone. `note` gets each part
    /// when it was taken or set aside, in their order.
    ///
    /// # Errors
    /// A failure of the sink, and [`SinkError::AllRefused`] when it takes nothing else either.
    pub(super) async fn send<'a>(
        &mut self,
        message: Message<'a>,
        batch: &[Record],
        rejected: &mut RejectedFile,
        mut deliver: impl AsyncFnMut(Message<'_>) -> Result<(), SinkError>,
        mut note: impl FnMut(SentPart<'a>),
    ) -> Result<(), SinkError> {
        let mut parts = vec![message];
        while let Some(part) = parts.pop() {
            let refusal = match deliver(part).await {
                Ok(()) => None,
                Err(refusal) if refusal.is_refusal() => Some(refusal),
                Err(failure) => return Err(failure),
            };
            let refusal = match refusal {
                Some(_) if part.len() > 1 => {
                    let (first, rest) = part.halves();
                    parts.extend([rest, first]);
                    continue;
                }
                Some(refusal) => self.confirm(part, refusal, batch, &mut deliver).await?,
                None => None,
            };
            match &refusal {
                Some(refusal) => rejected.add(part, refusal)?,
                None => self.note_taken(part.records().last()),
            }
            note(SentPart { part, is_rejected: refusal.is_some() });
        }
        Ok(())
    }

    /// Returns the refusal of what was refused alone, if it is refused again after another record was taken; none
    /// when it is taken then.
    async fn confirm(
        &mut self,
        alone: Message<'_>,
        refusal: SinkError,
        batch: &[Record],
        mut deliver: impl AsyncFnMut(Message<'_>) -> Result<(), SinkError>,
    ) -> Result<Option<SinkError>, SinkError> {
        for probe in self.probes(alone, batch) {
            match deliver(Message::Records(slice::from_ref(&probe))).await {
                Ok(()) => {
                    self.known = Some(probe);
                    return match deliver(alone).await {
                        Ok(()) => Ok(None),
                        Err(refusal) if refusal.is_refusal() => Ok(Some(refusal)),
                        Err(failure) => Err(failure),
                    };
                }
                Err(refusal) if refusal.is_refusal() => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(SinkError::AllRefused(Box::new(refusal)))
    }

    /// Records other than the one that was refused alone: the one that is known to be taken, and some of the batch.
    fn probes(&mut self, alone: Message<'_>, batch: &[Record]) -> Vec<Record> {
        let is_other = |record: &&Record| alone.records().iter().all(|refused| refused.id != record.id);
        let step = batch.len().div_ceil(PROBES).max(1);
        let spread = batch.iter().skip(self.turn % step).step_by(step);
        self.turn += 1;
        self.known.iter().chain(spread).filter(is_other).cloned().collect()
    }
}
