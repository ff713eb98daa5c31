//! Embedded state: session quota keys, sessions and tickets in the state file.

use std::path::Path;
use std::time::Duration;

use domain::clock;
use rusqlite::Connection;
use state::embedded::{JournaledUse, UsedKey};
use state::{Change, Session, TicketSource};

use super::cases_sessions::{created, end, find, new_session};
use super::cases_tickets::{put, put_by, take};
use super::embedded::{as_embedded, crashed, open, opened};
use super::fixture::{admit, drain, fixture_with_key, rate_limit_status, refuse};
use super::runtime::block_on;

const LIFE: Duration = Duration::from_secs(300);

fn rows(dir: &Path, table: &str) -> i64 {
    let file = Connection::open(dir.join("state.db")).unwrap();
    file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn session_survives_a_restart_and_its_end_a_crash() {
    let (state, dir) = opened();
    let (session, digest) = block_on(created(&state));
    let (other, others) = block_on(created(&state));
    let org = other.memberships[1].org;
    block_on(state.change(Change::ChooseOrg { session: other.id, org })).unwrap();
    let used = session.created.after(Duration::from_secs(7));
    block_on(find(&state, &digest, used));
    let left = crashed(dir.path());
    let crashed_state = open(left.path());
    assert_eq!(block_on(find(&crashed_state, &digest, session.created)), Some(session.clone()));
    assert_eq!(block_on(find(&crashed_state, &others, other.created)).unwrap().chosen, org);
    drop(state);
    let state = open(dir.path());
    assert_eq!(block_on(state.sessions(used)).unwrap()[0].seen, used, "what was used is written at the end");
    block_on(end(&state, session.id));
    let left = crashed(dir.path());
    let state = open(left.path());
    assert_eq!(block_on(find(&state, &digest, session.created)), None);
    assert_eq!(block_on(state.sessions(other.created)).unwrap().len(), 1);
}

#[test]
fn expired_records_are_removed_from_the_file() {
    let (state, dir) = opened();
    let now = clock::now();
    block_on(async {
        created(&state).await;
        for (idle, life) in [(LIFE, Duration::ZERO), (Duration::ZERO, LIFE)] {
            let (session, digest) = new_session();
            let session = Session { idle, expires: now.after(life), ..session };
            state.change(Change::CreateSession { session: Box::new(session), digest }).await.unwrap();
        }
        put(&state, b"valid", now.after(LIFE)).await;
        put(&state, b"over", now).await;
    });
    assert_eq!((rows(dir.path(), "sessions"), rows(dir.path(), "tickets")), (3, 2));
    drop(state);
    assert_eq!((rows(dir.path(), "sessions"), rows(dir.path(), "tickets")), (1, 1));
}

#[test]
fn ticket_survives_a_restart_and_is_not_given_again_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let now = clock::now();
    let digest = block_on(put(&open(dir.path()), b"a link", now.after(LIFE)));
    let state = open(dir.path());
    assert_eq!(block_on(take(&state, &digest, now)).as_deref(), Some(&b"a link"[..]));
    let left = crashed(dir.path());
    assert_eq!(block_on(take(&open(left.path()), &digest, now)), None);
}

#[test]
fn tickets_are_bounded_and_those_that_expire_first_go() {
    let dir = tempfile::tempdir().unwrap();
    let (state, now) = (open(dir.path()), clock::now());
    let tickets: Vec<_> = block_on(futures_util::future::join_all(
        (0..10_100).map(|number| put(&state, b"x", now.after(LIFE + Duration::from_secs(number)))),
    ));
    assert_eq!(rows(dir.path(), "tickets"), 10_000);
    assert_eq!(block_on(take(&state, &tickets[99], now)), None);
    assert!(block_on(take(&state, &tickets[100], now)).is_some());
}

#[test]
fn sign_ins_remove_neither_links_nor_the_few_sign_ins_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let (state, now) = (open(dir.path()), clock::now());
    let visitor = |number: u8| TicketSource::Visitor(Some([192, 0, 2, number].into()));
    let link = block_on(put(&state, b"link", now.after(LIFE)));
    let claim = block_on(put_by(&state, TicketSource::Gateway, b"claim", now.after(LIFE)));
    // They expire before all that follow.
    let few = block_on(put_by(&state, visitor(0), b"few", now.after(LIFE)));
    let flood = |visitors: std::ops::RangeInclusive<u8>, each: u64| {
        let begun = visitors.flat_map(|number| (0..each).map(move |second| (number, second)));
        block_on(futures_util::future::join_all(begun.map(|(number, second)| {
            put_by(&state, visitor(number), b"x", now.after(LIFE + Duration::from_secs(1 + second)))
        })))
    };
    let first = flood(1..=1, 1100);
    assert_eq!(rows(dir.path(), "tickets"), 1003, "one address has a bound of its own");
    assert_eq!(block_on(take(&state, &first[99], now)), None);
    flood(2..=12, 1000);
    let left = rows(dir.path(), "tickets");
    assert!((9_900..=10_002).contains(&left), "all together have one, without links and claims: {left}");
    assert_eq!(block_on(take(&state, &few, now)).as_deref(), Some(&b"few"[..]));
    assert_eq!(block_on(take(&state, &link, now)).as_deref(), Some(&b"link"[..]));
    assert_eq!(block_on(take(&state, &claim, now)).as_deref(), Some(&b"claim"[..]));
}

#[test]
fn session_quota_bucket_is_not_refilled_by_a_replay() {
    let (state, dir) = opened();
    let (fixture, key) = block_on(fixture_with_key(&state));
    let quota_key = block_on(fixture.session_quota_key(&state, fixture.user));
    let left = crashed(dir.path());
    let now = clock::now();
    block_on(drain(&state, &quota_key, now));
    let restarted = open(left.path());
    let uses: Vec<JournaledUse> = (1..=5)
        .map(|number| JournaledUse { key: UsedKey::SessionQuotaKey(fixture.user), time: now, number, cost: 1 })
        .collect();
    assert_eq!(as_embedded(&restarted).replay(&uses, 1), 5);
    assert_eq!(as_embedded(&restarted).replay(&uses, 1), 0);
    assert_eq!(
        block_on(rate_limit_status(&restarted, &quota_key, now)),
        block_on(rate_limit_status(&state, &quota_key, now))
    );
    block_on(refuse(&restarted, &quota_key, now));
    block_on(admit(&restarted, &key, now));
}
