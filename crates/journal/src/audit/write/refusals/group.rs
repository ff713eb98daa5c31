//! The refusals of one key, with one outcome and within one second, that one record stands for.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::audit::format::event::UseEvent;
use crate::audit::format::record::{Use, UseEnd};
use domain::clock::Micros;

/// Addresses that the record names.
const NAMED_ADDRESSES: usize = 4;
/// Addresses that are told apart; a record with this number stands for this number or more. Far more than the clients
/// of one key, and few enough to keep a record of an attack from thousands of addresses small in memory.
const MAX_ADDRESSES: usize = 1000;

/// A group of refusals, and its slot in the slot file.
#[derive(Debug)]
pub(crate) struct RefusalGroup {
    /// The record: the first of the refusals, with the count of all.
    pub(crate) event: UseEvent<'static>,
    /// Addresses beyond those that the record names.
    others: HashSet<IpAddr>,
    pub(crate) slot: u32,
}

impl RefusalGroup {
    /// The group that begins with this refusal.
    pub(crate) fn new(opening: &Use<'_>, end: UseEnd, slot: u32) -> Self {
        let event = UseEvent::from_use_and_end(opening, end).into_owned();
        let mut group = Self::from_event(UseEvent { count: Some(0), addresses: Some(0), ..event }, slot);
        group.add(opening);
        group
    }

    /// The group that a killed gateway left in a slot.
    pub(crate) fn from_event(event: UseEvent<'static>, slot: u32) -> Self {
        Self { event, others: HashSet::new(), slot }
    }

    /// Adds a refusal.
    pub(crate) fn add(&mut self, opening: &Use<'_>) {
        let event = &mut self.event;
        event.count = Some(event.uses() + 1);
        // Requests that arrived one after the other may be refused in the opposite order.
        event.time = event.time.min(opening.time);
        event.last = event.last.max(Some(opening.time));
        if let Some(ip) = opening.ip {
            self.add_address(ip);
        }
    }

    /// Takes the last refusal back, which could not be counted on disk.
    pub(crate) fn take_back(&mut self) {
        debug_assert!(self.event.uses() > 0, "a refusal is taken back after it was added");
        self.event.count = Some(self.event.uses() - 1);
    }

    fn add_address(&mut self, ip: IpAddr) {
        let ips = &mut self.event.ips;
        let is_new = if ips.contains(&ip) {
            false
        } else if ips.len() < NAMED_ADDRESSES {
            ips.push(ip);
            true
        } else {
            self.others.len() + ips.len() < MAX_ADDRESSES && self.others.insert(ip)
        };
        self.event.addresses = Some(self.event.addresses.unwrap_or(0) + u64::from(is_new));
    }

    /// Gives back what only further refusals would need.
    pub(crate) fn complete(mut self: Box<Self>) -> Box<Self> {
        self.others = HashSet::new();
        self
    }

    /// Time of the first refusal.
    pub(crate) fn first(&self) -> Micros {
        self.event.time
    }
}

#[cfg(test)]
pub(super) mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::audit::format::record::Outcome;
    use domain::budget::Cost;
    use domain::identity::AuthMethod;
    use domain::refusal::Refusal;

    /// A refusal of a key at this time.
    pub(crate) fn refusal(time: u64) -> (Use<'static>, UseEnd) {
        let opening = Use {
            id: Uuid::now_v7(),
            time: Micros(time),
            number: None,
            key_id: Some("abcDEF123".parse().unwrap()),
            user_id: None,
            org_id: None,
            auth_method: AuthMethod::ApiKey,
            ip: Some(IpAddr::from([192, 0, 2, 1])),
            user_agent: None,
            action: "a",
            method: "GET",
            path: "/",
            provisional: false,
            cost: Cost::ONE,
            budget: None,
            trace_id: None,
        };
        let outcome = Outcome::Refused(Refusal::RateLimited);
        (opening, UseEnd { outcome, status: Some(429), duration_us: 1, request_bytes: 0, response_bytes: 9 })
    }

    #[test]
    fn addresses_are_counted_and_the_first_four_named() {
        let (opening, end) = refusal(1_000_000);
        let mut group = RefusalGroup::new(&opening, end, 0);
        for n in (0..2000_u16).chain(0..2000) {
            let [high, low] = n.to_be_bytes();
            group.add(&Use {
                ip: Some(IpAddr::from([10, 0, high, low])),
                time: Micros(1_000_000 + u64::from(n)),
                ..opening.clone()
            });
        }
        let event = &group.event;
        assert_eq!((event.uses(), event.addresses), (4001, Some(MAX_ADDRESSES as u64)));
        assert_eq!((event.time, event.last), (Micros(1_000_000), Some(Micros(1_001_999))));
        let named = ["192.0.2.1", "10.0.0.0", "10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(event.ips, named);
    }
}
