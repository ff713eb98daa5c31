//! Virtual gateway: decides recorded requests again, at the times of their records, by other limits and routes.
//!
//! - Decisions are those of the embedded state, in memory. No clock is read.
//! - Memory is bounded by the keys and the requests that are open at a time, not by the number of records.
//! - Of a record with a count, the first refusal is decided at its time, and all others at the time of the last one.
//!   Their costs are not recorded: they stay refused unless there is enough for the most expensive route. So the same
//!   limits admit none of them.
//! - A record has the time at which a request arrived. It was decided up to `margin` later, or by a clock that differs
//!   by so much. So a request that was admitted may take what there is at the end of its margin. One that was refused
//!   is decided after those that were admitted within its margin, and stays refused unless its tokens have been there
//!   for longer than the margins of both. Either is told, and is no change.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Method, Request};

use super::report::{Report, Sample};
use crate::admission::{Route, RouteSettings, Routes};
use domain::budget::Cost;
use domain::clock::Micros;
use domain::identity::AuthMethod;
use domain::key::{KeyDigest, KeyId};
use domain::refusal::Refusal;
use journal::audit::{Outcome, Record, RecordKind};
use state::bucket::Bucket;
use state::embedded::UsedKey;
use state::{Admitted, DecideRequest, Decision, Embedded, Permit};

/// Margins for which tokens have been there before a request that was refused counts as admitted: its own, that of the
/// request before it, and that of its place behind others.
const MARGINS: u32 = 3;

/// Keys by what records say of them, each with its id, also of sessions, and its digest.
pub(super) type Keys = HashMap<UsedKey, (KeyId, KeyDigest)>;

/// The gateway, in virtual time.
pub(super) struct VirtualGateway<'a> {
    state: &'a Embedded,
    routes: &'a Routes,
    keys: &'a Keys,
    /// A host that each route with a pattern of hosts matches, by the name of the route: records have no host.
    hosts: HashMap<&'a str, HeaderValue>,
    /// The least tokens that a route takes, the most tokens, and the most units.
    costs: [Cost; 3],
    margin: Duration,
    /// Records before this time fill and empty the buckets, and are not counted.
    since: Micros,
    /// The only key whose requests are counted; none: all are.
    only: Option<KeyId>,
    /// The head of the request that is looked at.
    head: Parts,
    /// Slots of open requests, by their ends, each with what it has cost of a budget.
    releases: BTreeMap<(Micros, u64), (Permit, Option<u64>)>,
    /// Refused requests, by the times of their decisions, each with its number of times.
    refused: BTreeMap<(Micros, u64), (RecordedRequest<'a>, u64)>,
    /// Number of both so far: those of one time are in their order.
    number: u64,
    report: Report,
}

/// A recorded request.
#[derive(Clone, Copy)]
struct RecordedRequest<'a> {
    key: (KeyId, KeyDigest),
    route: &'a Route,
    cost: Cost,
    /// Cost for which there must be enough where the request is not refused as before.
    needed: Cost,
    sample: Sample,
}

