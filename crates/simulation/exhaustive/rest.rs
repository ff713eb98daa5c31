//! A world that comes to rest: nothing more is lost, all exchanges end, and time passes. Then every request has its
//! answer, and all slots are back.

use crate::directory::{Credential, LEASE};
use crate::gateway::GATEWAYS;
use crate::requests::Phase;
use crate::scenes::Invariant;
use crate::world::World;

impl World {
    pub fn come_to_rest(&mut self) {
        if self.server.is_lost() {
            self.server.restore();
        }
        // Leases that began anew twice end within three.
        for _ in 0..(3 * LEASE / REST + 2) {
            self.pass(REST);
            for number in 0..self.requests.len() {
                if self.requests[number].as_ref().is_some_and(|request| request.phase == Phase::Open) {
                    self.end_request(number, None);
                }
            }
        }
        if self.requests.iter().any(Option::is_some) {
            let text = "a request has no answer, although nothing is lost any more".to_owned();
            return self.oracle.break_invariant(Invariant::Answers, text);
        }
        let slots = if self.changes.is_empty() { self.scene.slots } else { 1 };
        let limit = slots.min(self.scene.key_slots.unwrap_or(u32::MAX)).min(self.scene.tokens);
        for number in 0..limit.min(3) as usize {
            self.rest_refusal = None;
            self.begin_request(number % GATEWAYS, Credential::Key);
            (0..GATEWAYS).for_each(|gateway| self.deliver_all(gateway));
            if let Some(why) = self.rest_refusal.filter(|why| matches!(*why, "too_many_in_flight" | "rate_limited")) {
                let text = format!("at rest, request {} of {limit} is refused: {why}", number + 1);
                self.oracle.break_invariant(Invariant::Slots, text);
            }
        }
        if self.requests.iter().flatten().any(|request| request.phase != Phase::Open) {
            self.oracle.break_invariant(Invariant::Answers, "at rest, a request has no answer".to_owned());
        }
    }
}

/// A pause in which a gateway does its background work: less than half a lease.
const REST: u64 = 4_000_000;
