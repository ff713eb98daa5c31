//! Contract of the store: the same cases for every engine.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use query_store::query::Query;
use query_store::store::{Bookmark, GcProgress, Page, SnapshotExpiry, Store, StoreStats};

use super::support::{Engine, NOW, draft, runtime, with_every_engine};

/// Lifetime of the snapshots of these tests.
pub const KEPT: Duration = Duration::from_secs(1000);

with_every_engine!(
    writes_are_read_back,
    import_equals_single_creations,
    organizations_do_not_see_each_other,
    order_is_newest_first_and_not_changed_by_edits,
    full_last_page_has_no_successor,
    sequence_shows_the_content_as_of_its_first_page,
    pages_of_unregistered_snapshots_are_refused,
    garbage_collection_keeps_only_what_live_snapshots_see,
    garbage_collection_ignores_snapshots_that_do_not_see_the_row,
    garbage_collection_deletes_all_ended_rows_once_snapshots_expire,
    page_extends_its_snapshot,
    pass_continues_where_a_batch_ended,
    concurrent_writes_are_all_applied,
);

/// Runs a case with a fresh store.
fn with_store(engine: Engine, case: impl AsyncFnOnce(&Store)) {
    let home = engine.home();
    runtime().block_on(async { case(&home.store()).await });
}

pub fn expiry(now: Micros) -> SnapshotExpiry {
    SnapshotExpiry { at_least: now.after(KEPT), renew_to: now.after(KEPT) }
}

/// Runs one whole pass of garbage collection. Returns the number of deleted row versions.
pub async fn collect_all(store: &Store, now: Micros) -> usize {
    let (mut removed, mut from) = (0, Some(GcProgress::default()));
    while let Some(progress) = from {
        let batch = store.collect_garbage(progress, 3, now).await.unwrap();
        removed += batch.removed;
        from = batch.next;
    }
    removed
}

async fn page(store: &Store, org: OrgId, after: Option<Bookmark>, limit: usize) -> Page {
    store.page(org, after, limit, expiry(NOW)).await.unwrap().expect("the snapshot is live")
}

async fn fill(store: &Store, org: OrgId, count: usize) -> Vec<Query> {
    let mut newest_first = Vec::new();
    for number in 0..count {
        let query = store.create(org, UserId::generate(), draft(&format!("query {number}")), NOW).await.unwrap();
        newest_first.insert(0, query);
    }
    newest_first
}

fn writes_are_read_back(engine: Engine) {
    with_store(engine, async |store| writes_are_read_back_in(store).await);
}

async fn writes_are_read_back_in(store: &Store) {
    let (org, user) = (OrgId::generate(), UserId::generate());
    let created = store.create(org, user, draft("first"), NOW).await.unwrap();
    assert_eq!((&*created.name, &*created.sql), ("first", "select 'first'"));
    assert_eq!((created.created_at, created.updated_at, created.created_by), (NOW, NOW, user));
    assert_eq!(created.id.get_version_num(), 7);
    assert_eq!(store.read(org, created.id).await.unwrap(), Some(created.clone()));

    let later = NOW.after(KEPT);
    let replaced = store.replace(org, created.id, draft("second"), later).await.unwrap().unwrap();
    assert_eq!((&*replaced.name, &*replaced.sql), ("second", "select 'second'"));
    assert_eq!((replaced.created_at, replaced.updated_at, replaced.created_by), (NOW, later, user));
    assert_eq!(store.read(org, created.id).await.unwrap(), Some(replaced));

    assert!(store.delete(org, created.id).await.unwrap());
    assert_eq!(store.read(org, created.id).await.unwrap(), None);
    assert_eq!(store.replace(org, created.id, draft("third"), NOW).await.unwrap(), None);
    assert!(!store.delete(org, created.id).await.unwrap());
}

fn import_equals_single_creations(engine: Engine) {
    with_store(engine, async |store| import_equals_single_creations_in(store).await);
}

async fn import_equals_single_creations_in(store: &Store) {
    let (org, user) = (OrgId::generate(), UserId::generate());
    let later = NOW.after(KEPT);
    store.import(org, user, vec![(draft("a"), NOW), (draft("b"), later), (draft("c"), NOW)]).await.unwrap();
    let items = page(store, org, None, 10).await.items;
    let shown: Vec<_> = items.iter().map(|query| (&*query.name, query.created_at, query.created_by)).collect();
    assert_eq!(shown, [("c", NOW, user), ("b", later, user), ("a", NOW, user)]);
}

fn organizations_do_not_see_each_other(engine: Engine) {
    with_store(engine, async |store| organizations_do_not_see_each_other_in(store).await);
}

