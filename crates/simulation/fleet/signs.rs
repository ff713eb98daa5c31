//! Signs of life of the shards: heartbeats of each gateway to each shard, by which the scripts know an absence.

use std::rc::Rc;

use state::redis::{HashSlots, sign_argument};

use super::event::{Call, Event, Pending, Process};
use super::lua::Script;
use super::subjects::Subject;
use super::world::World;

/// Record of a shard's signs. Each shard has records of its own, so that the name needs no hash slot.
const RECORD: &[u8] = b"keygate:{alive}";
/// A hash slot beyond all: with the number of a shard, it is in what the shard has from the beginning.
const BEYOND: u16 = 16_384;

impl World {
    /// Sends the heartbeats of a connection.
    pub fn send_sign(&mut self, process: Process, shard: usize, connection: u32) {
        let now = self.now;
        let end = self.end;
        let Some(gateway) = self.live(process) else { return };
        if now > end || gateway.links[shard].connection != connection {
            return;
        }
        let arguments = vec![sign_argument(&self.product.settings)];
        let call = Call::Script { script: Script::SignOfLife, keys: vec![Rc::from(RECORD)], arguments };
        drop(self.send(process, shard, call, Pending::Sign));
        let pause = u64::try_from(self.product.settings.sign_interval().as_micros()).unwrap();
        self.queue.add(now + pause, Event::Sign(process, shard, connection));
    }

    /// Notes the reply to a heartbeat.
    pub fn note_sign(&self, process: Process, shard: usize, reply: &[u8]) {
        self.gateways[process.gateway].decisions.slots.note_sign(self.hash_slots_on(shard), reply);
    }

    /// The hash slots of organizations that a shard has.
    fn hash_slots_on(&self, shard: usize) -> HashSlots {
        let beyond = BEYOND + u16::try_from(shard).unwrap();
        let orgs = self.directory.orgs.iter().filter(|org| org.shard == shard).map(|org| org.hash_slot);
        orgs.chain([beyond]).map(|slot| slot..=slot).collect()
    }

    /// Hash slot of the records of a subject.
    pub fn hash_slot_of(&self, subject: Subject) -> u16 {
        self.directory.orgs[self.directory.org_of_subject(subject)].hash_slot
    }
}
