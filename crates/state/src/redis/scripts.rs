//! The Lua scripts of the state, each preceded by the functions that it shares with others.

use redis_client::Script;

/// All scripts.
pub struct Scripts {
    /// One decision.
    pub(super) decide: Script,
    /// A report about the slot lease, outside of decisions.
    pub(super) slot_report: Script,
    /// An optimistic transaction on records of one hash slot.
    pub(super) commit: Script,
    /// The same transaction, where it withdraws something: it runs also when the server's memory is full.
    pub(super) withdraw: Script,
    /// Writes final refusals again.
    pub(super) assert_revocations: Script,
    /// The heartbeat of a gateway.
    pub(super) heartbeat: Script,
    /// The secret of cursors: stored where there is none, and returned.
    pub(super) keep_secret: Script,
    /// The heartbeat of a gateway to a server.
    pub(super) sign_of_life: Script,
    /// A page of keys.
    pub(super) key_page: Script,
    /// Redemption of a ticket.
    pub(super) take_ticket: Script,
    /// Correction of what the subject of a budget has spent.
    pub(super) spending: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        Self::new()
    }
}

impl Scripts {
    /// All scripts.
    pub fn new() -> Self {
        const BUCKET: &str = include_str!("scripts/bucket.lua");
        const SLOT_LEASES: &str = include_str!("scripts/slot_leases.lua");
        const COMMIT: &str = include_str!("scripts/commit.lua");
        Self {
            decide: Script::new(&[BUCKET, SLOT_LEASES, include_str!("scripts/decide.lua")]),
            slot_report: Script::new(&[BUCKET, SLOT_LEASES, include_str!("scripts/slot_report.lua")]),
            commit: Script::new(&[BUCKET, COMMIT]),
            withdraw: Script::allowing_oom(&[BUCKET, COMMIT]),
            assert_revocations: Script::allowing_oom(&[include_str!("scripts/assert_revocations.lua")]),
            heartbeat: Script::new(&[BUCKET, include_str!("scripts/heartbeat.lua")]),
            // Lists are read while the memory is full, too: to find what to withdraw.
            keep_secret: Script::allowing_oom(&[
                "redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])",
            ]),
            // It only reads; without leave the server refuses it all the same.
            key_page: Script::allowing_oom(&[include_str!("scripts/key_page.lua")]),
            sign_of_life: Script::new(&[BUCKET, include_str!("scripts/sign_of_life.lua")]),
            take_ticket: Script::new(&[include_str!("scripts/take_ticket.lua")]),
            spending: Script::new(&[BUCKET, include_str!("scripts/spending.lua")]),
        }
    }
}
