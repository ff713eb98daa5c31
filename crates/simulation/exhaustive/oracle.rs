//! The invariants, each a sentence of `docs/contract.md`, and what they need to know of the history.
//!
//! The oracle never asks the product: it counts by itself what was admitted, ended, acknowledged and lost.

use std::collections::BTreeMap;

use state::redis::{SlotReportReply, SlotSubject};

use crate::directory::{Credential, LEASE, Withdrawal};
use crate::gateway::GATEWAYS;
use crate::lua::{Reply, Script};
use crate::messages::{Answer, Call, Message, Pending};
use crate::requests::{Phase, name};
use crate::scenes::Invariant;
use crate::server::{Group, number_at};
use crate::world::World;

/// Codes of `decide.lua`.
const ADMITTED: f64 = 0.0;
const TOO_MANY: [f64; 2] = [8.0, 16.0];

/// Facts that a request found when it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Began {
    /// Losses of writes before it, and withdrawals that held then, at each gateway.
    losses: u32,
    withdrawn: [bool; GATEWAYS],
    /// The organization had one slot.
    is_narrowed: bool,
}

impl Began {
    pub fn text(self, place: impl Fn(usize) -> usize) -> String {
        let mut withdrawn = self.withdrawn;
        (0..GATEWAYS).for_each(|gateway| withdrawn[place(gateway)] = self.withdrawn[gateway]);
        format!("{} {withdrawn:?} {}", self.losses, self.is_narrowed)
    }
}

/// A withdrawal of which the history has something to remember.
#[derive(Clone, Copy, Debug, Default)]
struct Withdrawn {
    is_acknowledged: bool,
    /// A failover has undone it, and no gateway had to write it again yet.
    is_undone: bool,
    /// Gateways that know it.
    known: [bool; GATEWAYS],
    /// Number of its entry in the log.
    entry: Option<u64>,
}

/// Units of one period.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    ended: u64,
    open: u64,
    /// By how much responses exceeded their reservations.
    exceeded: u64,
    forgotten: u64,
}

#[derive(Debug, Default)]
pub struct Oracle {
    pub violation: Option<(Invariant, String)>,
    /// Units by which a window that ends at a time of the server exceeds its inflow.
    excess: u64,
    excess_at: u64,
    stepped: u64,
    /// Uses: those that the script admitted, those that were admitted without it, those that were both, and those that
    /// were lost with a primary or a process.
    executed: u64,
    local: u64,
    both: u64,
    lost: u64,
    /// The most slots that the primary could not know.
    most_unknown: u32,
    /// Gateways that have not registered their slots since a failover.
    unsynced: [bool; GATEWAYS],
    /// Processes that held slots when they died.
    deaths: Vec<(Vec<u8>, u64)>,
    pub hangs: u32,
    losses: u32,
    withdrawn: BTreeMap<Withdrawal, Withdrawn>,
    /// Number of the last entry of the log when each process began to read it.
    places: [Option<u64>; GATEWAYS],
    tallies: BTreeMap<u64, Tally>,
}

impl Oracle {
    pub fn break_invariant(&mut self, invariant: Invariant, text: String) {
        self.violation.get_or_insert((invariant, text));
    }

    pub fn note_step(&mut self, forward: u64) {
        self.stepped += forward;
        self.hangs += 1;
    }

    pub fn begin(&self) -> Began {
        let holds = |gateway: usize, one: &Withdrawal, state: &Withdrawn| {
            // One that can be taken back is not kept: it holds again once it is written again.
            let is_obeyed = state.known[gateway] && *one != Withdrawal::Disabling;
            state.is_acknowledged && (!state.is_undone || is_obeyed)
        };
        let withdrawn = [0, 1].map(|gateway| self.withdrawn.iter().any(|(one, state)| holds(gateway, one, state)));
        let narrowed = self.withdrawn.get(&Withdrawal::Narrowing);
        let is_narrowed = narrowed.is_some_and(|state| state.is_acknowledged && !state.is_undone);
        Began { losses: self.losses, withdrawn, is_narrowed }
    }

