//! The view of all gateways equals the merge of all journals: for random histories, and whatever was shipped of them.

use std::collections::HashSet;
use std::time::Duration;

use domain::clock::{self, Micros};
use journal::audit::{AuditView, Filter, Fleet, Outcome, OwnOnlyReason, Record, RecordKind, ViewScope};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::fixture::{Event, Recorder, count, export, list, merge};
use crate::journal::support::Caller;
use crate::support::Postgresql;

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// One of the gateways records a use that began this many milliseconds after the beginning.
    Record { gateway: usize, caller: usize, at: u64, kind: u8 },
    /// One of its open uses ends.
    End { gateway: usize, number: usize },
    /// It ships what it has recorded.
    Ship { gateway: usize },
}

const GATEWAYS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let gateway = 0..GATEWAYS;
    prop_oneof![
        20 => (gateway.clone(), 0_usize..3, 0_u64..50, any::<u8>())
            .prop_map(|(gateway, caller, at, kind)| Step::Record { gateway, caller, at, kind }),
        10 => (gateway.clone(), any::<usize>()).prop_map(|(gateway, number)| Step::End { gateway, number }),
        2 => gateway.prop_map(|gateway| Step::Ship { gateway }),
    ]
}

/// The gateways, and what of each is in the database.
struct History {
    gateways: Vec<Recorder>,
    shipped: Vec<Vec<Record>>,
    callers: Vec<Caller>,
    begun: Micros,
}

impl History {
    fn new() -> Self {
        let mut callers: Vec<Caller> = (0..3).map(|_| Caller::random()).collect();
        callers[1].org = callers[0].org;
        // Older than what is too young to be shipped, and within the day whose hours are counted.
        let begun = clock::now().before(Duration::from_secs(3600));
        let gateways = (0..GATEWAYS).map(|number| Recorder::new(&format!("gateway-{number}"))).collect();
        Self { gateways, shipped: vec![Vec::new(); GATEWAYS], callers, begun }
    }

    fn perform(&mut self, step: &Step, server: &Postgresql) {
        match *step {
            Step::Record { gateway, caller, at, kind } => {
                let time = self.begun.after(Duration::from_millis(at));
                self.gateways[gateway].record(&self.callers, Event { caller, time, kind });
            }
            Step::End { gateway, number } => self.gateways[gateway].end_one(number),
            Step::Ship { gateway } => {
                self.gateways[gateway].ship(server);
                self.shipped[gateway] = self.gateways[gateway].export(&Filter::default());
            }
        }
    }

    /// Records that the view of a gateway must show, newest first.
    fn expected(&self, gateway: usize) -> Vec<Record> {
        self.gateways[gateway].settle();
        let others = (0..GATEWAYS).filter(|other| *other != gateway).flat_map(|other| self.shipped[other].clone());
        merge(others.chain(self.gateways[gateway].export(&Filter::default())))
    }

    /// Ids of the uses of a gateway whose ends are not shipped, though their beginnings are: these may show as in
    /// progress.
    fn ended_since(&self, gateway: usize) -> HashSet<String> {
        let is_open = |record: &&Record| record.outcome == Outcome::InProgress;
        let open = self.shipped[gateway].iter().filter(is_open).map(|record| record.id.to_string());
        let still = self.gateways[gateway].export(&Filter { outcome: Some(Outcome::InProgress), ..Filter::default() });
        open.filter(|id| still.iter().all(|record| record.id.to_string() != *id)).collect()
    }

