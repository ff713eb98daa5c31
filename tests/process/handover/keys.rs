//! Rotated and revoked keys, across a hand-over: both processes refuse what one of them has withdrawn, and
//! count the same uses.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::clock;
use domain::identity::OrgId;
use domain::key::OrgTag;
use domain::quota::Quota;
use state::{Bounds, Change, Embedded, Org, State, embedded};

use super::in_flight::{kept, reconfigure, start_slowly, status};
use super::{BLOCKS, Backend, Lineage, signal};
use crate::support::Setup;

/// The new secret of a key, after a rotation with this option.
fn rotate(lineage: &Lineage, key: &str, option: &[&str]) -> String {
    let rotated = lineage.setup.ok(&[&["key", "rotate", &key[8..17]][..], option].concat());
    rotated.lines().find(|line| line.starts_with("sk_live_")).expect("the new secret").to_owned()
}

#[test]
fn secret_that_was_rotated_at_the_new_process_is_refused_at_the_old_one_and_ends_what_is_open() {
    let backend = Backend::start();
    let (mut lineage, key, mut tunnel) = start_slowly(&backend, 10);
    let mut kept = [kept(&lineage, &key), kept(&lineage, &key)];
    let replaced = lineage.upgrade();
    tunnel.echo();
    let new = rotate(&lineage, &key, &[]);
    assert_eq!(tunnel.0.rest(), b"", "it is reset");
    let refused = kept[0].get("/", &key);
    assert_eq!((refused.status, &*refused.code()), (401, "invalid_token"));
    assert_eq!(kept[1].get("/", &new).status, 200);
    signal(replaced, "TERM");
    lineage.wait_for_end(replaced);
    assert_eq!(status(&lineage, &key), 401);
    // A rotation keeps the bucket: of the tunnel, the two requests before it and the one behind it.
    assert_eq!(lineage.taken(&key), 4);
    reconfigure(&lineage, "lame_duck: 20s", "lame_duck: 200ms");
    lineage.stop();
    let outcomes = lineage.outcomes();
    let wanted = [("completed", 3), ("expired", 2), ("terminated", 1)];
    assert_eq!(outcomes, wanted.map(|(outcome, count)| (outcome.to_owned(), count)).into());
}

#[test]
fn uses_by_a_secret_in_its_overlap_count_at_both_processes() {
    let backend = Backend::start();
    let (mut lineage, key, tunnel) = start_slowly(&backend, 10);
    let mut kept = kept(&lineage, &key);
    let replaced = lineage.upgrade();
    let new = rotate(&lineage, &key, &["--overlap", "1h"]);
    assert_eq!(kept.get("/", &key).status, 200, "at the old process");
    assert_eq!(status(&lineage, &key), 200, "at the new one");
    assert_eq!(status(&lineage, &new), 200);
    tunnel.close();
    signal(replaced, "TERM");
    lineage.wait_for_end(replaced);
    assert_eq!(lineage.taken(&key), 5);
    let shown = lineage.setup.ok(&["key", "show", &key[8..17], "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(crate::sudden_death::find(&shown, "requests").and_then(serde_json::Value::as_u64), Some(5), "{shown}");
    reconfigure(&lineage, "lame_duck: 20s", "lame_duck: 200ms");
    lineage.stop();
    assert_eq!(lineage.outcomes(), BTreeMap::from([("completed".to_owned(), 5)]));
}

#[test]
fn request_with_a_retired_key_is_that_of_a_revoked_one_at_the_new_process() {
    let backend = Backend::start();
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    setup.ok(&["key", "revoke", &key[8..17]]);
    retire_revoked_keys(&setup);
    let mut lineage = Lineage::start(setup);
    let listed = lineage.setup.ok(&["key", "list", "--org", "acme"]);
    assert!(!listed.contains("laptop"), "{listed}");
    for _ in 0..2 {
        let refused = lineage.setup.client().get("/", &key);
        assert_eq!((refused.status, &*refused.code()), (401, "invalid_token"));
        let replaced = lineage.upgrade();
        lineage.wait_for_end(replaced);
    }
    lineage.stop();
    assert_eq!(lineage.outcomes(), BTreeMap::from([("revoked".to_owned(), 2)]));
}

/// Retires revoked keys as `limits.keep_revoked` does when its time is over.
fn retire_revoked_keys(setup: &Setup) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let path = setup.path().join("state.db");
        let settings =
            embedded::Settings { path, quota: Quota::DEFAULT, concurrent: 100, plans: state::LimitPlans::NONE };
        let state = State::Embedded(Embedded::open(&settings).unwrap());
        state.set_bounds(Bounds { keep_revoked: Duration::ZERO, ..Bounds::DEFAULT });
        let (id, tag, created) = (OrgId::generate(), OrgTag::generate().unwrap(), clock::now());
        let org = Org::new(id, tag, "globex", created);
        // The next change is made after the keys were retired.
        state.change(Change::CreateOrg(org)).await.unwrap();
        state.close().await;
    });
}
