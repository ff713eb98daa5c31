//! Withdrawals that an import takes over: none is kept back by a token that has ended, a replica that is away or
//! another writer, and none is undone.

use domain::clock::{self, Micros};
use domain::management_token::ManagementToken;
use serde_json::json;
use state::migration::{MigrationError, import};
use state::{Change, State, StateRecord};

use super::backup::{content, export, on_both, on_redis};
use super::conflicts::edited;
use super::exported_keys;
use super::installation::{Installation, runtime};
use super::records::{RecordMaker, new_token, new_user};
use crate::support::redis::Redis;

const REVOKED: &str = "2026-01-01T00:00:00.000000Z";

/// A token by another one, or by the operator.
fn token_by(name: &str, maker: Option<&ManagementToken>) -> ManagementToken {
    let token = new_token(name);
    let created_by = maker.map_or(token.created_by.clone(), |maker| format!("token:{}", maker.id));
    ManagementToken { created_by, ..token }
}

fn token_records(tokens: &[&ManagementToken]) -> Vec<StateRecord> {
    tokens.iter().map(|token| StateRecord::Token(Box::new((*token).clone()))).collect()
}

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

async fn revoked(state: &State, token: &ManagementToken) -> Option<Micros> {
    state.management_token(token.id).await.unwrap().unwrap().revoked
}

/// A program that is revoked here went on elsewhere, and made tokens: none of them is live here.
#[test]
fn token_by_a_revoked_token_comes_as_revoked() {
    on_both(async |state| {
        let root = token_by("root", None);
        let child = token_by("child", Some(&root));
        let grandchild = token_by("grandchild", Some(&child));
        let unrelated = token_by("unrelated", Some(&new_token("unknown")));
        state.change(Change::CreateToken(Box::new(root.clone()))).await.unwrap();
        let at = clock::now();
        state.change(Change::RevokeToken { token: root.id, at }).await.unwrap();
        let file = token_records(&[&root, &child, &grandchild, &unrelated]);
        let report = import(&file, &state).await.unwrap();
        assert_eq!((report.tokens.copied, report.is_complete()), (3, true), "{report:?}");
        assert_eq!((revoked(&state, &child).await, revoked(&state, &grandchild).await), (Some(at), Some(at)));
        assert_eq!(revoked(&state, &unrelated).await, None);
        let again = import(&file, &state).await.unwrap();
        assert_eq!((again.tokens.copied, again.withdrawn, again.is_complete()), (0, 0, true), "{again:?}");
        // Both new, and a pair that claims to have made each other.
        let ended = ManagementToken { revoked: Some(at), ..token_by("ended", None) };
        let of_ended = token_by("of the ended", Some(&ended));
        let mut one = token_by("one", None);
        let other = token_by("other", Some(&one));
        one.created_by = format!("token:{}", other.id);
        let report = import(&token_records(&[&of_ended, &ended, &one, &other]), &state).await.unwrap();
        assert_eq!((report.tokens.copied, report.is_complete()), (4, true), "{report:?}");
        assert_eq!((revoked(&state, &of_ended).await, revoked(&state, &one).await), (Some(at), None));
    });
}
