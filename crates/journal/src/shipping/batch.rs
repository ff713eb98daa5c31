//! Batch of records, which a sink takes as a whole or not at all.

use std::time::Duration;

use uuid::Uuid;

use crate::audit::{JournalCheckpoint, Record, StreamPosition};
use domain::clock::Micros;

/// Time for which a use is open before it is delivered as in progress. Most end earlier, and are delivered once.
pub const OPEN_AFTER: Duration = Duration::from_millis(500);

/// Records and checkpoints of a part of a journal, each in its order.
#[derive(Debug)]
pub(super) struct Batch {
    /// The journal.
    pub(super) journal: Uuid,
    /// The gateway that writes the journal now. A record names the gateway that wrote it.
    pub(super) gateway: String,
    /// The records; none when time has passed without any, or the part has none.
    pub(super) records: Vec<Record>,
    /// The checkpoints in the part; none without a signing key.
    pub(super) checkpoints: Vec<JournalCheckpoint>,
    /// The end of the part before.
    pub(super) from: StreamPosition,
    /// The end of this part.
    pub(super) to: StreamPosition,
    /// Time up to which the journal's records are complete at the sink, with this batch.
    pub(super) complete_until: Micros,
}
