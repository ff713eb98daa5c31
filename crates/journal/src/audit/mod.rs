//! The audit journal: exactly one record per use of a key, also when the client disconnects; none is lost when the
//! process is killed.
//!
//! A journal is a directory of append-only segments `NNNNNNNNNN.jsonl` with one event per line: a *use* before its
//! request is forwarded, its *outcome* after the last byte, or one *record* for a use that ended where it began. A
//! segment begins with a *header* that lists the uses open at that point; the SHA-256 of a closed segment is written to
//! a later one as its *seal*.
//!
//! - **Durable before forwarding.** [`Journal::begin`] returns when the use is in the kernel (`written`) or on disk
//!   (`synced`).
//! - **Exactly one outcome.** An outcome is appended only while its use is open. Uses that a dead gateway left open are
//!   closed as `aborted` by the next [`Journal::open`]. A kill loses the outcomes of its last 10 ms at most, whose
//!   records are then `aborted`; it never loses a record.
//! - **Bounded refusals.** The first ten refusals of a key per second and outcome have records of their own; one more
//!   record has the exact count of the rest. A kill loses no count.
//! - **No thread hop.** When `written`, the thread of a request writes its line, together with those that others have
//!   appended meanwhile; requests that are ready in the same turn of its event loop share one write. When `synced`, a
//!   committer thread writes and syncs for all (group commit).
//! - **No gap.** Lines are numbered over all segments, and each has a checksum: [`Reader::verify`] detects lines that
//!   were torn, changed, removed or inserted.
//! - **Tamper-evident history.** With a signing key, the lines are the leaves of a Merkle tree, whose signed
//!   checkpoints show every later change of what they cover, also to those who do not trust the machine.
//! - **Full disk.** A partly written batch is cut off again. Its requests are refused or go unrecorded, as configured,
//!   and the next request tries again. Outcomes are kept in memory until there is room.
//! - **Failed sync** (fsync). It is never repeated, because the kernel may have dropped the pages. The journal
//!   takes no lines until a restart. Uses of requests that were refused for it may be in the file; the restart
//!   closes them as `aborted`.
//!
//! Text from requests is capped and escaped before it is written, so that a terminal may show it.

mod settings;
mod error;
mod format;
pub(crate) mod journal_id;
mod tree;
mod filter;
mod write;
mod index;
mod read;
mod view;

/// The parts of the journal that decide without I/O. The simulation of many gateways drives them on disks in virtual
/// time.
pub mod steps {
    pub use super::format::encode::UseLine;
    pub use super::format::event::{OpenUse, OutcomeEvent};
    pub use super::format::frame::Line;
    pub use super::read::record_join::{JoinedPart, RecordJoin};
    pub use super::write::batch_steps::{BatchAction, BatchSteps};
    pub use super::write::committer::{Look, MAX_OUTCOME_DELAY, RETRY_DELAY, Watch};
    pub use super::write::completion::{BatchCompletion, BatchResult};
    pub use super::write::mode::{Action as ModeAction, Event as ModeEvent, Mode};
    pub use super::write::pending::{Batch, PendingLines, SpareBuffers};
    pub use super::write::recovery::{RecoveredJournal, SegmentScan};
}

pub use error::{OpenError, Unavailable};
pub use filter::{ActionName, Filter, InvalidAction};
pub use format::escape::user_agent_text;
pub use format::prepared::PreparedFields;
pub use format::record::{ChangeUse, Outcome, Record, RecordKind, Settled, Use, UseEnd};
pub use format::stream_position::StreamPosition;
pub use index::usage_sums::UsageSums;
pub use read::activity::{ACTIVITY_HOURS, HourlyActivity, KeyActivity, LastUse};
pub use read::beginning::Beginning;
pub use read::check_proof::{InvalidProof, ProvenRecord};
pub use read::copies::{CheckpointCopies, InvalidCheckpoint};
pub use read::cursor::{InvalidJournalCursor, JournalCursor};
pub use read::follower::Follower;
pub use read::journal_checkpoint::JournalCheckpoint;
pub use read::metering::period::{BillingPeriod, PeriodSpan};
pub use read::metering::query::{SpentBy, UsageBy, UsageQuery};
pub use read::metering::report::UsageReport;
pub use read::metering::tally::{UsageRow, UsageSubject};
pub use read::prove::{LineProof, ProveError, RecordProof};
pub use read::range_usage::{BusyKey, OrgUsage, PeriodUsage, UsageRange, UsageSeries};
pub use read::reader::{Reader, RecordPage};
pub use read::replay::{Replay, ReplayEntry, ReplayStart, UsedBy};
pub use read::stop::{StopOnDrop, StopSignal};
pub use read::stream::{JournalEnd, RecordStream, StreamBatch};
pub use read::verify_report::{Defect, VerifyReport};
pub use read::verify_tree::TreeReport;
pub use settings::{Addresses, Checkpoints, Durability, LowWater, OnUnavailable, RefusalRecords, Settings, Witness};
pub use tlog::key::{GenerateError, InvalidKey, PublicKey, derive_public_key, generate_key};
pub use tlog::note::is_signed_by;
pub use tree::published::LatestCheckpoint;
pub use view::{
    AuditView, Fleet, GatewayFreshness, InvalidPlace, JournalWalk, MissingReason, MissingRecord, OpenFleetError,
    OwnOnlyReason, RecordPlace, ViewActivity, ViewCursor, ViewFollower, ViewPage, ViewScope, ViewStatus,
};
pub use write::journal::{AuditEntry, Journal};
pub use write::position::JournalPosition;
pub use write::signer::check_signing_key;
pub use write::tap::JournalTap;
