//! Replaced and deleted queries: first pages pass none of them, and an organization's snapshots keep a bounded amount
//! of them, on both engines.

use domain::identity::{OrgId, UserId};
use http::Method;
use query_store::store::{Bookmark, HistoryLimit, Store, StoreError};
use uuid::Uuid;

use super::contract::{KEPT, collect_all, expiry};
use super::support::{Engine, Fixture, Home, NOW, draft, runtime, with_every_engine};

/// Bytes that a query of these tests counts when it is replaced: its name, its text, and 512.
const COST: u64 = 5 + 14 + 512;
/// Bound of the tests: room for ten of them.
const LIMIT: HistoryLimit = HistoryLimit(10 * COST);

with_every_engine!(
    history_of_an_organization_is_bounded,
    history_is_free_again_when_snapshots_have_expired,
    full_history_is_answered_with_429,
);

fn store(home: &Home) -> Store {
    match home.store() {
        Store::Sqlite(store) => Store::Sqlite(store.with_history_limit(LIMIT)),
        Store::Postgresql(store) => Store::Postgresql(store.with_history_limit(LIMIT)),
    }
}

async fn fill(store: &Store, org: OrgId, count: usize) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(store.create(org, UserId::generate(), draft("12345"), NOW).await.unwrap().id);
    }
    ids
}

/// Begins a sequence of pages; `None` when the history is full.
async fn begin(store: &Store, org: OrgId) -> Option<Bookmark> {
    match store.page(org, None, 1, expiry(NOW)).await {
        Ok(page) => Some(page.unwrap().next.unwrap()),
        Err(StoreError::HistoryFull) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Replaces a query; false when the history is full.
async fn replace(store: &Store, org: OrgId, id: Uuid) -> bool {
    match store.replace(org, id, draft("12345"), NOW).await {
        Ok(replaced) => replaced.is_some(),
        Err(StoreError::HistoryFull) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Begins sequences and replaces a query behind each until that is refused. Returns how many of each there were.
async fn exhaust(store: &Store, org: OrgId, id: Uuid) -> (usize, usize) {
    let (mut sequences, mut edits) = (0, 0);
    for _ in 0..100 {
        sequences += usize::from(begin(store, org).await.is_some());
        if !replace(store, org, id).await {
            break;
        }
        edits += 1;
    }
    (sequences, edits)
}

fn history_of_an_organization_is_bounded(engine: Engine) {
    let home = engine.home();
    runtime().block_on(async {
        let store = store(&home);
        let org = OrgId::generate();
        let ids = fill(&store, org, 3).await;
        let first = begin(&store, org).await;
        // Five replaced queries are half of the bound: the sequences behind them are refused, edits go on to the tenth.
        assert_eq!(exhaust(&store, org, ids[0]).await, (5, 10));
        assert_eq!(store.stats().await.unwrap().ended, 10);
        assert!(matches!(store.delete(org, ids[1]).await, Err(StoreError::HistoryFull)));
        assert_eq!(store.stats().await.unwrap().current, 3, "a refusal changes nothing");
        assert!(begin(&store, org).await.is_none());

        // Whatever adds no history goes on, and so do other organizations.
        assert!(store.create(org, UserId::generate(), draft("new"), NOW).await.is_ok());
        assert!(store.page(org, None, 10, expiry(NOW)).await.unwrap().unwrap().next.is_none());
        let rest = store.page(org, first, 10, expiry(NOW)).await.unwrap().unwrap();
        assert_eq!(rest.items.iter().map(|query| query.id).collect::<Vec<_>>(), [ids[1], ids[0]]);
        assert!(!store.delete(org, Uuid::now_v7()).await.unwrap(), "a query that does not exist");
        let other = OrgId::generate();
        let others = fill(&store, other, 2).await;
        assert!(begin(&store, other).await.is_some() && replace(&store, other, others[0]).await);
    });
}

fn history_is_free_again_when_snapshots_have_expired(engine: Engine) {
    let home = engine.home();
    runtime().block_on(async {
        let store = store(&home);
        let org = OrgId::generate();
        let ids = fill(&store, org, 3).await;
        for round in 0..3 {
            let later = NOW.after(KEPT);
            let begun = begin(&store, org).await;
            assert!(begun.is_some(), "round {round}");
            assert_eq!(exhaust(&store, org, ids[0]).await.1, 10, "round {round}");
            // Only a live snapshot keeps history: the nine row versions between two edits without one are collected.
            collect_all(&store, later).await;
            assert_eq!(store.stats().await.unwrap().ended, 0, "round {round}");
        }
        assert!(store.delete(org, ids[0]).await.unwrap());
    });
}

fn full_history_is_answered_with_429(engine: Engine) {
    runtime().block_on(async {
        let fixture = Fixture::with(engine, |settings| settings.history = HistoryLimit(1)).seeded(3).await;
        let page = fixture.get("/api/queries").await;
        let target = format!("/api/queries/{}", page.items()[0]["id"].as_str().unwrap());
        for method in [Method::PUT, Method::DELETE] {
            let refused = fixture.write(method.clone(), &target, r#"{"name":"n","sql":"select 1"}"#).await;
            assert_eq!(refused.code(), (429, "history_full"), "{method}");
            assert_eq!(refused.headers["retry-after"], "60");
            assert!(
                refused.body["detail"].as_str().unwrap().contains("until older cursors have expired"),
                "{refused:?}"
            );
        }
        assert_eq!(fixture.get("/api/queries?limit=1").await.code(), (429, "history_full"));
        assert_eq!(fixture.get("/api/queries?limit=3").await.status, 200);
        assert_eq!(fixture.get(&target).await.status, 200);
    });
}