    fn check(&self, gateway: usize, server: &Postgresql, limit: usize) {
        let (expected, view) = (self.expected(gateway), self.gateways[gateway].view(server));
        let ended_since = self.ended_since(gateway);
        let has_ended = |record: &Record| ended_since.contains(&record.id.to_string());
        self.check_activity(&view, &expected, &has_ended);
        let key = Some(self.callers[0].key);
        for (filter, matches) in [
            (Filter::default(), (|_| true) as fn(&Record) -> bool),
            (Filter { outcome: Some(Outcome::InProgress), ..Filter::default() }, |r| r.outcome == Outcome::InProgress),
            (Filter { outcome: Some(Outcome::Completed), ..Filter::default() }, |r| r.outcome == Outcome::Completed),
            (Filter { refused: Some(true), ..Filter::default() }, |r| r.outcome.is_refusal()),
            (Filter { kind: Some(RecordKind::Change), ..Filter::default() }, |r| r.kind() == RecordKind::Change),
            (Filter { kind: Some(RecordKind::Request), refused: Some(false), ..Filter::default() }, |r| {
                r.kind() == RecordKind::Request && !r.outcome.is_refusal()
            }),
        ] {
            for (filter, of_key) in [(filter, None), (Filter { key, ..filter }, key)] {
                let matches = |record: &&Record| matches(record) && (of_key.is_none() || record.key_id == of_key);
                let mut expected: Vec<Record> = expected.iter().filter(matches).cloned().collect();
                let mut exported = export(&view, &filter);
                exported.reverse();
                for mut found in [list(&view, &filter, limit), exported] {
                    if filter.outcome.is_some() {
                        found.retain(|record| !has_ended(record));
                        expected.retain(|record| !has_ended(record));
                    }
                    for (found, expected) in found.iter_mut().zip(&expected).filter(|(found, _)| has_ended(found)) {
                        assert_eq!(found.id, expected.id);
                        found.clone_from(expected);
                    }
                    assert_eq!(found, expected, "{filter:?}");
                }
            }
        }
    }

    fn check_activity(&self, view: &AuditView, expected: &[Record], has_ended: &dyn Fn(&Record) -> bool) {
        let (org, now) = (self.callers[0].org, clock::now());
        let callers = || self.callers.iter().filter(|caller| caller.org == org);
        let keys: Vec<_> = callers().map(|caller| caller.key).collect();
        let found = view.activity(org, &keys, now, 64 << 20).unwrap();
        assert_eq!(found.status.unwrap().scope, ViewScope::Fleet);
        let counts = count(expected);
        for key in keys {
            let activity = &found.keys[&key];
            let sum = activity
                .hours
                .iter()
                .fold((0, 0), |(requests, refusals), hour| (requests + hour.requests, refusals + hour.refusals));
            assert_eq!(sum, counts.get(&key.to_string()).copied().unwrap_or_default(), "{key}");
            let uses: Vec<&Record> = expected
                .iter()
                .filter(|record| record.key_id == Some(key) && record.kind() == RecordKind::Request)
                .collect();
            let last = uses.iter().find(|record| !record.outcome.is_refusal());
            assert_eq!(activity.last.as_ref().map(|last| last.id), last.map(|record| record.id));
            let known = activity.last.as_ref().zip(last).filter(|(_, record)| !has_ended(record));
            assert!(known.is_none_or(|(last, record)| last.outcome == record.outcome));
            let refusal = uses.iter().find(|record| record.outcome.is_refusal());
            let is_later = refusal.map(|refusal| refusal.last()) > last.map(|last| last.last());
            let attempt = if is_later { refusal } else { last };
            assert_eq!(activity.last_attempt.as_ref().map(|last| last.id), attempt.map(|record| record.id));
        }
    }
}