    /// All that its future depends on, with the gateways in this order.
    pub fn text(&self, order: [usize; GATEWAYS]) -> String {
        let Self { excess, excess_at, stepped, executed, local, both, lost, most_unknown, .. } = self;
        let tokens = (excess, excess_at, stepped, executed, local, both, lost);
        let unsynced = order.map(|gateway| self.unsynced[gateway]);
        let places = order.map(|gateway| self.places[gateway]);
        let ordered = |one: &Withdrawn| Withdrawn { known: order.map(|gateway| one.known[gateway]), ..*one };
        let withdrawn: Vec<_> = self.withdrawn.iter().map(|(one, state)| (one, ordered(state))).collect();
        let mut deaths: Vec<_> = self.deaths.iter().map(|(_, died)| died).collect();
        deaths.sort_unstable();
        let numbers = (most_unknown, unsynced, self.hangs, self.losses, places, deaths);
        let is_broken = self.violation.is_some();
        format!("{is_broken} {tokens:?} {numbers:?} {withdrawn:?} {:?}", self.tallies)
    }

    /// An exchange has ended that reserved these units and cost those.
    pub fn settle(&mut self, start: u64, reserved: u64, actual: u64) {
        let tally = self.tallies.entry(start).or_default();
        tally.open -= reserved;
        tally.ended += actual;
        tally.exceeded += actual.saturating_sub(reserved);
    }

    /// All data is lost: a copy of it may come back.
    pub fn note_loss(&mut self) {
        (self.losses, self.hangs, self.unsynced) = (self.losses + 1, self.hangs + 1, [true; GATEWAYS]);
    }

    pub fn note_resync(&mut self, gateway: usize, subject: SlotSubject, reply: SlotReportReply) {
        let is_done = matches!(reply, SlotReportReply::Done(_) | SlotReportReply::Deleted);
        if is_done && matches!(subject, SlotSubject::Org(_)) {
            self.unsynced[gateway] = false;
        }
    }
}

impl World {
    fn break_invariant(&mut self, invariant: Invariant, text: String) {
        if self.oracle.violation.is_none() {
            self.tell(|| format!("BROKEN: {text}"));
        }
        self.oracle.break_invariant(invariant, text);
    }

    /// Requests in flight at a gateway, or at all.
    fn open(&self, gateway: Option<usize>) -> u32 {
        let is_open = |request: &&crate::requests::Request| {
            request.phase == Phase::Open && gateway.is_none_or(|gateway| gateway == request.gateway)
        };
        self.requests.iter().flatten().filter(is_open).count() as u32
    }

    /// Replies on their way to a gateway that admit a request.
    fn admitted_in_flight(&self, gateway: usize) -> u32 {
        let admits = |message: &&Message| {
            let is_admitted = match &message.answer {
                Some(Answer::Script(Reply::Packed(packed))) => number_at(packed, 0) == ADMITTED,
                _ => false,
            };
            message.gateway == gateway && is_admitted && matches!(message.pending, Some(Pending::Decide(_)))
        };
        self.messages.iter().flatten().filter(admits).count() as u32
    }

    /// Slots that are held and that the primary cannot know.
    fn unknown_slots(&self) -> u32 {
        let of_gateway = |gateway: usize| {
            let entry = self.server.field(&self.directory.org_record, &self.gateways[gateway].id);
            let held = self.open(Some(gateway)) + self.admitted_in_flight(gateway);
            let missing = held.saturating_sub(entry.map_or(0, |entry| number_at(entry, 0) as u32));
            let is_provisional = |request: &&crate::requests::Request| {
                request.gateway == gateway && request.is_provisional && request.phase == Phase::Open
            };
            let provisional = self.requests.iter().flatten().filter(is_provisional).count() as u32;
            if self.oracle.unsynced[gateway] || !self.is_linked(gateway) { missing } else { missing.min(provisional) }
        };
        (0..GATEWAYS).map(of_gateway).sum()
    }

    /// Units that the counter of the budget has spent, and the start of their period.
    pub fn spent(&self) -> Option<(u64, u64)> {
        let field = self.server.field(&self.directory.key_record, b"spent")?;
        Some((number_at(field, 0) as u64, number_at(field, 1) as u64))
    }

    /// Slots that the primary cannot know, before a script runs.
    pub fn before_script(&self, message: &Message) -> u32 {
        if matches!(message.pending, Some(Pending::Decide(_))) { self.unknown_slots() } else { 0 }
    }

    /// A script has run.
    pub fn check_script(&mut self, message: &Message, reply: &Reply, unknown: u32) {
        let (Call::Script(Script::Decide, ..), Reply::Packed(packed)) = (&message.call, reply) else { return };
        let code = number_at(packed, 0);
        if code == ADMITTED && packed.len() >= 40 {
            self.oracle.executed += 1;
            self.note_token();
            if let Some(Pending::Decide(pending)) = message.pending.as_ref().filter(|pending| !pending.is_late()) {
                let request = self.requests[pending.request].as_ref();
                let began = request.map_or(Began::default(), |request| request.began);
                self.check_slots(self.open(None) + 1, unknown, began);
            }
        }
        if TOO_MANY.contains(&code) {
            self.check_dead_slots();
        }
    }

