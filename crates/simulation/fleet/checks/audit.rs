//! Bound of the audit.
//!
//! docs/audit/shipping.md: "Every use has one row in the end", "At least once, in order for each gateway, exactly once
//! by id", "A record is at the sink about a second after its use", "When a sink is away, it is tried again after 0.25
//! s, then after twice as long, up to 15 s". Uses of a machine that is lost with its disk may be missing when they are
//! younger than that.
//!
//! `crates/journal/src/audit/mod.rs`: a kill loses no use, and the outcomes of its last 10 ms; the loss of power takes
//! the lines of the last second, and none of a use that was synced. A process that is killed within a second before has
//! left lines of a second more.

use journal::audit::{Durability, Outcome};
use rustc_hash::FxHashMap;

use super::Worst;
use crate::gateway::Gateway;
use crate::journal::TIMED_SYNC;
use crate::sinks::SinkKind;
use crate::trace::{NONE, Offender};
use crate::world::World;

/// Longest pause of a shipper.
const LONGEST_PAUSE: u64 = 15_000_000;
/// Until a use that stays open is delivered, the shipper looks, and the batch is committed: "about a second"; a
/// delivery whose answer was lost is made again after the first pause, which adds 0.375 s at most.
const LAG: u64 = 500_000 + 500_000 + 100_000 + 425_000 + 100_000;
/// Time until an outcome is written: it waits for others, and the look of the committer takes a moment.
const OUTCOME_WRITTEN: u64 = 11_000;
/// Time until an outcome is synced, when uses are: two syncs, of which one is under way.
const OUTCOME_SYNCED: u64 = OUTCOME_WRITTEN + 2 * 8_000;
/// Time after an outage of the disk until what was kept is written.
pub const WRITTEN_AFTER_OUTAGE: u64 = 120_000;

/// A use, as its gateway knows it.
#[derive(Clone, Copy, Debug)]
struct Fate {
    gateway: usize,
    begun: u64,
    /// The request was forwarded.
    is_acknowledged: bool,
    /// Time at which the gateway recorded the outcome.
    ended: Option<u64>,
    /// The end of the process may have taken the outcome.
    may_abort: bool,
    /// The loss of power may have taken the use.
    may_be_lost: bool,
    /// Its machine was lost with its disk: an outcome that was not delivered by then never is.
    is_orphan: bool,
}

#[derive(Default)]
pub struct AuditCheck {
    /// All uses that were appended.
    fates: FxHashMap<u64, Fate>,
    /// Uses that were lost with a machine before they were shipped.
    pub lost: FxHashMap<u64, usize>,
    /// Age of the oldest of them when the machine was lost.
    pub oldest: u64,
    /// Uses that the loss of power took.
    pub lost_with_power: u64,
    /// Uses that were lost when they were at the sink as in progress: they stay so.
    pub left_in_progress: u64,
    pub lag: Worst,
    pub pause: Worst,
}

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// It is killed; the kernel has what it wrote.
    Killed,
    /// The machine loses its power, and comes back with its disk.
    PowerLost,
    /// The machine is lost with its disk.
    MachineLost,
    /// It ends in order.
    Left,
}

impl AuditCheck {
    pub fn note_pause(&mut self, pause: u64) {
        self.pause.note(pause as f64 / LONGEST_PAUSE as f64, 0, || format!("{:.2} s", pause as f64 / 1e6));
    }

    pub fn note_appended(&mut self, id: u64, gateway: usize, begun: u64) {
        let fate = Fate {
            gateway,
            begun,
            is_acknowledged: false,
            ended: None,
            may_abort: false,
            may_be_lost: false,
            is_orphan: false,
        };
        self.fates.insert(id, fate);
    }

    pub fn note_acknowledged(&mut self, id: u64) {
        self.fates.entry(id).and_modify(|fate| fate.is_acknowledged = true);
    }

    pub fn note_ended(&mut self, id: u64, now: u64) {
        self.fates.entry(id).and_modify(|fate| fate.ended = Some(now));
    }

