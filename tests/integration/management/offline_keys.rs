//! Secrets by their digests: what signed-in people may not do, and what the audit says of it.

use crate::support::updates::permission;
use control::management;
use control::management::{GivenSecret, Rotation, SecretSource};
use domain::clock;
use domain::key::{KeyId, PlainKey};
use journal::audit::Outcome;

use super::{ADA, Fixture, OPERATOR, ORG, laptop};

/// People get the secrets that are made here: no digest of theirs is taken, however much they may do otherwise.
#[tokio::test]
async fn signed_in_people_give_no_digests() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    management::update_user(
        management,
        OPERATOR,
        ORG,
        ADA,
        permission(vec!["org:admin".parse().unwrap()]),
        clock::now(),
    )
    .await
    .unwrap();
    let ada = fixture.ada().await;
    let now = clock::now();
    let own = management::create_key(management, &ada, ORG, laptop(), SecretSource::Generated, now).await.unwrap().key;
    let tag = fixture.state.org_by_name(ORG).await.unwrap().unwrap().tag;
    let key = PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap();
    let sha256 = key.digest().to_hex();
    let given = SecretSource::Given(GivenSecret::new(key.id(), &sha256).unwrap());
    let rotation = Rotation::new(None).with_digest(Some(&sha256)).unwrap();
    let codes = [
        management::create_key(management, &ada, ORG, laptop(), given, now).await.unwrap_err().code(),
        management::rotate_key(management, &ada, own.id, rotation, now).await.unwrap_err().code(),
        management::put_key_by_digest(management, &ada, ORG, &sha256, None, laptop(), now).await.unwrap_err().code(),
    ];
    assert_eq!(codes, ["not_allowed"; 3]);
    management::create_key(management, OPERATOR, ORG, laptop(), given, now).await.unwrap();
    assert_eq!(fixture.refusal(key.expose().expose(), now).await, None);
}

#[tokio::test]
async fn creation_by_a_digest_is_recorded_as_one_and_a_put_that_finds_its_key_is_not() {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    let tag = fixture.state.org_by_name(ORG).await.unwrap().unwrap().tag;
    let key = PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap();
    let sha256 = key.digest().to_hex();
    for _ in 0..3 {
        let now = clock::now();
        management::put_key_by_digest(management, OPERATOR, ORG, &sha256, Some(key.id()), laptop(), now).await.unwrap();
    }
    let records = fixture.records().await;
    let created: Vec<_> = records.iter().filter(|record| record.action == "key.create").collect();
    assert_eq!(created.len(), 1, "{created:?}");
    assert_eq!((created[0].path.as_str(), created[0].outcome), ("key.create/digest", Outcome::Completed));
    assert_eq!(created[0].key_id, Some(key.id()));
}
