//! Slots of gateways that have died.
//!
//! docs/redis.md: "Slots of a gateway that died are free a lease later. While the server was away, no gateway could
//! report: then every lease begins anew." So the lease of a dead gateway does not begin anew where the server was there
//! all the time, however quiet its organization or key was.
//!
//! A gateway that has not reached the server for a while cannot know: it may take that for an absence.

use crate::event::{Call, Command};
use crate::lua::Script;
use crate::shard::number_at;
use crate::subjects::Subject;
use crate::trace::{NONE, Offender};
use crate::world::World;

/// Gateways up to which each script is checked: all entries of a record are read before and behind it.
const MOST_GATEWAYS: usize = 50;
/// Length of a lease without a mark.
const UNMARKED: usize = 32;
/// Time in which gateways connect to a server that is there again, and hear of it.
const RECONNECTED_WITHIN: u64 = 3_000_000;

/// Slots of a subject before a script: leases of dead gateways that have begun anew, and the last sign of life in its
/// record.
pub struct Before {
    subject: Subject,
    marks: usize,
    alive: u64,
}

impl World {
    /// Looks at the slots that a script is about.
    pub fn before_script(&self, command: &Command) -> Vec<Before> {
        let is_counting = matches!(command.call, Call::Script { script: Script::Decide | Script::SlotReport, .. });
        if !is_counting || self.gateways.len() > MOST_GATEWAYS {
            return Vec::new();
        }
        let subjects = command.pending.as_ref().map(|pending| self.subjects_of_pending(pending)).unwrap_or_default();
        let before = |subject| {
            let shard = &self.shards[command.shard];
            let live = shard.field(self.directory.slot_record(subject), b"live")?;
            let ago = shard.clock(self.now).saturating_sub(number_at(live, 3) as u64);
            let alive = self.now.saturating_sub(ago);
            Some(Before { subject, marks: self.marks_of_the_dead(command.shard, subject), alive })
        };
        subjects.into_iter().filter_map(before).collect()
    }

    /// Leases of dead gateways in the record of a subject, each as often as it has begun anew.
    fn marks_of_the_dead(&self, shard: usize, subject: Subject) -> usize {
        let fields = self.shards[shard].fields(self.directory.slot_record(subject));
        let leases = fields.filter(|(name, entry)| name.starts_with(b"h:") && entry.len() > UNMARKED);
        let is_dead = |name: &[u8]| !self.gateways.iter().any(|gateway| gateway.is_up && gateway.id == name);
        leases.filter(|(name, _)| is_dead(name)).map(|(_, entry)| entry.len() - UNMARKED).sum()
    }

    /// Checks that no lease of a dead gateway has begun anew without an absence of the server.
    pub fn check_absences(&mut self, command: &Command, before: Vec<Before>) {
        let (number, process) = (command.shard, command.process);
        let gateway = &self.gateways[process.gateway];
        let troubles = [gateway.started, gateway.cut_until[number], gateway.links[number].troubled];
        let knows = self.is_live(process) && troubles.iter().all(|trouble| trouble + RECONNECTED_WITHIN < self.now);
        for Before { subject, marks, alive } in before {
            let was_there = self.shards[number].troubled_until + RECONNECTED_WITHIN < alive;
            if knows && was_there && self.marks_of_the_dead(number, subject) > marks {
                let ago = self.now - alive;
                let text = format!("{subject:?}: the lease of a dead gateway begins anew, quiet for {ago} us");
                let offender = Offender { gateway: process.gateway, key: NONE, org: NONE, shard: number };
                self.break_bound("slots of the dead", text, offender);
            }
        }
    }
}
