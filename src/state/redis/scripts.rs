//! The Lua scripts of the state, each preceded by the functions that it shares with others.

use super::client::Script;

/// All scripts.
pub(super) struct Scripts {
    /// One decision.
    pub(super) decide: Script,
    /// A report about the slot lease, outside of decisions.
    pub(super) hold: Script,
    /// An optimistic transaction on records of one hash slot.
    pub(super) commit: Script,
    /// The heartbeat of a gateway.
    pub(super) beat: Script,
    /// Redemption of a ticket.
    pub(super) take: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        const BUCKET: &str = include_str!("scripts/bucket.lua");
        const HOLDERS: &str = include_str!("scripts/holders.lua");
        Self {
            decide: Script::new(&[BUCKET, HOLDERS, include_str!("scripts/decide.lua")]),
            hold: Script::new(&[BUCKET, HOLDERS, include_str!("scripts/hold.lua")]),
            commit: Script::new(&[BUCKET, include_str!("scripts/commit.lua")]),
            beat: Script::new(&[BUCKET, include_str!("scripts/beat.lua")]),
            take: Script::new(&[include_str!("scripts/take.lua")]),
        }
    }
}