fn cases() -> u32 {
    std::env::var("KEYGATE_VIEW_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

#[test]
fn view_is_the_merge_of_all_journals() {
    let server = Postgresql::start();
    let mut runner = TestRunner::new(Config { cases: cases(), max_shrink_iters: 20, ..Config::default() });
    let histories = (prop::collection::vec(step(), 20..120), 1_usize..40);
    let run = |(steps, limit): (Vec<Step>, usize)| {
        // The schema is there from the first shipping on.
        drop(server.try_sql("TRUNCATE keygate.records, keygate.journals"));
        let mut history = History::new();
        history.perform(&Step::Ship { gateway: 2 }, &server);
        for step in &steps {
            history.perform(step, &server);
        }
        (0..GATEWAYS).for_each(|gateway| history.check(gateway, &server, limit));
        (0..GATEWAYS).for_each(|gateway| history.perform(&Step::Ship { gateway }, &server));
        for gateway in 0..GATEWAYS {
            assert!(history.ended_since(gateway).is_empty(), "all is shipped");
            history.check(gateway, &server, limit);
        }
        Ok(())
    };
    runner.run(&histories, run).unwrap();
}

#[test]
fn uses_of_a_lost_gateway_are_shown_by_the_others() {
    let server = Postgresql::start();
    let callers = [Caller::random()];
    let (mut lost, other) = (Recorder::new("lost"), Recorder::new("other"));
    let time = clock::now().before(Duration::from_secs(60));
    (0..30).for_each(|kind| lost.record(&callers, Event { caller: 0, time, kind }));
    lost.ship(&server);
    let expected = merge(lost.export(&Filter::default()));
    assert_eq!(expected.len(), 30);
    drop(lost);
    // The gateway comes back with an empty disk, under the same name.
    let back = Recorder::new("lost");
    back.ship(&server);
    other.ship(&server);
    for recorder in [&other, &back] {
        let view = recorder.view(&server);
        assert_eq!(list(&view, &Filter { key: Some(callers[0].key), ..Filter::default() }, 7), expected);
        let page = view.list(&Filter::default(), 5, None, 1 << 20).unwrap();
        let names: Vec<String> = page.status.unwrap().gateways.into_iter().map(|gateway| gateway.gateway).collect();
        assert_eq!(names, ["lost", "other"]);
    }
}

#[test]
fn own_records_are_shown_while_postgresql_is_away() {
    let mut server = Postgresql::start();
    let callers = [Caller::random()];
    let [mut one, mut two] = ["one", "two"].map(Recorder::new);
    let begun = clock::now().before(Duration::from_secs(60));
    for number in 0..12_u8 {
        let event = Event { caller: 0, time: begun.after(Duration::from_secs(number.into())), kind: 2 };
        if number % 2 == 0 { one.record(&callers, event) } else { two.record(&callers, event) }
    }
    one.ship(&server);
    two.ship(&server);
    let view = one.view(&server);
    let filter = Filter { key: Some(callers[0].key), ..Filter::default() };
    let first = view.list(&filter, 5, None, 1 << 20).unwrap();
    assert_eq!(first.records.len(), 5);
    server.crash();
    let own = merge(one.export(&filter));
    let away = view.list(&filter, 4, None, 1 << 20).unwrap();
    let status = away.status.unwrap();
    assert_eq!((status.scope, status.reason), (ViewScope::Gateway, Some(OwnOnlyReason::Unavailable)));
    assert_eq!(away.records, own[..4]);
    // A list that began with the records of all goes on with the own ones behind its cursor.
    let rest = view.list(&filter, 100, first.next, 1 << 20).unwrap();
    let last = first.records.last().unwrap();
    let older: Vec<Record> =
        own.iter().filter(|record| (record.time, record.id) < (last.time, last.id)).cloned().collect();
    assert_eq!((rest.records, rest.next), (older, None));
    let activity = view.activity(callers[0].org, &[callers[0].key], clock::now(), 1 << 20).unwrap();
    assert_eq!(activity.status.unwrap().scope, ViewScope::Gateway);
    assert_eq!(activity.keys[&callers[0].key].last.as_ref().unwrap().id, own[0].id);
    server.restart();
    // One that began with the own records goes on with them.
    let page = view.list(&filter, 4, away.next, 1 << 20).unwrap();
    assert_eq!(page.status.unwrap().reason, Some(OwnOnlyReason::Cursor));
    assert_eq!(page.records, own[4..]);
    crate::support::eventually("the records of all are shown again", || {
        let page = view.list(&filter, 100, None, 1 << 20).unwrap();
        page.status.unwrap().scope == ViewScope::Fleet && page.records.len() == 12
    });
    assert_eq!(list(&view, &filter, 5).len(), 12);
    assert_eq!(list(&view, &filter, 5)[..5], first.records[..]);
}

#[test]
fn follower_returns_each_record_of_all_gateways_once() {
    let server = Postgresql::start();
    let callers = [Caller::random()];
    let [mut one, mut two] = ["one", "two"].map(Recorder::new);
    let record = |recorder: &mut Recorder, kind| {
        recorder.record(&callers, Event { caller: 0, time: clock::now(), kind });
    };
    record(&mut one, 2);
    record(&mut two, 2);
    record(&mut two, 4);
    one.ship(&server);
    two.ship(&server);
    let mut follower = one.view(&server).follow(Filter::default(), 10).unwrap();
    let mut found = follower.poll().unwrap();
    assert_eq!(found.len(), 2, "the last ones that are complete: {found:?}");
    record(&mut one, 2);
    record(&mut two, 0);
    two.end_one(0);
    two.ship(&server);
    crate::support::eventually("all records have arrived", || {
        found.extend(follower.poll().unwrap());
        found.len() >= 5
    });
    // Nothing comes twice with what is shipped next.
    record(&mut two, 2);
    two.ship(&server);
    crate::support::eventually("the next record has arrived", || {
        found.extend(follower.poll().unwrap());
        found.len() >= 6
    });
    let mut ids: Vec<_> = found.iter().map(|record| record.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), found.len()), (6, 6), "{found:?}");
    assert!(found.iter().all(|record| record.outcome != Outcome::InProgress));
}

