//! The audit records of operations, and the places in which a plain key is.

use control::management;
use control::management::{ErrorKind, KeyQuery};
use domain::clock;
use domain::page::PageQuery;
use journal::audit::{Filter, Outcome, Reader, Record};

use super::{Fixture, OPERATOR, ORG};

impl Fixture {
    /// All records, oldest first, from the closed journal.
    pub(super) async fn records(&self) -> Vec<Record> {
        self.journal.close().await;
        let reader = Reader::open(&self.directory.path().join("audit")).unwrap();
        let mut records = Vec::new();
        reader
            .export(&Filter::default(), &mut |record| {
                records.push(record);
                Ok(())
            })
            .unwrap();
        records
    }
}

#[tokio::test]
async fn changes_are_recorded_and_lookups_are_not() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let key = fixture.new_key().await.key;
    management::list_keys(management, OPERATOR, ORG, &KeyQuery::default(), &PageQuery::default(), clock::now())
        .await
        .unwrap();
    management::create_org(management, OPERATOR, ORG, None, clock::now()).await.unwrap_err();
    management::revoke_key(management, OPERATOR, key.id, clock::now()).await.unwrap();
    let records = fixture.records().await;
    let seen: Vec<_> = records.iter().map(|record| (record.action.as_str(), record.outcome, record.status)).collect();
    assert_eq!(
        seen,
        [
            ("org.create", Outcome::Completed, Some(200)),
            ("user.create", Outcome::Completed, Some(200)),
            ("key.create", Outcome::Completed, Some(200)),
            ("org.create", Outcome::ClientError, Some(409)),
            ("key.revoke", Outcome::Completed, Some(200)),
        ]
    );
    let revocation = &records[4];
    assert_eq!((revocation.key_id, revocation.subject), (Some(key.id), Some(key.user)));
    assert_eq!((revocation.actor.as_deref(), revocation.user_id), (Some("unix:root(0)"), None));
    assert_eq!((revocation.org_id, revocation.auth_method.as_str()), (Some(key.org), "admin-socket"));
    assert_eq!((revocation.method.as_str(), revocation.path.as_str()), ("ADMIN", "key.revoke"));
}

#[tokio::test]
async fn change_that_cannot_be_recorded_is_not_made() {
    let fixture = Fixture::new();
    fixture.journal.close().await;
    let error = management::create_org(&fixture.management, OPERATOR, ORG, None, clock::now()).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), ("audit_unavailable", ErrorKind::Unavailable));
    assert_eq!(fixture.state.orgs().await.unwrap().len(), 0);
}

#[tokio::test]
async fn plain_key_is_only_in_the_result_that_creates_it() {
    let fixture = Fixture::with_ada().await;
    let new = fixture.new_key().await;
    let shown = format!("{new:?} {:?}", fixture.management);
    let secret = &new.api_key.as_ref().unwrap().expose()[18..];
    assert!(!shown.contains(secret));
    fixture.state.close().await;
    fixture.journal.close().await;
    let mut searched = 0;
    for directory in [fixture.directory.path().to_owned(), fixture.directory.path().join("audit")] {
        for file in
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
        {
            let content = std::fs::read(&file).unwrap();
            assert!(!content.windows(secret.len()).any(|window| window == secret.as_bytes()), "{}", file.display());
            searched += content.len();
        }
    }
    assert!(searched > 1000, "there was something to search");
}
