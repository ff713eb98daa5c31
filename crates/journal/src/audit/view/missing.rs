//! Explanation of a request id that no record has. Every id that a client was sent gets an answer: the records that may
//! stand for its request, or the reason why there is none.
//!
//! The ids of folded refusals are nowhere, but an id is a UUIDv7: its first 48 bits are the millisecond at which the
//! request arrived. Of 31 refusals of one key within a second, ten have records of their own. The others are one record
//! with `count: 21`, the `time` of the first and the `last_time` of the last: it covers the times of all their ids.
//!
//! ```text
//! 12:00:00.004            .310                     .870
//!      |--- R: 21 rate_limited of key K ---|          id of .310: R stands for it
//!                          |--- S: 9 of key L ---|    id of .870: R or S, neither is asserted
//! ```
//!
//! A time proves nothing about one request: another one of that millisecond may have had no key. So the texts say which
//! records cover it, and no more. One record is named as the only one where all were read that there can be; else the
//! text has the doubts ([`Doubts`]).

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{AuditView, GatewayFreshness, ReadBudget, ViewPage, ViewScope, ViewStatus};
use crate::audit::filter::Filter;
use crate::audit::format::record::{Outcome, Record};
use crate::audit::format::{id_text, open_uses, segment};
use crate::audit::write::refusals::slot_file;
use crate::files;
use domain::clock::{self, Micros};
use domain::counted::counted;
use domain::key::KeyId;
use domain::refusal::Refusal;

/// Longest time from the first of the refusals of a record to the last one: the second in which they are folded, and
/// the decisions before it.
const LONGEST_SPAN: Duration = Duration::from_secs(60);
/// A time in an id that is later than now by more than this was not made by a clock of a gateway.
const CLOCK_MARGIN: Duration = Duration::from_secs(60);
/// Resolution of the time in an id (RFC 9562, section 5.7).
const MILLISECOND: Duration = Duration::from_millis(1);
/// Microseconds within which a number of attempts with unknown keys are recorded, and refusals are one record: windows
/// are the seconds of the clock.
const SECOND: u64 = 1_000_000;
/// Records that are listed for one id: more keys than are usually refused at the same time.
const MAX_CANDIDATES: usize = 20;

/// Explanation of an id in whose second attempts with unknown keys were recorded.
const SAMPLED_ATTEMPTS: &str = "attempts with unknown keys are sampled (`audit.unknown_per_second`), and some of this \
                                second are on record; ";
/// Explanation of an id, besides that by records that cover its time, by what is not recorded at all.
const NOT_RECORDED: &str = "requests without a key or a session, refused for their form, or to public routes, and \
                            calls of the dashboard and of the management API have no record under their ids; the log \
                            of the gateways may have them";

/// Explanation of a request id that no record has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRecord {
    /// The reason.
    pub reason: MissingReason,
    /// Time in the id; `None` when it has none.
    #[serde(with = "clock::rfc3339::option")]
    pub time: Option<Micros>,
    /// The reason as a sentence, with what to do.
    pub detail: String,
    /// The records of several refusals that cover the time, newest first.
    pub records: Vec<Record>,
}

/// Reason why no record has an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// One record of several refusals covers its time, and no other one can.
    Folded,
    /// Several records of several refusals cover its time, or there may be others than the one that does.
    Ambiguous,
    /// Its record does not match the other conditions.
    Excluded,
    /// It is no UUID of version 7, which all ids of requests are.
    NoRequestId,
    /// Its time has not come yet.
    Future,
    /// Refusals of its time are counted, and not recorded yet.
    Pending,
    /// The audit begins after its time: the records of before were removed, or there were none.
    BeforeAudit,
    /// Attempts with unknown keys were sampled in its second.
    Sampled,
    /// No record of its time explains it: requests without a key, and calls of the management API, have none.
    Unrecorded,
}

/// Reasons for which there may be other records than those that were read.
#[derive(Debug, Default)]
struct Doubts {
    /// The search for a record with the id has not read everything yet.
    is_unfinished: bool,
    /// The search for records that cover the time has not read everything.
    is_cut: bool,
    /// Refusals of this gateway that cover the time are counted in no record yet.
    is_pending: bool,
    /// Gateways that have not shipped all records that may cover the time.
    behind: Vec<GatewayFreshness>,
}