impl<'a> VirtualGateway<'a> {
    pub(super) fn new(
        state: &'a Embedded,
        routes: (&'a Routes, &'a [RouteSettings]),
        keys: &'a Keys,
        margin: Duration,
        since: Micros,
        only: Option<KeyId>,
    ) -> Self {
        let (routes, settings) = routes;
        let host = |route: &'a RouteSettings| {
            let host = route.host.as_ref()?.to_string().replacen('*', "x", 1);
            Some((&*route.name, host.parse().ok()?))
        };
        let costs = || settings.iter().map(|route| route.cost);
        let least = costs().map(Cost::tokens).min().unwrap_or(1);
        let [tokens, units] = [Cost::tokens, Cost::units].map(|part| costs().map(part).fold(1, u32::max));
        Self {
            state,
            routes,
            keys,
            hosts: settings.iter().filter_map(host).collect(),
            costs: [Cost::fixed(least), Cost::fixed(tokens), Cost::at_most(units)],
            margin,
            since,
            only,
            head: Request::new(()).into_parts().0,
            releases: BTreeMap::new(),
            refused: BTreeMap::new(),
            number: 0,
            report: Report::default(),
        }
    }

    /// Decides the request, or the requests, of a record. Records come in the order of their times.
    pub(super) fn add(&mut self, record: &Record) {
        self.advance(record.time);
        let is_counted = record.time >= self.since;
        if record.kind() == RecordKind::Change {
            self.report.changes += u64::from(is_counted);
            return;
        }
        let recorded = if let Outcome::Refused(refusal) = record.outcome { Some(refusal) } else { None };
        let by = match (record.auth_method, record.key_id, record.user_id) {
            (AuthMethod::ApiKey, Some(key), _) => Some(UsedKey::Key(key)),
            (AuthMethod::Session, _, Some(user)) => Some(UsedKey::SessionQuotaKey(user)),
            _ => None,
        };
        let is_counted = is_counted && self.only.is_none_or(|only| by == Some(UsedKey::Key(only)));
        let sample = Sample { by, recorded, is_counted };
        let route = self.find_route(record, is_counted);
        if route.public.is_some() {
            return self.report.count(sample, None, record.uses());
        }
        // No configuration makes such a credential a good one.
        if recorded.is_some_and(|refusal| refusal.is_of_invalid_key() || refusal == Refusal::OrgSuspended) {
            return self.report.count(sample, recorded, record.uses());
        }
        let Some(key) = by.and_then(|by| self.keys.get(&by).copied()) else {
            self.report.unknown += if is_counted { record.uses() } else { 0 };
            return;
        };
        let cost = route.cost;
        let request = RecordedRequest { key, route, cost, needed: cost, sample };
        match recorded {
            None => self.decide_admitted(request, record),
            Some(refusal) => self.await_refused(request, refusal, record),
        }
    }

    /// Decides what was left, and returns the result.
    pub(super) fn finish(mut self) -> Report {
        self.advance(Micros(u64::MAX));
        self.report
    }

    /// Finds the route of a recorded request. Of a path that was cut or escaped, the part before that is compared.
    fn find_route(&mut self, record: &Record, is_counted: bool) -> &'a Route {
        let whole = record.path.find(['…', '\\']).map_or(&*record.path, |end| &record.path[..end]);
        let (uri, method) = (whole.parse(), Method::from_bytes(record.method.as_bytes()));
        let is_whole = whole.len() == record.path.len() && uri.is_ok() && method.is_ok();
        self.report.cut += u64::from(is_counted && !is_whole);
        (self.head.uri, self.head.method) = (uri.unwrap_or_default(), method.unwrap_or_default());
        if !self.hosts.is_empty() {
            self.head.headers.remove(HOST);
            if let Some(host) = self.hosts.get(&*record.action) {
                self.head.headers.insert(HOST, host.clone());
            }
        }
        self.routes.find(&self.head)
    }

    fn decide(&self, request: &RecordedRequest<'_>, now: Micros) -> Result<Admitted, Refusal> {
        let RecordedRequest { key: (_, digest), route, cost, .. } = request;
        let access = route.access();
        match self.state.decide(DecideRequest { digest, id: None, access, cost: *cost, client: None, now }) {
            Decision::Admitted(admitted) => Ok(admitted),
            Decision::Denied { refusal, .. } => Err(refusal),
        }
    }

    fn decide_admitted(&mut self, request: RecordedRequest<'a>, record: &Record) {
        let is_counted = request.sample.is_counted;
        let mut decided = self.decide(&request, record.time);
        let is_limited = decided.as_ref().is_err_and(|refusal| refusal.row().limit.is_some());
        if is_limited && !self.margin.is_zero() {
            self.release(record.time.after(self.margin * MARGINS));
            decided = self.decide(&request, record.time.after(self.margin));
            self.report.near += u64::from(decided.is_ok() && is_counted);
        }
        self.report.count(request.sample, decided.as_ref().err().copied(), 1);
        let Ok(admitted) = decided else { return };
        self.report.provisional += u64::from(record.provisional && is_counted);
        // The cost that the response said, or that of a request which no upstream got; without a budget, none is known.
        let is_said = |cost: &u64| *cost == 0 || request.route.cost_from.is_some();
        let cost = record.cost.filter(|cost| record.budget.is_some() && is_said(cost));
        let end = match record.duration_us {
            Some(duration) => record.time.after(Duration::from_micros(duration)).after(self.margin * 2),
            None if record.outcome == Outcome::InProgress => Micros(u64::MAX),
            // Its gateway was killed: from when on its slot was free is not known.
            None => {
                self.report.unmeasured += u64::from(is_counted);
                return;
            }
        };
        self.number += 1;
        self.releases.insert((end, self.number), (admitted.permit, cost));
    }

    /// Has the refused requests of a record decided after those that were admitted within the margin.
    fn await_refused(&mut self, request: RecordedRequest<'a>, recorded: Refusal, record: &Record) {
        self.number += 2;
        self.refused.insert((record.time.after(self.margin), self.number - 1), (request, 1));
        if record.uses() > 1 {
            self.report.folded += if request.sample.is_counted { record.uses() - 1 } else { 0 };
            let [least, tokens, units] = self.costs;
            let others = match recorded {
                Refusal::RateLimited => RecordedRequest { needed: tokens, ..request },
                // The budget and the slots are looked at after the bucket: each of them had its tokens.
                Refusal::QuotaExhausted => RecordedRequest { cost: least, needed: units, ..request },
                Refusal::KeyTooManyInFlight | Refusal::TooManyInFlight => {
                    RecordedRequest { cost: least, needed: least, ..request }
                }
                _ => request,
            };
            let at = record.last().after(self.margin);
            self.refused.insert((at, self.number), (others, record.uses() - 1));
        }
    }

    fn decide_refused(&mut self, request: &RecordedRequest<'_>, at: Micros, count: u64) {
        let RecordedRequest { sample, .. } = request;
        for decided in 0..count {
            let left = count - decided;
            if self.is_near(request, at) {
                self.report.near += if sample.is_counted { left } else { 0 };
                return self.report.count(*sample, sample.recorded, left);
            }
            match self.decide(request, at) {
                // Its slot is released: how long it would have lasted is not known.
                Ok(_) => self.report.count(*sample, None, 1),
                // It takes nothing, so all others are refused as well.
                Err(refusal) => return self.report.count(*sample, Some(refusal), left),
            }
        }
    }

    /// Returns whether there is enough for a request that was refused, and would not have been with another of the
    /// costs or within the margins.
    fn is_near(&self, request: &RecordedRequest<'_>, at: Micros) -> bool {
        if self.margin.is_zero() && request.needed == request.cost {
            return false;
        }
        let Some(status) = self.state.rate_limit_status(request.key.0, at) else { return false };
        match request.sample.recorded {
            Some(Refusal::RateLimited) => {
                // As the time in which the tokens flow in: a bucket has fractions of them.
                let time = |tokens| Bucket { level: 0, at }.tokens_in_us(status.quota, tokens);
                let needed = request.needed.tokens().min(status.quota.burst);
                let margins = u64::try_from((self.margin * MARGINS).as_micros()).unwrap_or(u64::MAX);
                let there = time(status.quota.burst).saturating_sub(status.full_in_us);
                (time(request.cost.tokens())..time(needed).saturating_add(margins)).contains(&there)
            }
            Some(Refusal::QuotaExhausted) => status.budget.is_some_and(|budget| {
                let [cost, needed] = [request.cost, request.needed].map(|cost| u64::from(cost.units()));
                (cost..needed).contains(&budget.remaining())
            }),
            _ => false,
        }
    }

    /// Performs what happens up to a time, in its order.
    fn advance(&mut self, until: Micros) {
        while let Some((at, (request, count))) = pop_due(&mut self.refused, until) {
            self.release(at);
            self.decide_refused(&request, at.before(self.margin), count);
        }
        self.release(until);
    }

    /// Releases the slots of requests that have ended by a time.
    fn release(&mut self, until: Micros) {
        while let Some((_, (permit, cost))) = pop_due(&mut self.releases, until) {
            if let Some((reserved, cost)) = permit.into_reservation().zip(cost) {
                reserved.settle(cost);
            }
        }
    }
}

/// Takes the first of what waits until a time.
fn pop_due<T>(waiting: &mut BTreeMap<(Micros, u64), T>, until: Micros) -> Option<(Micros, T)> {
    let first = waiting.first_entry().filter(|first| first.key().0 <= until)?;
    let ((at, _), due) = first.remove_entry();
    Some((at, due))
}
