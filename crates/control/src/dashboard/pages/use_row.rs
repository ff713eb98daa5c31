//! A recorded use of a key.

use super::outcome::OutcomeText;
use super::timestamp::Timestamp;

/// A use of the key.
#[derive(Clone, Debug)]
pub struct UseRow {
    /// Time.
    pub time: Timestamp,
    /// Name of the route, or method and path.
    pub action: String,
    /// Status of the response; `None` when there was none, or not yet.
    pub status: Option<u16>,
    /// Outcome.
    pub outcome: &'static OutcomeText,
    /// The client's IP address.
    pub ip: String,
    /// The client's user agent; `None` when none was sent.
    pub user_agent: Option<String>,
    /// Number of uses that the record stands for: more than one in a record of several refusals.
    pub count: u64,
}