/// Own records come from the journal, whatever the gateway was called when it shipped them; of a gateway that comes
/// later, all are shown.
#[test]
fn follower_shows_newcomers_and_after_a_renaming_each_own_record_once() {
    let server = Postgresql::start();
    let callers = [Caller::random()];
    let [mut one, mut two] = ["one", "two"].map(Recorder::new);
    let record = |recorder: &mut Recorder| {
        recorder.record(&callers, Event { caller: 0, time: clock::now(), kind: 2 });
        recorder.ship(&server);
    };
    record(&mut one);
    record(&mut two);
    drop(two);
    one.rename("renamed");
    record(&mut one);
    // One is silent since its last record of half an hour ago, and one has come back with another disk since.
    let mut silent = Recorder::new("silent");
    let long_ago = clock::now().before(Duration::from_secs(30 * 60 + 1));
    silent.record(&callers, Event { caller: 0, time: long_ago, kind: 2 });
    silent.ship(&server);
    let age = "UPDATE keygate.journals SET complete_until = complete_until - interval '30 minutes', \
               updated_at = updated_at - interval '30 minutes' WHERE gateway IN ('silent', 'two') RETURNING 1";
    assert_eq!(server.sql(age).len(), 2);
    let mut two = Recorder::new("two");
    record(&mut two);
    let mut follower = one.view(&server).follow(Filter::default(), 0).unwrap();
    assert_eq!(follower.poll().unwrap(), []);
    let begun = clock::now();
    record(&mut one);
    let mut three = Recorder::new("three");
    record(&mut three);
    record(&mut two);
    record(&mut silent);
    let mut found = Vec::new();
    for expected in [4, 5] {
        crate::support::eventually("the records have arrived", || {
            found.extend(follower.poll().unwrap());
            found.len() >= expected
        });
        record(&mut two);
    }
    let ids: HashSet<_> = found.iter().map(|record| record.id).collect();
    assert_eq!((ids.len(), found.len()), (5, 5), "{found:?}");
    assert!(found.iter().all(|record| record.time >= begun), "{found:?}");
}

#[test]
fn follower_begins_with_the_own_records_while_postgresql_is_away() {
    let mut server = Postgresql::start();
    let callers = [Caller::random()];
    let [mut one, mut two] = ["one", "two"].map(Recorder::new);
    let record = |recorder: &mut Recorder| {
        recorder.record(&callers, Event { caller: 0, time: clock::now(), kind: 2 });
    };
    (0..5).for_each(|_| record(&mut one));
    record(&mut two);
    one.ship(&server);
    two.ship(&server);
    server.crash();
    let mut follower = one.view(&server).follow(Filter::default(), 3).unwrap();
    let mut found = follower.poll().unwrap();
    assert_eq!(found, one.export(&Filter::default())[2..]);
    server.restart();
    crate::support::eventually("PostgreSQL is read", || {
        found.extend(follower.poll().unwrap());
        follower.status().unwrap().scope == ViewScope::Fleet
    });
    assert_eq!(found.len(), 3, "what was there before is not shown: {found:?}");
    record(&mut two);
    two.ship(&server);
    crate::support::eventually("the record has arrived", || {
        found.extend(follower.poll().unwrap());
        found.len() > 3
    });
    assert_eq!((found.len(), &*found[3].gateway), (4, "two"));
}

#[test]
fn database_that_hangs_does_not_hold_a_read() {
    // The kernel accepts connections, and no process answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgresql://audit@127.0.0.1:{}/audit?sslmode=disable", silent.local_addr().unwrap().port());
    let database = platform::postgresql::Settings::parse(&url, None).unwrap();
    let mut recorder = Recorder::new("one");
    recorder.record(&[Caller::random()], Event { caller: 0, time: clock::now(), kind: 2 });
    let view = AuditView::of_journal(recorder.journal.clone());
    view.set_fleet(Some(Fleet::open(database, Duration::from_millis(100)).unwrap()));
    for _ in 0..2 {
        let page = view.list(&Filter::default(), 5, None, 1 << 20).unwrap();
        assert_eq!((page.records.len(), page.status.unwrap().reason), (1, Some(OwnOnlyReason::Unavailable)));
    }
}
