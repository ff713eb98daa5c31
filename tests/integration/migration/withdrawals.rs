//! Withdrawals that an import takes over: none is kept back by a token that has ended, a replica that is away or
//! another writer, and none is undone.

use serde_json::json;
use state::migration::import;
use state::Change;

use super::backup::{content, export, on_both};
use super::conflicts::edited;
use super::records::{RecordMaker, new_token};

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
