//! Identity of the state, by which lost data is noticed; and the confirmation before a key counts as unknown. The
//! product's own code judges a reading; the order of the readings follows `crates/state/src/redis/identity.rs`.

use std::ops::ControlFlow;

use domain::clock::Micros;
use state::StateIdentity;
use state::identity::{Continuity, Discontinuity, Reading};
use state::redis::{Listing, MISSED_FOR};

use crate::database::Write;
use crate::messages::{Answer, Call, Pending, text_of};
use crate::requests::Phase;
use crate::world::{World, instant};

/// Reading after that of the identity, of a request whose key may be unknown.
#[derive(Clone, Copy, Debug)]
pub enum Confirming {
    Org,
    List,
    /// Mark of a state that has listed organizations.
    Mark,
}

impl World {
    /// Reads the identity for a request.
    pub fn send_identity(&mut self, request: usize) {
        let Some(gateway) = self.request(request).map(|request| request.gateway) else { return };
        let reading = self.gateways[gateway].identity.begin_reading(self.gateways[gateway].seen_failovers());
        if self.send(gateway, Call::ReadIdentity, Pending::Identity(reading, request)).is_err() {
            match self.request(request).map(|request| request.phase) {
                Some(Phase::Verifying) => self.decide_verified(request),
                _ => self.refuse(request, "unavailable"),
            }
        }
    }

    /// Reads the identity, as each gateway does twice a second.
    pub fn watch_identity(&mut self, gateway: usize) {
        let reading = self.gateways[gateway].identity.begin_reading(self.gateways[gateway].seen_failovers());
        let Answer::Identity(found, is_missed) = self.read_identity() else { unreachable!("it is the identity") };
        self.complete_identity(gateway, None, reading, (found, is_missed));
    }

    pub fn read_identity(&self) -> Answer {
        let number = |record, field| self.server.field(record, field).map_or(0, |text| text_of(text).parse().unwrap());
        let is_missed = self.server.time(self.now) < number(&self.directory.missed, b"until");
        let changes = number(&self.directory.log, b"changes");
        let id = self.server.field(&self.directory.log, b"identity").map(|id| text_of(id).parse().unwrap());
        let identity = id.map(|id| StateIdentity { id, changes, changed: Micros(0), replaces: Vec::new() });
        Answer::Identity(identity, is_missed)
    }

    pub fn complete_identity(
        &mut self,
        gateway: usize,
        request: Option<usize>,
        reading: Reading,
        (found, is_missed): (Option<StateIdentity>, bool),
    ) {
        let guard = &self.gateways[gateway].identity;
        let Some(continuity) = guard.complete_reading(reading, found, is_missed, instant(self.now)) else {
            return request.into_iter().for_each(|request| self.send_identity(request));
        };
        if continuity == Continuity::Broken(Discontinuity::Absent) && guard.memory().is_some() {
            let lifetime = u64::try_from(MISSED_FOR.as_micros()).unwrap();
            let until = (self.server.time(self.now) + lifetime).to_string();
            let write = Write::set(&self.directory.missed, b"until", until.as_bytes());
            self.server.write(vec![write]);
        }
        let is_broken = self.gateways[gateway].identity.is_broken();
        let Some(request) = request else { return };
        match self.request(request).map(|request| request.phase) {
            Some(Phase::Verifying) => self.decide_verified(request),
            Some(Phase::Confirming) if is_broken => self.refuse(request, "state_lost"),
            Some(Phase::Confirming) => self.send_confirmation(request, Confirming::Org),
            _ => {}
        }
    }

    /// Decides a request, unless the state is known to be lost.
    pub fn decide_verified(&mut self, request: usize) {
        let Some(gateway) = self.request(request).map(|request| request.gateway) else { return };
        if self.gateways[gateway].identity.is_broken() && self.scene.reads_identity {
            return self.refuse(request, "state_lost");
        }
        self.decide(request);
    }

    /// Confirms that the key of a request is unknown.
    pub fn confirm_unknown(&mut self, request: usize) {
        if self.skips_confirmation() {
            return self.refuse(request, "unknown");
        }
        self.request(request).expect("it is there").phase = Phase::Confirming;
        self.send_identity(request);
    }

    fn send_confirmation(&mut self, request: usize, step: Confirming) {
        let Some(gateway) = self.request(request).map(|request| request.gateway) else { return };
        if self.send(gateway, Call::Confirm(step), Pending::Confirm(request, step)).is_err() {
            self.refuse(request, "unavailable");
        }
    }

    pub fn answer_confirmation(&self, step: Confirming) -> Answer {
        match step {
            Confirming::Org => Answer::Exists(self.server.fields(&self.directory.org_record).next().is_some()),
            Confirming::List => {
                let tags = self.server.fields(&self.directory.tags);
                Answer::Orgs(tags.map(|(_, tag)| text_of(tag).parse().unwrap()).collect())
            }
            Confirming::Mark => Answer::Exists(self.server.field(&self.directory.log, b"orgs").is_some()),
        }
    }

    pub fn complete_confirmation(&mut self, request: usize, step: Confirming, answer: Answer) {
        let Some(gateway) = self.request(request).map(|request| request.gateway) else { return };
        match (step, answer) {
            (Confirming::Org, Answer::Exists(true)) | (Confirming::Mark, Answer::Exists(false)) => {
                self.conclude_unknown(request);
            }
            (Confirming::Mark, Answer::Exists(true)) => self.refuse(request, "state_lost"),
            (Confirming::Org, _) => self.look_at_list(request),
            (_, Answer::Orgs(tags)) => {
                let end = (0, self.gateways[gateway].seen_failovers());
                self.gateways[gateway].listed.add(tags, end, instant(self.now));
                self.look_at_list(request);
            }
            _ => unreachable!("each reading has its reply"),
        }
    }

    fn look_at_list(&mut self, request: usize) {
        let Some(gateway) = self.request(request).map(|request| request.gateway) else { return };
        let (tag, now) = (self.directory.tag, instant(self.now));
        let gateway = &mut self.gateways[gateway];
        match gateway.listed.find(tag, gateway.seen_failovers(), now) {
            ControlFlow::Break(Listing::Listed) => self.refuse(request, "state_lost"),
            ControlFlow::Break(Listing::NotListed) => self.conclude_unknown(request),
            ControlFlow::Break(Listing::Empty) => self.send_confirmation(request, Confirming::Mark),
            ControlFlow::Continue(_) => self.send_confirmation(request, Confirming::List),
        }
    }

    /// The state has its data. What the decision found missing may have been restored since it was made.
    fn conclude_unknown(&mut self, request: usize) {
        let (gateway, failovers) = match self.request(request) {
            Some(request) => (request.gateway, request.failovers),
            None => return,
        };
        let is_changed = failovers != self.gateways[gateway].seen_failovers();
        self.refuse(request, if is_changed { "unavailable" } else { "unknown" });
    }
}
