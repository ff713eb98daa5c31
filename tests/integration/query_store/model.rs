//! The store against a model that keeps whole copies: random interleavings of writes, several page sequences, expiry
//! and garbage collection.

use std::collections::HashMap;

use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use proptest::prelude::*;
use query_store::query::Query;
use query_store::store::{Bookmark, GcProgress, Store, StoreStats};

use super::contract::{KEPT, collect_all, expiry};
use super::support::{Engine, NOW, draft, runtime, with_every_engine};

#[derive(Clone, Debug)]
enum Step {
    Create {
        org: usize,
    },
    Edit {
        org: usize,
        which: usize,
    },
    Delete {
        org: usize,
        which: usize,
    },
    Begin {
        org: usize,
        limit: usize,
    },
    /// Reads a page by any of the cursors that were returned so far.
    Continue {
        which: usize,
        limit: usize,
    },
    CollectSome {
        batch: usize,
    },
    CollectAll,
    /// Seconds; a cursor lives for 1000 of them.
    Wait {
        seconds: u64,
    },
}

/// A cursor that a client has, and the expected rest of its sequence.
#[derive(Clone)]
struct HeldCursor {
    org: usize,
    bookmark: Bookmark,
    rest: Vec<Query>,
    expires: Micros,
}

struct Model {
    store: Store,
    orgs: [OrgId; 2],
    /// The current queries of each organization, newest first.
    collections: HashMap<usize, Vec<Query>>,
    held: Vec<HeldCursor>,
    progress: GcProgress,
    now: Micros,
    created: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let (org, any) = (0..2_usize, any::<usize>());
    prop_oneof![
        4 => org.clone().prop_map(|org| Step::Create { org }),
        3 => (org.clone(), any).prop_map(|(org, which)| Step::Edit { org, which }),
        3 => (org.clone(), any).prop_map(|(org, which)| Step::Delete { org, which }),
        2 => (org, 1..5_usize).prop_map(|(org, limit)| Step::Begin { org, limit }),
        6 => (any, 1..5_usize).prop_map(|(which, limit)| Step::Continue { which, limit }),
        2 => (1..4_usize).prop_map(|batch| Step::CollectSome { batch }),
        1 => Just(Step::CollectAll),
        1 => (1..700_u64).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

impl Model {
    fn new(store: Store) -> Self {
        let orgs = [OrgId::generate(), OrgId::generate()];
        let collections = HashMap::from([(0, Vec::new()), (1, Vec::new())]);
        Self { store, orgs, collections, held: Vec::new(), progress: GcProgress::default(), now: NOW, created: 0 }
    }

    async fn run(&mut self, step: Step) {
        match step {
            Step::Create { org } => self.create(org).await,
            Step::Edit { org, which } => self.edit(org, which).await,
            Step::Delete { org, which } => self.delete(org, which).await,
            Step::Begin { org, limit } => {
                let expected = self.collections[&org].clone();
                self.page(org, None, expected, limit).await;
            }
            Step::Continue { which, limit } => self.continue_sequence(which, limit).await,
            Step::CollectSome { batch } => {
                let collected = self.store.collect_garbage(self.progress, batch, self.now).await.unwrap();
                self.progress = collected.next.unwrap_or_default();
            }
            Step::CollectAll => drop(collect_all(&self.store, self.now).await),
            Step::Wait { seconds } => self.now = self.now.after(std::time::Duration::from_secs(seconds)),
        }
    }

    async fn create(&mut self, org: usize) {
        self.created += 1;
        let draft = draft(&format!("query {}", self.created));
        let query = self.store.create(self.orgs[org], UserId::generate(), draft, self.now).await.unwrap();
        self.collections.get_mut(&org).unwrap().insert(0, query);
    }

    async fn edit(&mut self, org: usize, which: usize) {
        let collection = self.collections.get_mut(&org).unwrap();
        if collection.is_empty() {
            return;
        }
        let edited = which % collection.len();
        let draft = draft(&format!("edit {which}"));
        let replaced = self.store.replace(self.orgs[org], collection[edited].id, draft, self.now).await.unwrap();
        collection[edited] = replaced.unwrap();
    }

    async fn delete(&mut self, org: usize, which: usize) {
        let collection = self.collections.get_mut(&org).unwrap();
        if collection.is_empty() {
            return;
        }
        let deleted = collection.remove(which % collection.len());
        assert!(self.store.delete(self.orgs[org], deleted.id).await.unwrap());
    }

    async fn continue_sequence(&mut self, which: usize, limit: usize) {
        // The service refuses expired cursors before it calls the store.
        self.held.retain(|held| held.expires > self.now);
        if self.held.is_empty() {
            return;
        }
        let HeldCursor { org, bookmark, rest, .. } = self.held[which % self.held.len()].clone();
        self.page(org, Some(bookmark), rest, limit).await;
    }

    /// Reads a page, compares it with the expected rest of its sequence, and keeps its cursor.
    async fn page(&mut self, org: usize, after: Option<Bookmark>, expected: Vec<Query>, limit: usize) {
        let page = self.store.page(self.orgs[org], after, limit, expiry(self.now)).await.unwrap();
        let page = page.expect("a cursor that has not expired leads to a page");
        let (shown, rest) = expected.split_at(limit.min(expected.len()));
        assert_eq!(page.items, shown);
        assert_eq!(page.next.is_some(), !rest.is_empty());
        let expires = self.now.after(KEPT);
        self.held.extend(page.next.map(|bookmark| HeldCursor { org, bookmark, rest: rest.to_vec(), expires }));
    }

    /// Checks that every sequence can be read to its end, and that nothing is kept once all have expired.
    async fn check_end(mut self) {
        self.held.retain(|held| held.expires > self.now);
        for held in self.held.clone() {
            self.page(held.org, Some(held.bookmark), held.rest, 1000).await;
        }
        collect_all(&self.store, self.now.after(KEPT)).await;
        let current = self.collections.values().map(|collection| collection.len() as u64).sum();
        assert_eq!(self.store.stats().await.unwrap(), StoreStats { current, ended: 0, snapshots: 0 });
    }
}

with_every_engine!(sequences_show_the_content_as_of_their_first_page);

fn sequences_show_the_content_as_of_their_first_page(engine: Engine) {
    let config = ProptestConfig { cases: cases(engine), failure_persistence: None, ..ProptestConfig::default() };
    let home = std::cell::Cell::new(Some(engine.home()));
    proptest!(config, |(steps in prop::collection::vec(step(), 1..120))| {
        let fresh = home.take().unwrap_or_else(|| engine.home()).emptied();
        runtime().block_on(async {
            let mut model = Model::new(fresh.store());
            for step in steps {
                model.run(step).await;
            }
            model.check_end().await;
        });
        home.set(Some(fresh));
    });
}

/// Number of cases; `KEYGATE_STORE_CASES` gives another one. A case with PostgreSQL takes some hundred round trips.
fn cases(engine: Engine) -> u32 {
    let given = std::env::var("KEYGATE_STORE_CASES").ok().and_then(|cases| cases.parse().ok());
    given.unwrap_or(if engine == Engine::Sqlite { 96 } else { 16 })
}