impl AuditView {
    /// Explains an id that no record of the filter has. Reads about `budget` bytes of the journal at most. With
    /// `is_unfinished`, a later page may have the record.
    pub(super) fn explain_missing(
        &self,
        id: Uuid,
        filter: &Filter,
        mut is_unfinished: bool,
        budget: ReadBudget,
    ) -> io::Result<MissingRecord> {
        use MissingReason::{BeforeAudit, Excluded, Future, NoRequestId, Pending};
        let time = id_text::time_of(id);
        let explain = |reason, detail: String| MissingRecord { reason, time, detail, records: Vec::new() };
        // An organization learns nothing of the records of others.
        let bare = Filter { id: Some(id), org: filter.org, ..Filter::default() };
        if bare != *filter {
            let found = self.list_records(&bare, 1, None, budget)?;
            if !found.records.is_empty() {
                return Ok(explain(Excluded, "its record does not match the other conditions; leave them out".into()));
            }
            is_unfinished |= found.next.is_some();
        }
        let Some(time) = time else {
            return Ok(explain(NoRequestId, "this is not the id of a request: those are UUIDs of version 7".into()));
        };
        if time > clock::now().after(CLOCK_MARGIN) {
            return Ok(explain(Future, format!("the time in this id, {time}, has not come yet")));
        }
        let covering = covering(time, filter);
        // Before the records: a count becomes a record at any time, with the same id.
        let mut pending = self.list_pending(&covering)?;
        let ViewPage { records, next, status, .. } = self.list_records(&covering, MAX_CANDIDATES, None, budget)?;
        pending.retain(|id| records.iter().all(|record| record.id != *id));
        let doubts = Doubts {
            is_unfinished,
            is_cut: next.is_some() && records.len() < MAX_CANDIDATES,
            is_pending: !pending.is_empty(),
            behind: self.list_behind(time, status.as_ref())?,
        };
        if let Some(explained) = MissingRecord::from_refusals(time, records, &doubts) {
            return Ok(explained);
        }
        if doubts.is_pending {
            let detail = format!("refusals of {time} are counted, and their record is not written yet; try again soon");
            return Ok(explain(Pending, detail));
        }
        if let Some(first) = self.beginning(status.as_ref())?.filter(|first| time < *first) {
            let detail = format!(
                "the audit begins at {first}, after the time in this id, {time}: older records were removed, or there \
                 were none"
            );
            return Ok(explain(BeforeAudit, detail + &doubts.text()));
        }
        let (reason, detail) = self.explain_unrecorded(time, filter, budget)?;
        Ok(explain(reason, detail + &doubts.text()))
    }

    /// The ids of the records that this gateway will write of refusals that it has counted: those of the present
    /// second, those of a full disk, and those of a gateway that was killed.
    fn list_pending(&self, covering: &Filter) -> io::Result<Vec<Uuid>> {
        let counted = slot_file::read_counted(self.journal.directory())?;
        Ok(counted.iter().filter(|event| covering.matches_use(event)).map(|event| event.id).collect())
    }

    /// The other gateways that have not shipped all records of the second of a time: its refusals are one record when
    /// it has ended. What this gateway has not shipped is read from its journal.
    fn list_behind(&self, time: Micros, status: Option<&ViewStatus>) -> io::Result<Vec<GatewayFreshness>> {
        let end = Micros((time.0 / SECOND + 1).saturating_mul(SECOND));
        let gateways = status.into_iter().flat_map(|status| &status.gateways);
        let mut behind: Vec<GatewayFreshness> = gateways.filter(|other| other.complete_until < end).cloned().collect();
        let fleet = self.fleet.load_full().filter(|_| !behind.is_empty());
        if let (Some(fleet), Some(id)) = (fleet, self.journal.identity()?) {
            let snapshot = fleet.snapshot().map_err(io::Error::other)?;
            let journals = snapshot.journals().map_err(io::Error::other)?;
            snapshot.finish();
            let own = journals.into_iter().find(|row| row.journal == id).map(|row| row.gateway);
            behind.retain(|other| Some(&other.gateway) != own.as_ref());
        }
        Ok(behind)
    }

