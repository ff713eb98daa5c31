//! Bound of the audit.
//!
//! docs/audit/shipping.md: "Every use has one row in the end", "At least once, in order for each gateway, exactly once
//! by id", "A record is at the sink about a second after its use", "When a sink is away, it is tried again after 0.25
//! s, then after twice as long, up to 15 s". Uses of a machine that is lost with its disk may be missing when they are
//! younger than that.

use rustc_hash::FxHashMap;

use super::Worst;
use crate::journal::Line;
use crate::sinks::SinkKind;
use crate::trace::{NONE, Offender};
use crate::world::World;

/// Longest pause of a shipper.
const LONGEST_PAUSE: u64 = 15_000_000;
/// Until a use that stays open is delivered, the shipper looks, and the batch is committed: "about a second"; a
/// delivery whose answer was lost is made again after the first pause, which adds 0.375 s at most.
const LAG: u64 = 500_000 + 500_000 + 100_000 + 425_000 + 100_000;

#[derive(Default)]
pub struct AuditCheck {
    /// Uses that were lost with a machine before they were shipped.
    pub lost: FxHashMap<u64, usize>,
    /// Age of the oldest of them when the machine was lost.
    pub oldest: u64,
    pub lag: Worst,
    pub pause: Worst,
}

impl AuditCheck {
    pub fn note_pause(&mut self, pause: u64) {
        self.pause.note(pause as f64 / LONGEST_PAUSE as f64, 0, || format!("{:.2} s", pause as f64 / 1e6));
    }
}

impl World {
    /// A machine is lost: checks what its shipper had not delivered.
    pub fn check_lost_machine(&mut self, number: usize) {
        let now = self.now;
        let gateway = &self.gateways[number];
        // Times from which on the shipper could deliver the uses: the receiver takes none that is open.
        let mut lost: FxHashMap<u64, Option<u64>> = FxHashMap::default();
        for line in &gateway.journal.lines {
            match *line {
                Line::Use { id, .. } if self.sinks.rows.contains_key(&id) => {}
                Line::Use { id, time } => {
                    lost.insert(id, (gateway.shipper.kind == SinkKind::Table).then_some(time));
                }
                Line::Outcome { id, time } => {
                    lost.entry(id).and_modify(|from| *from = from.or(Some(time)));
                }
            }
        }
        let mut lost: Vec<(u64, Option<u64>)> = lost.into_iter().collect();
        lost.sort_unstable();
        // From when on the shipper could deliver: the process started, and the database was there.
        let could = gateway.started.max(self.sinks.away_until);
        for (id, time) in lost {
            self.checks.audit.lost.insert(id, number);
            let Some(time) = time else { continue };
            let age = now - time;
            // A use from before: the shipper may have been in its longest pause when the database came back.
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

    /// Checks that each forwarded use has one row that has ended, but those that were lost.
    pub fn check_audit_at_end(&mut self) {
        for number in 0..self.gateways.len() {
            for at in 0..self.gateways[number].journal.lines.len() {
                let Line::Use { id, .. } = self.gateways[number].journal.lines[at] else { continue };
                let row = self.sinks.rows.get(&id);
                let text = match row {
                    Some(true) => continue,
                    Some(false) => format!("gateway {number}: use {id} has no outcome"),
                    None => format!("gateway {number}: use {id} has no row"),
                };
                return self.break_bound(
                    "audit",
                    text,
                    Offender { gateway: number, key: NONE, org: NONE, shard: NONE },
                );
            }
        }
        // A batch that was on its way when its machine was lost may have arrived.
        let audit = &mut self.checks.audit;
        audit.lost.retain(|id, _| !self.sinks.rows.contains_key(id));
        let rows = self.sinks.rows.len() as u64;
        let lost = audit.lost.len() as u64;
        if rows + lost != self.counts.admitted {
            let text = format!("{rows} rows, {lost} lost, of {} uses", self.counts.admitted);
            self.break_bound("audit", text, Offender { gateway: NONE, key: NONE, org: NONE, shard: NONE });
        }
    }
}
