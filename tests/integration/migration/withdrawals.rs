//! Withdrawals that an import takes over: none is kept back by a token that has ended, a replica that is away or
//! another writer, and none is undone.

use domain::clock;
use serde_json::json;
use state::migration::{MigrationError, import};
use state::{Change, StateRecord};

use super::backup::{content, export, on_both, on_redis};
use super::conflicts::edited;
use super::exported_keys;
use super::installation::{Installation, runtime};
use super::records::{RecordMaker, new_token, new_user};
use crate::support::redis::Redis;

const REVOKED: &str = "2026-01-01T00:00:00.000000Z";

/// The token that revoked a key may have been revoked itself since, or come later in the file.
#[test]
fn revocation_by_a_program_is_taken_over_without_its_token() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        let (absent, ended) = (new_token("absent"), new_token("ended"));
        maker.change(Change::CreateToken(Box::new(ended.clone()))).await;
        maker.change(Change::RevokeToken { token: ended.id, at: maker.now }).await;
        for (name, token) in [("one", absent.id), ("two", ended.id)] {
            maker.key(&org, user, name).await;
            let by = format!("token:{token}");
            let changes = json!({ "revoked": REVOKED, "revoked_by": by });
            let record = edited(&export(&state).await, &format!("\"{name}\""), &changes);
            let report = import(&[record], &state).await.unwrap();
            assert_eq!((report.withdrawn, report.is_complete()), (1, true), "{report:?}");
            let file = export(&state).await;
            assert!(content(&file).contains(&format!("\"revoked\":\"{REVOKED}\",\"revoked_by\":\"{by}\"")));
        }
        // Changes that are made here still require the token.
        let (key, _) = maker.key(&org, user, "three").await;
        let revoke = Change::RevokeKey { key, at: maker.now }.by(&format!("token:{}", ended.id));
        assert!(state.change(revoke).await.is_err());
    });
}

/// Each withdrawal is made, and what comes after them is imported. The import says at its end what no replica has.
#[test]
fn withdrawals_without_their_replicas_keep_nothing_from_being_imported() {
    let redis = Redis::start();
    runtime().block_on(async {
        let source = on_redis(&[redis.url()]).await;
        let mut maker = RecordMaker::new(&source);
        let (org, user) = maker.org_with_user().await;
        let names = ["one", "two", "three"];
        for name in names {
            maker.key(&org, user, name).await;
        }
        let file = export(&source).await;
        let revoked = |name: &str| edited(&file, &format!("\"{name}\""), &json!({ "revoked": REVOKED }));
        let later = new_user(org.id, "later@example.com");
        let later_export = state::UserExport { user: later.clone(), creation: None };
        let records: Vec<StateRecord> =
            names.map(revoked).into_iter().chain([StateRecord::User(Box::new(later_export))]).collect();
        let url = format!("\"{}\"", redis.url());
        let target = Installation::moving_to(&[url], ", durability: { replicas: 1, timeout: 100ms }").target().await;
        let imported = import(&records, &target).await;
        assert!(matches!(imported, Err(MigrationError::NotReplicated(_))), "{imported:?}");
        assert!(exported_keys(&target).await.iter().all(|export| export.key.revoked.is_some()));
        assert!(target.users(org.id).await.unwrap().contains(&later));
    });
}

/// Two imports of one file: the withdrawals of one are refused, because the other one has made them.
#[test]
fn withdrawal_that_another_import_has_made_is_done() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        let org = maker.org("acme").await;
        for number in 0..60 {
            maker.user(&org, &format!("user{number}@example.com")).await;
        }
        maker.now = clock::now();
        let file = export(&state).await;
        let removed = |number| edited(&file, &format!("\"user{number}@example.com\""), &json!({ "removed": REVOKED }));
        let records: Vec<StateRecord> = (0..60).map(removed).collect();
        let (one, other) = tokio::join!(import(&records, &state), import(&records, &state));
        for report in [one.unwrap(), other.unwrap()] {
            assert!(report.is_complete(), "{report:?}");
        }
        let users = state.users(org.id).await.unwrap();
        assert!(users.len() == 60 && users.iter().all(|user| user.removed.is_some()), "{users:?}");
    });
}