    /// "A token bucket admits requests of at most `burst + rate * T` tokens in any window of length `T`."
    fn note_token(&mut self) {
        let quota = self.directory.quota;
        let time = self.now + self.oracle.stepped;
        let inflow = (time - self.oracle.excess_at) * u64::from(quota.inflow());
        let cost = u64::from(self.scene.cost.tokens()) * quota.per_micros();
        self.oracle.excess = self.oracle.excess.saturating_sub(inflow) + cost;
        self.oracle.excess_at = time;
        let burst = state::bucket::capacity(quota);
        if self.oracle.excess > burst + self.excess_allowed() {
            let tokens = self.oracle.excess as f64 / quota.per_micros() as f64;
            self.break_invariant(
                Invariant::Tokens,
                format!("{tokens} tokens beyond the inflow, burst {}", quota.burst),
            );
        }
    }

    /// Units beyond the bound: of uses that are not reported, and of those that the bucket repays below zero.
    fn excess_allowed(&self) -> u64 {
        if !self.scene.is_offline {
            return 0;
        }
        let live = self.server.field(&self.directory.key_record, b"live");
        let level = live.map_or(0.0, |live| number_at(live, 1));
        let per = self.directory.quota.per_micros();
        (self.unreported() + self.oracle.lost) * per + (-level).max(0.0) as u64
    }

    /// Uses that were admitted without the server, and that it has not counted: those whose reply is awaited as well.
    fn unreported(&self) -> u64 {
        let pending = |gateway: usize| {
            let cached = self.gateways[gateway].decisions.cached(&self.directory.digest);
            cached.and_then(|cached| cached.usage.unreported()).map_or(0, |uses| uses.pending())
        };
        (0..GATEWAYS).map(pending).sum::<u64>() + self.awaited(None)
    }

    /// Uses that were admitted without the server whose reply is awaited.
    fn awaited(&self, gateway: Option<usize>) -> u64 {
        let is_local = |message: &&Message| {
            gateway.is_none_or(|gateway| gateway == message.gateway)
                && matches!(&message.pending, Some(Pending::Decide(pending)) if pending.is_local)
        };
        self.messages.iter().flatten().filter(is_local).count() as u64
    }

    /// The reply about a use that was admitted without the server has come, or never will.
    pub fn note_late_answer(&mut self, ran: bool) {
        if ran {
            self.oracle.both += 1;
        } else {
            self.note_token();
        }
    }

    /// "Requests in flight per organization: 100, until the last byte of each response", and of a key.
    fn check_slots(&mut self, open: u32, unknown: u32, began: Began) {
        self.oracle.most_unknown = self.oracle.most_unknown.max(unknown);
        let is_narrowed = began.is_narrowed && began.losses == self.oracle.losses;
        let limits = [Some(if is_narrowed { 1 } else { self.scene.slots }), self.scene.key_slots];
        for limit in limits.into_iter().flatten() {
            if open > limit + self.oracle.most_unknown {
                let most = self.oracle.most_unknown;
                self.break_invariant(Invariant::Slots, format!("{open} in flight, limit {limit}, {most} unknown"));
            }
        }
    }

    /// The slots of a process that has died are back after the lease, and after two more where no gateway could report.
    fn check_dead_slots(&mut self) {
        let leases = if self.oracle.hangs + self.oracle.losses > 0 { 3 } else { 1 };
        let time = self.server.time(self.now);
        let is_late = |(_, died): &&(Vec<u8>, u64)| time > died + leases * LEASE;
        let is_there = |(id, _): &(Vec<u8>, u64)| self.server.field(&self.directory.org_record, id).is_some();
        if self.oracle.deaths.iter().filter(is_late).any(is_there) {
            self.break_invariant(Invariant::Slots, "slots of a dead gateway are taken after its lease".to_owned());
        }
    }