    /// The time from which on there are records; `None` when none were removed.
    fn beginning(&self, status: Option<&ViewStatus>) -> io::Result<Option<Micros>> {
        let of_fleet = self.fleet.load_full().filter(|_| status.is_some_and(|status| status.scope == ViewScope::Fleet));
        if let Some(fleet) = of_fleet {
            let snapshot = fleet.snapshot().map_err(io::Error::other)?;
            let first = snapshot.first_kept().map_err(io::Error::other)?;
            snapshot.finish();
            return Ok(first);
        }
        let directory = self.journal.directory();
        let segments = files::if_found(segment::list(directory))?.unwrap_or_default();
        let Some(first) = segments.first() else { return Ok(None) };
        Ok(open_uses::read_header(directory, first.number)?.map(|header| header.created))
    }

    /// The reason for which no record explains a time.
    fn explain_unrecorded(
        &self,
        time: Micros,
        filter: &Filter,
        budget: ReadBudget,
    ) -> io::Result<(MissingReason, String)> {
        let second = Micros(time.0 / SECOND * SECOND);
        let unknown = Filter {
            outcome: Some(Outcome::Refused(Refusal::Unknown)),
            since: Some(second),
            until: Some(Micros(second.0 + SECOND)),
            org: filter.org,
            ..Filter::default()
        };
        let are_sampled = !self.list_records(&unknown, 1, None, budget)?.records.is_empty();
        let reason = if are_sampled { MissingReason::Sampled } else { MissingReason::Unrecorded };
        let sampled = if are_sampled { SAMPLED_ATTEMPTS } else { "" };
        Ok((reason, format!("no record: {sampled}{NOT_RECORDED}")))
    }
}

impl Doubts {
    fn are_none(&self) -> bool {
        let Self { is_unfinished, is_cut, is_pending, behind } = self;
        !is_unfinished && !is_cut && !is_pending && behind.is_empty()
    }

    /// The doubts, each after a semicolon.
    fn text(&self) -> String {
        let Self { is_unfinished, is_cut, is_pending, behind } = self;
        let mut text = String::new();
        if *is_unfinished {
            text += "; the search for a record of its own is not at its end: the next page may have one";
        }
        if *is_cut {
            text += "; not all records of its time were read, because there are too many";
        }
        if *is_pending {
            text += "; more refusals of its time are counted, and their record is not written yet";
        }
        if let Some(GatewayFreshness { gateway, complete_until, .. }) = behind.first() {
            text += &format!("; gateway {gateway} has shipped its records up to {complete_until} only");
        }
        if let Some(more) = behind.len().checked_sub(1).filter(|more| *more > 0) {
            text += &format!("; behind as well: {}", counted(&more, "more gateway"));
        }
        text
    }
}

/// The filter of the records of several refusals that cover a time.
fn covering(time: Micros, filter: &Filter) -> Filter {
    Filter {
        id: None,
        covers: Some(time),
        since: filter.since.max(Some(time.before(LONGEST_SPAN))),
        until: [filter.until, Some(time.after(MILLISECOND))].into_iter().flatten().min(),
        refused: filter.refused.or(Some(true)),
        ..*filter
    }
}

impl MissingRecord {
    /// The only key that the records are about.
    pub fn key(&self) -> Option<KeyId> {
        let key = self.records.first()?.key_id?;
        self.records.iter().all(|record| record.key_id == Some(key)).then_some(key)
    }

    /// The explanation by the records of several refusals that cover a time; `None` without any.
    fn from_refusals(time: Micros, records: Vec<Record>, doubts: &Doubts) -> Option<Self> {
        let reason = match &records[..] {
            [] => return None,
            [_] if doubts.are_none() => MissingReason::Folded,
            _ => MissingReason::Ambiguous,
        };
        let each: Vec<String> = records.iter().map(folded).collect();
        let (doubts, each) = (doubts.text(), each.join("; "));
        let detail = format!("no record of its own; its time is covered by {each}{doubts}; {NOT_RECORDED}");
        Some(Self { reason, time: Some(time), detail, records })
    }
}