async fn organizations_do_not_see_each_other_in(store: &Store) {
    let (one, other) = (OrgId::generate(), OrgId::generate());
    let query = &fill(store, one, 2).await[0];
    assert_eq!(page(store, other, None, 10).await, Page { items: Vec::new(), next: None });
    fill(store, other, 3).await;
    assert_eq!(store.read(other, query.id).await.unwrap(), None);
    assert_eq!(store.replace(other, query.id, draft("mine"), NOW).await.unwrap(), None);
    assert!(!store.delete(other, query.id).await.unwrap());
    assert_eq!(page(store, one, None, 10).await.items.len(), 2);
    assert_eq!(page(store, other, None, 10).await.items.len(), 3);
}

fn order_is_newest_first_and_not_changed_by_edits(engine: Engine) {
    with_store(engine, async |store| order_is_newest_first_and_not_changed_by_edits_in(store).await);
}

async fn order_is_newest_first_and_not_changed_by_edits_in(store: &Store) {
    let org = OrgId::generate();
    let mut queries = fill(store, org, 5).await;
    queries[3] = store.replace(org, queries[3].id, draft("edited"), NOW).await.unwrap().unwrap();
    queries[1] = store.replace(org, queries[1].id, draft("edited"), NOW).await.unwrap().unwrap();
    assert_eq!(page(store, org, None, 10).await.items, queries);
}

fn full_last_page_has_no_successor(engine: Engine) {
    with_store(engine, async |store| full_last_page_has_no_successor_in(store).await);
}

async fn full_last_page_has_no_successor_in(store: &Store) {
    let org = OrgId::generate();
    let queries = fill(store, org, 4).await;
    let first = page(store, org, None, 2).await;
    let second = page(store, org, first.next, 2).await;
    assert_eq!([first.items, second.items].concat(), queries);
    assert_eq!(second.next, None);
    assert_eq!(page(store, org, None, 4).await.next, None);
    assert_eq!(store.stats().await.unwrap().snapshots, 1, "sequences of one page register nothing");
}

fn sequence_shows_the_content_as_of_its_first_page(engine: Engine) {
    with_store(engine, async |store| sequence_shows_the_content_as_of_its_first_page_in(store).await);
}

async fn sequence_shows_the_content_as_of_its_first_page_in(store: &Store) {
    let org = OrgId::generate();
    let queries = fill(store, org, 6).await;
    let first = page(store, org, None, 2).await;
    store.delete(org, queries[0].id).await.unwrap();
    store.delete(org, queries[3].id).await.unwrap();
    store.replace(org, queries[4].id, draft("edited"), NOW).await.unwrap();
    store.replace(org, queries[5].id, draft("edited"), NOW).await.unwrap();
    store.delete(org, queries[5].id).await.unwrap();
    fill(store, org, 3).await;
    let rest = page(store, org, first.next, 10).await;
    assert_eq!([first.items, rest.items].concat(), queries);
    assert_eq!(page(store, org, None, 10).await.items.len(), 6, "six, less three, and three");
}

fn pages_of_unregistered_snapshots_are_refused(engine: Engine) {
    with_store(engine, async |store| pages_of_unregistered_snapshots_are_refused_in(store).await);
}

async fn pages_of_unregistered_snapshots_are_refused_in(store: &Store) {
    let org = OrgId::generate();
    fill(store, org, 5).await;
    let next = page(store, org, None, 2).await.next;
    let refused = async |after| store.page(org, after, 2, expiry(NOW)).await.unwrap().is_none();
    assert!(!refused(next).await);
    collect_all(store, NOW.after(KEPT)).await;
    assert!(refused(next).await, "its registration was deleted");
    let page = store.page(OrgId::generate(), next, 2, expiry(NOW)).await.unwrap();
    assert_eq!(page, None, "an organization without queries");
}

fn garbage_collection_keeps_only_what_live_snapshots_see(engine: Engine) {
    with_store(engine, async |store| garbage_collection_keeps_only_what_live_snapshots_see_in(store).await);
}

async fn garbage_collection_keeps_only_what_live_snapshots_see_in(store: &Store) {
    let org = OrgId::generate();
    let queries = fill(store, org, 3).await;
    let first = page(store, org, None, 1).await;
    for name in ["a", "b", "c"] {
        // The first edit ends the row version that the snapshot sees; the others end row versions
        // that no snapshot sees.
        store.replace(org, queries[1].id, draft(name), NOW).await.unwrap();
    }
    store.delete(org, queries[2].id).await.unwrap();
    let newest = page(store, org, None, 1).await;
    assert_eq!(collect_all(store, NOW).await, 2);
    assert_eq!(store.stats().await.unwrap(), StoreStats { current: 2, ended: 2, snapshots: 2 });
    assert_eq!(page(store, org, first.next, 10).await.items, queries[1..]);
    assert_eq!(page(store, org, newest.next, 10).await.items[0].name, "c");
}