    /// A request is admitted.
    pub fn check_admission(&mut self, number: usize) {
        let request = self.requests[number].as_ref().expect("it is admitted");
        let (gateway, began, credential) = (request.gateway, request.began, request.credential);
        let (is_provisional, is_awaited) = (request.is_provisional, request.is_awaited);
        let reservation = request.permit.as_ref().and_then(state::Permit::reservation);
        let reserved = reservation.map(|reservation| (reservation.start().0, reservation.units));
        if is_provisional {
            self.oracle.local += 1;
            let unknown = self.unknown_slots();
            self.oracle.most_unknown = self.oracle.most_unknown.max(unknown);
            if !is_awaited {
                self.note_token();
            }
        }
        if credential == Credential::Key {
            let open = self.open(None);
            self.check_slots(open, 0, began);
        }
        // "Revoking it takes effect at once": no request that begins after the acknowledgement, on every gateway; and
        // after a failover at each gateway that knows it.
        let is_of = |one: &Withdrawal| one.credential() == Some(credential);
        let knows = |(one, state): (&Withdrawal, &Withdrawn)| {
            is_of(one) && state.is_acknowledged && state.known[gateway] && *one != Withdrawal::Disabling
        };
        let is_same = began.losses == self.oracle.losses || self.oracle.withdrawn.iter().any(knows);
        let is_withdrawn = self.oracle.withdrawn.keys().any(is_of);
        if !is_provisional && is_withdrawn && began.withdrawn[gateway] && is_same {
            let text = format!("{}: admitted after an acknowledged withdrawal", name(gateway));
            self.break_invariant(Invariant::Withdrawals, text);
        }
        let Some((start, units)) = reserved else { return };
        let tally = self.oracle.tallies.entry(start).or_default();
        tally.open += units;
        // "In each day or month of UTC, the requests of the subject of a budget cost at most its `units` together."
        let Tally { ended, open, exceeded, forgotten } = *tally;
        let most = self.scene.budget.unwrap_or(0) + exceeded + forgotten;
        if ended + open > most {
            self.break_invariant(Invariant::Budget, format!("{ended} spent and {open} reserved of {most}"));
        }
    }

    /// A request is refused. "A key is never refused for good because the state lost it."
    pub fn check_refusal(&mut self, number: usize, why: &str) {
        let request = self.requests[number].as_ref().expect("it is refused");
        if why == "unknown" || request.phase == Phase::Confirming && why == "invalid_token" {
            self.break_invariant(Invariant::Lost, format!("{}: a 401 for a key that exists", name(request.gateway)));
        }
    }

    /// Checks each state: the counters are never too low, and every request has something that answers it.
    pub fn check_state(&mut self) {
        if let Some((start, used)) = self.spent() {
            let Tally { ended, open, exceeded, forgotten } =
                self.oracle.tallies.get(&start).copied().unwrap_or_default();
            // "A kill leaves `used` too high by what was open then at most, and never too low."
            if used + exceeded + forgotten < ended + open {
                let text = format!("used {used}, although {ended} are spent and {open} reserved");
                self.break_invariant(Invariant::Budget, text);
            }
        }
        if self.scene.is_offline && !self.server.is_lost() {
            self.check_uses();
        }
        self.check_answers();
    }

    /// Each use counts once: none twice, and each that has ended and was reported.
    fn check_uses(&mut self) {
        let uses = self.server.uses(&self.directory.key_record);
        let (executed, local, both) = (self.oracle.executed, self.oracle.local, self.oracle.both);
        if uses > executed + local {
            self.break_invariant(Invariant::Tokens, format!("{uses} uses counted, of {}", executed + local));
        }
        let known = uses + self.unreported() + self.oracle.lost + both;
        if known < executed + local {
            self.break_invariant(Invariant::Tokens, format!("{known} uses known, of {}", executed + local));
        }
    }

    /// Every request that is not decided waits for a message, or for a resync that is in flight.
    fn check_answers(&mut self) {
        for number in 0..self.requests.len() {
            let Some(request) = &self.requests[number] else { continue };
            if matches!(request.phase, Phase::Open | Phase::AwaitingReleases) {
                continue;
            }
            let is_of = |pending: &Pending| match pending {
                Pending::Decide(pending) => pending.request == number,
                Pending::Read(request) | Pending::Find(request) => *request == number,
                Pending::Identity(_, request) | Pending::Confirm(request, _) => *request == number,
                Pending::Resync { request: Some((request, _)), .. } => *request == number,
                _ => false,
            };
            let awaits = self.messages.iter().flatten().filter_map(|message| message.pending.as_ref()).any(is_of);
            let resyncing = self.gateways[request.gateway].resyncing.iter().flat_map(|(_, waiting)| waiting);
            if !awaits && !resyncing.map(|(request, _)| *request).any(|request| request == number) {
                self.break_invariant(Invariant::Answers, format!("nothing ever answers /{number}"));
            }
        }
    }