/// The refusals that a record stands for, as "record R, into which 20 refusals `rate_limited` of key K were folded".
fn folded(record: &Record) -> String {
    let Record { id, time, key_id, user_id, outcome, .. } = record;
    let caller = match (key_id, user_id) {
        (Some(key), _) => format!("key {key}"),
        (None, Some(user)) => format!("the sessions of {user}"),
        // Lines and rows come from outside: another version may fold more.
        (None, None) => "one caller".to_owned(),
    };
    let (count, outcome, last) = (record.uses(), outcome.name(), record.last());
    format!("record {id}, into which {count} refusals `{outcome}` of {caller} were folded, from {time} to {last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of several refusals from one millisecond to another.
    fn record(key: Option<&str>, (first, last): (u64, u64)) -> Record {
        let json = serde_json::json!({
            "id": Uuid::nil(), "time": Micros(first * 1000 + 700).to_string(), "key_id": key,
            "user_id": "usr_0197c1de000070008000000000000004", "org_id": null, "auth_method": "api-key", "ip": null,
            "user_agent": null, "action": "a", "method": "GET", "path": "/", "outcome": "rate_limited", "status": 429,
            "duration_us": 1, "request_bytes": 0, "response_bytes": 0, "gateway": "gw", "count": 20,
            "last_time": Micros(last * 1000 + 900).to_string(),
        });
        serde_json::from_value(json).unwrap()
    }

    fn explain(records: Vec<Record>, doubts: &Doubts) -> Option<MissingRecord> {
        MissingRecord::from_refusals(Micros(5000), records, doubts)
    }

    #[test]
    fn one_covering_record_is_named_and_several_are_candidates() {
        let key = Some("abcDEF123");
        let explain = |records| explain(records, &Doubts::default());
        assert_eq!(explain(vec![]), None);
        let one = explain(vec![record(key, (1, 9))]).unwrap();
        assert_eq!((one.reason, one.key()), (MissingReason::Folded, key.map(|key| key.parse().unwrap())));
        let expected = format!(
            "no record of its own; its time is covered by record {}, into which 20 refusals `rate_limited` of key \
             abcDEF123 were folded, from 1970-01-01T00:00:00.001700Z to 1970-01-01T00:00:00.009900Z; requests without \
             a key",
            Uuid::nil()
        );
        assert!(one.detail.starts_with(&expected), "{}", one.detail);
        let both = explain(vec![record(key, (1, 9)), record(None, (5, 7))]).unwrap();
        assert_eq!((both.reason, both.key()), (MissingReason::Ambiguous, None));
        assert!(both.detail.contains("of the sessions of usr_0197"), "{}", both.detail);
        assert!(both.detail.ends_with(NOT_RECORDED), "{}", both.detail);
        let same = explain(vec![record(key, (1, 9)), record(key, (2, 9))]).unwrap();
        assert_eq!((same.reason, same.key()), (MissingReason::Ambiguous, one.key()));
    }

    /// A record that may be one of several is not asserted to be the only one.
    #[test]
    fn covering_record_is_ambiguous_while_there_may_be_others() {
        let behind =
            |name: &str| GatewayFreshness { gateway: name.into(), complete_until: Micros(4000), updated: Micros(4000) };
        for (doubts, text) in [
            (Doubts { is_unfinished: true, ..Doubts::default() }, "the next page may have one"),
            (Doubts { is_cut: true, ..Doubts::default() }, "not all records of its time were read"),
            (Doubts { is_pending: true, ..Doubts::default() }, "counted, and their record is not written yet"),
            (
                Doubts { behind: vec![behind("a")], ..Doubts::default() },
                "gateway a has shipped its records up to 1970-",
            ),
            (
                Doubts { behind: ["a", "b", "c"].map(behind).into(), ..Doubts::default() },
                "behind as well: 2 more gateways",
            ),
        ] {
            let one = explain(vec![record(Some("abcDEF123"), (1, 9))], &doubts).unwrap();
            assert_eq!(one.reason, MissingReason::Ambiguous, "{doubts:?}");
            assert!(one.detail.contains(text) && one.key().is_some(), "{}", one.detail);
            assert_eq!(explain(vec![], &doubts), None);
        }
    }

    #[test]
    fn filter_covers_the_milliseconds_from_the_first_refusal_to_the_last() {
        let event = |count| {
            let line = format!(
                r#"{{"e":"record","id":"{}","time":10700,"auth_method":"api-key","action":"a","method":"GET",
                "path":"/","outcome":"rate_limited","count":{count},"last":20900}}"#,
                Uuid::nil()
            );
            serde_json::from_str::<crate::audit::format::event::UseEvent<'_>>(&line).unwrap().into_owned()
        };
        // Microseconds of an id are those of its millisecond.
        let covered = |millisecond: u64, count| {
            covering(Micros(millisecond * 1000), &Filter::default()).matches_use(&event(count))
        };
        assert_eq!([9, 10, 15, 20, 21].map(|time| covered(time, 20)), [false, true, true, true, false]);
        assert!(!covered(15, 1), "the only refusal has the id of the record");
    }
}