fn garbage_collection_ignores_snapshots_that_do_not_see_the_row(engine: Engine) {
    with_store(engine, async |store| garbage_collection_ignores_snapshots_that_do_not_see_the_row_in(store).await);
}

async fn garbage_collection_ignores_snapshots_that_do_not_see_the_row_in(store: &Store) {
    let (org, other) = (OrgId::generate(), OrgId::generate());
    fill(store, org, 5).await;
    page(store, org, None, 1).await;
    let unseen = store.create(org, UserId::generate(), draft("short"), NOW).await.unwrap();
    store.delete(org, unseen.id).await.unwrap();
    page(store, org, None, 1).await;
    // The query existed at version 6 only, of which another organization has a snapshot.
    fill(store, other, 6).await;
    page(store, other, None, 1).await;
    assert_eq!(collect_all(store, NOW).await, 1);
    assert_eq!(store.stats().await.unwrap(), StoreStats { current: 11, ended: 0, snapshots: 3 });
}

fn garbage_collection_deletes_all_ended_rows_once_snapshots_expire(engine: Engine) {
    with_store(engine, async |store| garbage_collection_deletes_all_ended_rows_once_snapshots_expire_in(store).await);
}

async fn garbage_collection_deletes_all_ended_rows_once_snapshots_expire_in(store: &Store) {
    let org = OrgId::generate();
    let queries = fill(store, org, 10).await;
    page(store, org, None, 1).await;
    for query in &queries[..7] {
        store.delete(org, query.id).await.unwrap();
    }
    let expiry = NOW.after(KEPT);
    assert_eq!(collect_all(store, Micros(expiry.0 - 1)).await, 0);
    assert_eq!(collect_all(store, expiry).await, 7);
    assert_eq!(store.stats().await.unwrap(), StoreStats { current: 3, ended: 0, snapshots: 0 });
}

fn page_extends_its_snapshot(engine: Engine) {
    with_store(engine, async |store| page_extends_its_snapshot_in(store).await);
}

async fn page_extends_its_snapshot_in(store: &Store) {
    let org = OrgId::generate();
    let queries = fill(store, org, 6).await;
    let first = page(store, org, None, 1).await;
    let later = NOW.after(KEPT / 2);
    let second = store.page(org, first.next, 1, expiry(later)).await.unwrap().unwrap();
    // Using the first cursor again must not shorten the lifetime that the second one was given.
    page(store, org, first.next, 1).await;
    for query in &queries {
        store.delete(org, query.id).await.unwrap();
    }
    collect_all(store, NOW.after(KEPT)).await;
    assert_eq!(page(store, org, second.next, 10).await.items, queries[2..]);
    assert_eq!(collect_all(store, later.after(KEPT)).await, 6);
}

fn pass_continues_where_a_batch_ended(engine: Engine) {
    with_store(engine, async |store| pass_continues_where_a_batch_ended_in(store).await);
}

async fn pass_continues_where_a_batch_ended_in(store: &Store) {
    for _ in 0..3 {
        let org = OrgId::generate();
        for query in fill(store, org, 4).await {
            store.delete(org, query.id).await.unwrap();
        }
    }
    let (mut removed, mut from) = (Vec::new(), Some(GcProgress::default()));
    while let Some(progress) = from {
        let batch = store.collect_garbage(progress, 5, NOW).await.unwrap();
        removed.push(batch.removed);
        from = batch.next;
    }
    assert_eq!(removed, [5, 5, 2]);
}

fn concurrent_writes_are_all_applied(engine: Engine) {
    with_store(engine, async |store| concurrent_writes_are_all_applied_in(store).await);
}

async fn concurrent_writes_are_all_applied_in(store: &Store) {
    let org = OrgId::generate();
    let queries = fill(store, org, 1).await;
    let creations = (0..200).map(|_| fill(store, org, 1));
    let edits = (0..200).map(|_| store.replace(org, queries[0].id, draft("edited"), NOW));
    let mut all: Vec<Work<'_>> = Vec::new();
    all.extend(creations.map(|work| Box::pin(async { drop(work.await) }) as _));
    all.extend(edits.map(|work| Box::pin(async { drop(work.await.unwrap().unwrap()) }) as _));
    join_all(all).await;
    assert_eq!(store.stats().await.unwrap(), StoreStats { current: 201, ended: 200, snapshots: 0 });
}

/// One of several concurrent operations.
type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Polls all of them until the last one is complete.
async fn join_all(mut all: Vec<Work<'_>>) {
    std::future::poll_fn(|cx| {
        all.retain_mut(|work| work.as_mut().poll(cx).is_pending());
        if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