    /// A process dies: what it has not reported is never repaid.
    pub fn oracle_note_death(&mut self, gateway: usize) {
        let cached = self.gateways[gateway].decisions.cached(&self.directory.digest);
        self.oracle.lost += cached.and_then(|cached| cached.usage.unreported()).map_or(0, |uses| uses.pending());
        let of_gateway = |request: &&crate::requests::Request| request.gateway == gateway;
        let requests: Vec<_> = self.requests.iter().flatten().filter(of_gateway).collect();
        let reservations: Vec<_> = requests
            .iter()
            .filter_map(|request| request.permit.as_ref()?.reservation())
            .map(|reservation| (reservation.start().0, reservation.units))
            .collect();
        self.oracle.lost += self.awaited(Some(gateway));
        for (start, units) in reservations {
            self.oracle.settle(start, units, units);
        }
        self.oracle.deaths.push((self.gateways[gateway].id.clone(), self.server.time(self.now)));
        self.oracle.withdrawn.values_mut().for_each(|state| state.known[gateway] = false);
        (self.oracle.places[gateway], self.oracle.unsynced[gateway]) = (None, false);
    }

    /// A failover has lost these writes.
    pub fn note_lost_groups(&mut self, groups: &[Group], spent: (u64, u64)) {
        let per = self.directory.quota.per_micros() * u64::from(self.scene.cost.tokens());
        let uses: u64 = groups.iter().map(|group| group.uses).sum();
        self.oracle.lost += uses;
        self.oracle.excess = self.oracle.excess.saturating_sub(uses * per);
        self.oracle.losses += 1;
        self.oracle.unsynced = [true; GATEWAYS];
        let (start, used) = self.spent().filter(|(start, _)| *start == spent.0).unwrap_or((spent.0, 0));
        self.oracle.tallies.entry(start).or_default().forgotten += spent.1.saturating_sub(used);
        let last = self.last_entry();
        let undone: Vec<_> = self.oracle.withdrawn.keys().copied().filter(|one| !self.is_written(*one)).collect();
        for (one, state) in &mut self.oracle.withdrawn {
            state.is_undone |= undone.contains(one);
            state.entry = state.entry.filter(|entry| *entry <= last);
        }
    }

    fn last_entry(&self) -> u64 {
        let last = self.server.field(&self.directory.log, b"last");
        last.map_or(0, |last| crate::messages::text_of(last).parse().unwrap())
    }

    /// The records have a withdrawal.
    fn is_written(&self, withdrawal: Withdrawal) -> bool {
        let directory = &self.directory;
        let has = |record: &[u8], field: &[u8]| self.server.field(record, field).is_some();
        match withdrawal {
            Withdrawal::Key => has(&directory.key_record, b"revoked"),
            Withdrawal::Disabling => has(&directory.key_record, b"disablings"),
            Withdrawal::User => has(&directory.user_record, b"removed"),
            Withdrawal::Narrowing => has(&directory.org_record, b"concurrent"),
            Withdrawal::Session | Withdrawal::Token => {
                let credential = withdrawal.credential().expect("it is of one");
                let (record, field) = directory.place_of(credential);
                let found = self.server.field(record, field);
                found.is_none_or(|found| found.starts_with(br#"{"revoked""#))
            }
        }
    }

    /// A person is told that a withdrawal is made.
    pub fn oracle_acknowledge(&mut self, number: usize) {
        let change = &self.changes[number];
        let (withdrawal, gateway) = (change.withdrawal, change.gateway);
        let (entry, is_undone) = (self.last_entry(), !self.is_written(withdrawal));
        let state = self.oracle.withdrawn.entry(withdrawal).or_default();
        (state.is_acknowledged, state.is_undone, state.entry) = (true, is_undone, Some(entry));
        state.known[gateway] = true;
    }

    /// A gateway has read the log to its end.
    pub fn oracle_note_log(&mut self, gateway: usize) {
        let last = self.last_entry();
        let place = *self.oracle.places[gateway].get_or_insert(last);
        for state in self.oracle.withdrawn.values_mut() {
            state.known[gateway] |= state.entry.is_some_and(|entry| entry > place);
        }
    }

    /// A gateway has written again what it knows.
    pub fn oracle_note_assertion(&mut self, gateway: usize) {
        for state in self.oracle.withdrawn.values_mut().filter(|state| state.known[gateway]) {
            state.is_undone = false;
        }
    }

    /// Time has passed ("within a quarter of a second"): what a living gateway knows is written again.
    pub fn oracle_end_tick(&mut self) {
        for state in self.oracle.withdrawn.values_mut().filter(|state| state.known.contains(&true)) {
            state.is_undone = false;
        }
    }
}