    /// A process ends: marks the uses and outcomes that it may take along.
    pub fn note_death(&mut self, gateway: &Gateway, death: Death, now: u64) {
        let (full_from, full_until) = gateway.disk.full;
        let is_synced = gateway.journal.durability == Durability::Synced;
        let (outcomes, after_outage) = match death {
            Death::PowerLost if !is_synced => (OUTCOME_WRITTEN + TIMED_SYNC, WRITTEN_AFTER_OUTAGE + TIMED_SYNC),
            Death::PowerLost => (OUTCOME_SYNCED, WRITTEN_AFTER_OUTAGE + OUTCOME_SYNCED),
            Death::Killed | Death::MachineLost => (OUTCOME_WRITTEN, WRITTEN_AFTER_OUTAGE),
            Death::Left => (0, WRITTEN_AFTER_OUTAGE),
        };
        // A process that has just begun has not synced what the one before it wrote.
        let unsynced = if now <= gateway.started + TIMED_SYNC { now.min(gateway.disk.ended) } else { now };
        let last = if death == Death::PowerLost { unsynced } else { now };
        let mut since = last.saturating_sub(outcomes) + u64::from(death == Death::Left);
        if now < full_until + after_outage {
            since = since.min(full_from.saturating_sub(OUTCOME_SYNCED));
        }
        // The disk may have been full once more since.
        if let Some((failed, (full_from, full_until))) = gateway.journal.failed {
            let is_after_outage = failed < full_until + WRITTEN_AFTER_OUTAGE + OUTCOME_SYNCED;
            let from = if is_after_outage { failed.min(full_from) } else { failed };
            since = since.min(from - OUTCOME_SYNCED);
        }
        for id in &gateway.disk.uses {
            let Some(fate) = self.fates.get_mut(id) else { continue };
            fate.may_abort |= fate.ended.is_some_and(|ended| ended >= since);
            fate.is_orphan |= death == Death::MachineLost;
            fate.may_be_lost |= death == Death::PowerLost && !is_synced && fate.begun + TIMED_SYNC >= unsynced;
        }
    }
}

impl World {
    /// A machine is lost: checks what its shipper had not delivered.
    pub fn check_lost_machine(&mut self, number: usize) {
        let now = self.now;
        let gateway = &self.gateways[number];
        // From when on the shipper could deliver: the process started, the sink was there, and the disk had space.
        let could = gateway.started.max(self.sinks.away_until).max(gateway.disk.full.1 + WRITTEN_AFTER_OUTAGE);
        let is_table = gateway.shipper.kind == SinkKind::Table;
        let mut missing = Vec::new();
        for id in &gateway.disk.uses {
            let fate = self.checks.audit.fates[id];
            if fate.is_acknowledged && !fate.may_be_lost && !self.sinks.rows.contains_key(id) {
                // The receiver takes no use that is open.
                missing.push((*id, if is_table { Some(fate.begun) } else { fate.ended }));
            }
        }
        for (id, time) in missing {
            self.checks.audit.lost.insert(id, number);
            let Some(time) = time else { continue };
            let age = now - time;
            // A use from before: the shipper may have been in its longest pause when the sink came back.
            let pause = if time < could + LONGEST_PAUSE { LONGEST_PAUSE } else { 0 };
            let allowed = (could.max(time) + pause + LAG).saturating_sub(time);
            let text =
                || format!("gateway {number}: a use {:.2} s old, of {:.2} s", age as f64 / 1e6, allowed as f64 / 1e6);
            self.checks.audit.lag.note(age as f64 / allowed as f64, now, text);
            self.checks.audit.oldest = self.checks.audit.oldest.max(age);
            if age > allowed && could <= now {
                self.break_bound("audit", text(), Offender { gateway: number, key: NONE, org: NONE, shard: NONE });
            }
        }
    }

    /// Checks that each forwarded use has one row that has ended, with the outcome that the gateway recorded, but those
    /// that were lost; and that there is no other row.
    pub fn check_audit_at_end(&mut self) {
        let mut ids: Vec<u64> = self.checks.audit.fates.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let fate = self.checks.audit.fates[&id];
            let row = self.sinks.rows.get(&id).copied();
            let audit = &mut self.checks.audit;
            let is_lost = audit.lost.contains_key(&id);
            match row {
                // A batch that was on its way when its machine was lost may have arrived.
                Some(_) if is_lost => drop(audit.lost.remove(&id)),
                Some(Outcome::InProgress) if fate.may_be_lost || fate.is_orphan => audit.left_in_progress += 1,
                None if fate.may_be_lost => audit.lost_with_power += 1,
                None if is_lost || !fate.is_acknowledged => {}
                Some(Outcome::Completed) => {}
                Some(Outcome::Aborted) if fate.ended.is_none() || fate.may_abort || fate.may_be_lost => {}
                row => {
                    let found = row.map_or("no row".to_owned(), |outcome| format!("the outcome {}", outcome.name()));
                    let text = format!("gateway {}: use {id} has {found}, of {fate:?}", fate.gateway);
                    let offender = Offender { gateway: fate.gateway, key: NONE, org: NONE, shard: NONE };
                    return self.break_bound("audit", text, offender);
                }
            }
        }
        let unknown = self.sinks.rows.keys().find(|id| !self.checks.audit.fates.contains_key(id)).copied();
        if let Some(id) = unknown {
            let text = format!("there is a row of {id}, which is no use");
            self.break_bound("audit", text, Offender { gateway: NONE, key: NONE, org: NONE, shard: NONE });
        }
    }
}
