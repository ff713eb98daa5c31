//! Several query-stores over one database: page sequences through any of them, beside writers and collectors.
//!
//! One writer per organization keeps the list of its states. A page sequence must equal one of the states between the
//! last one that was acknowledged before its first page and the last one that was begun before its end.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use domain::identity::{OrgId, UserId};
use platform::postgresql::Connector;
use query_store::query::Query;
use query_store::store::Store;

use super::contract::{collect_all, expiry};
use super::support::{Engine, Home, NOW, draft, postgresql_settings, runtime};
use crate::support::Random;

/// Writes of the test in one process.
const WRITES: usize = 300;

/// Names of the queries of an organization after each write, newest first. The last one may not be acknowledged yet.
pub(super) type States = Vec<Vec<String>>;

pub(super) fn assert_is_a_state(shown: &[String], states: &[Vec<String>], what: &str) {
    assert!(states.iter().any(|state| state == shown), "{what}: {shown:?} is none of {} states", states.len());
}

#[test]
fn collectors_keep_what_sequences_through_several_stores_see() {
    let home = Engine::Postgresql.home();
    runtime().block_on(async {
        let stores = [home.store(), home.store(), home.store()];
        let (org, user) = (OrgId::generate(), UserId::generate());
        let (states, done): (RefCell<States>, _) = (RefCell::new(vec![Vec::new()]), Cell::new(false));
        let sequences = Cell::new(0);
        tokio::join!(
            async {
                write(&stores, org, user, &states).await;
                done.set(true);
            },
            read_until(&done, &stores, 0, org, &states, &sequences),
            read_until(&done, &stores, 1, org, &states, &sequences),
            collect_until(&done, &stores[0]),
            collect_until(&done, &stores[1]),
        );
        assert!(sequences.get() > 0);
        // Once all snapshots have expired, nothing but the last state is left.
        collect_all(&stores[2], NOW.after(Duration::from_secs(100_000))).await;
        let stats = stores[2].stats().await.unwrap();
        let current = states.borrow().last().unwrap().len() as u64;
        assert_eq!((stats.current, stats.ended, stats.snapshots), (current, 0, 0));
    });
}

#[test]
fn snapshot_is_registered_before_a_write_can_end_what_it_sees() {
    let home = Engine::Postgresql.home();
    let Home::Postgresql { server, database } = &home else { unreachable!() };
    runtime().block_on(async {
        let (store, org, user) = (home.store(), OrgId::generate(), UserId::generate());
        let mut all = Vec::new();
        for number in 0..5 {
            all.insert(0, store.create(org, user, draft(&format!("name {number}")), NOW).await.unwrap());
        }
        // The same registration, not committed: that of the page waits for it, with the version in hand.
        let settings = postgresql_settings(&server.url_of(database));
        let blocker = Connector::open(settings.database).unwrap().connect("blocker").await.unwrap();
        let register = "BEGIN; INSERT INTO query_store.snapshots SELECT number, version, 0 FROM query_store.orgs";
        blocker.batch_execute(register).await.unwrap();
        let deleted = Cell::new(false);
        let waiting = async |count: usize| {
            let waiting =
                format!("SELECT 1 FROM pg_stat_activity WHERE datname = '{database}' AND wait_event_type = 'Lock'");
            while server.sql_in(database, &waiting).len() < count && !deleted.get() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let deletion = async {
            waiting(1).await;
            assert!(store.delete(org, all[4].id).await.unwrap());
            deleted.set(true);
        };
        let release = async {
            waiting(2).await;
            collect_all(&store, NOW).await;
            blocker.batch_execute("ROLLBACK").await.unwrap();
        };
        let (first, (), ()) = tokio::join!(store.page(org, None, 2, expiry(NOW)), deletion, release);
        let first = first.unwrap().unwrap();
        collect_all(&store, NOW).await;
        let rest = store.page(org, first.next, 10, expiry(NOW)).await.unwrap().unwrap();
        assert_eq!([first.items, rest.items].concat(), all);
    });
}

/// Makes random writes, each through another store.
async fn write(stores: &[Store], org: OrgId, user: UserId, states: &RefCell<States>) {
    let (mut random, mut queries) = (Random::new(1), Vec::<Query>::new());
    for number in 0..WRITES {
        let (store, name) = (&stores[number % stores.len()], format!("name {number}"));
        let which = random.index(queries.len().max(1));
        let mut next = states.borrow().last().unwrap().clone();
        match random.below(if queries.len() < 20 { 1 } else { 3 }) {
            0 => {
                next.insert(0, name.clone());
                states.borrow_mut().push(next);
                queries.insert(0, store.create(org, user, draft(&name), NOW).await.unwrap());
            }
            1 => {
                next[which].clone_from(&name);
                states.borrow_mut().push(next);
                let replaced = store.replace(org, queries[which].id, draft(&name), NOW).await.unwrap();
                queries[which] = replaced.unwrap();
            }
            _ => {
                next.remove(which);
                states.borrow_mut().push(next);
                assert!(store.delete(org, queries.remove(which).id).await.unwrap());
            }
        }
    }
}

/// Reads sequences, each page through another store, and checks each against the states.
async fn read_until(
    done: &Cell<bool>,
    stores: &[Store],
    offset: usize,
    org: OrgId,
    states: &RefCell<States>,
    sequences: &Cell<usize>,
) {
    while !done.get() {
        // The last state may be a write that is under way: the one before is certain.
        let first = states.borrow().len().saturating_sub(2);
        let (mut shown, mut after, mut turn) = (Vec::new(), None, offset);
        loop {
            let store = &stores[turn % stores.len()];
            let page = store.page(org, after, 3, expiry(NOW)).await.unwrap().expect("the snapshot is live");
            shown.extend(page.items.into_iter().map(|query| query.name));
            (after, turn) = (page.next, turn + 1);
            if after.is_none() {
                break;
            }
        }
        assert_is_a_state(&shown, &states.borrow()[first..], "sequence");
        sequences.set(sequences.get() + 1);
    }
}

async fn collect_until(done: &Cell<bool>, store: &Store) {
    while !done.get() {
        collect_all(store, NOW).await;
    }
}
