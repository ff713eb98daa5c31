//! Pages from a replica: a real one, whose replay is paused at chosen moments. The primary is ended to show which of
//! the two has served a page.

use domain::identity::{OrgId, UserId};
use query_store::store::{Bookmark, Page, PostgresqlStore, Store, StoreError};

use super::contract::expiry;
use super::support::{NOW, draft, postgresql_settings, runtime};
use crate::support::{Postgresql, eventually};

async fn page(store: &Store, org: OrgId, after: Option<Bookmark>) -> Result<Page, StoreError> {
    Ok(store.page(org, after, 2, expiry(NOW)).await?.expect("the snapshot is live"))
}

/// Waits until the replica shows everything that the primary has committed.
fn wait_for_replay(primary: &Postgresql, replica: &Postgresql) {
    let position = &primary.sql("SELECT pg_current_wal_flush_lsn()")[0];
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn");
    eventually("the replica has everything", || replica.sql(&replayed) == ["t"]);
}

#[test]
fn replica_serves_the_snapshots_that_it_has_reached() {
    let mut primary = Postgresql::start();
    let replica = primary.replica();
    runtime().block_on(async {
        let mut settings = postgresql_settings(&primary.url());
        settings.replicas = vec![platform::postgresql::Settings::parse(&replica.url(), None).unwrap()];
        let store = Store::Postgresql(PostgresqlStore::open(&settings).unwrap());
        let (org, user) = (OrgId::generate(), UserId::generate());
        for number in 0..7 {
            store.create(org, user, draft(&format!("query {number}")), NOW).await.unwrap();
        }
        let reached = page(&store, org, None).await.unwrap();
        wait_for_replay(&primary, &replica);
        replica.sql("SELECT pg_wal_replay_pause()");
        eventually("the replay is paused", || replica.sql("SELECT pg_get_wal_replay_pause_state()") == ["paused"]);
        store.delete(org, reached.items[0].id).await.unwrap();
        let ahead = page(&store, org, None).await.unwrap();

        // The replica lacks this snapshot, so its pages come from the primary.
        let next = page(&store, org, ahead.next).await.unwrap();
        assert_eq!([names(&ahead), names(&next)].concat(), ["query 5", "query 4", "query 3", "query 2"]);
        primary.crash();
        let error = page(&store, org, ahead.next).await.unwrap_err();
        assert!(matches!(error, StoreError::Postgresql(_)), "{error:?}");
        // It has this one, whose pages need the primary no longer.
        let mut shown = names(&reached);
        let mut next = reached.next;
        while next.is_some() {
            let page = page(&store, org, next).await.unwrap();
            shown.extend(names(&page));
            next = page.next;
        }
        let all: Vec<String> = (0..7).rev().map(|number| format!("query {number}")).collect();
        assert_eq!(shown, all);
    });
}

#[test]
fn primary_serves_the_pages_of_a_replica_that_is_away() {
    let server = Postgresql::shared();
    let database = server.create_database();
    runtime().block_on(async {
        let mut settings = postgresql_settings(&server.url_of(&database));
        let away = format!("postgresql://a@127.0.0.1:{}/b", crate::support::free_port());
        settings.replicas = vec![platform::postgresql::Settings::parse(&away, None).unwrap()];
        let store = Store::Postgresql(PostgresqlStore::open(&settings).unwrap());
        let org = OrgId::generate();
        for number in 0..5 {
            store.create(org, UserId::generate(), draft(&format!("query {number}")), NOW).await.unwrap();
        }
        let first = page(&store, org, None).await.unwrap();
        let second = page(&store, org, first.next).await.unwrap();
        assert_eq!(names(&second), ["query 2", "query 1"]);
    });
}

fn names(page: &Page) -> Vec<String> {
    page.items.iter().map(|query| query.name.clone()).collect()
}
