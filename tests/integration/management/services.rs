//! Accounts of services: created and reassigned by the operator, never signed in, and no admin of their organization.

use crate::support::updates::{permission, responsibility};
use control::management;
use control::management::{ErrorKind, NewKeyRequest, SecretSource, User, UserGrants};
use domain::clock;
use domain::page::PageQuery;

use super::{ADA, Fixture, OPERATOR, ORG, laptop};

const BOB: &str = "bob@example.com";
const NIGHTLY: &str = "nightly report";

/// A fixture with Ada, Bob, and a service for which Ada is responsible.
async fn with_service(permission: &str) -> (Fixture, User) {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    management::create_user(management, OPERATOR, ORG, BOB, UserGrants::default(), clock::now()).await.unwrap();
    let permissions = vec![permission.parse().unwrap()];
    let name = " Nightly Report";
    let service = management::create_service(
        management,
        OPERATOR,
        ORG,
        name,
        "ADA@example.com",
        permissions.into(),
        clock::now(),
    )
    .await;
    (fixture, service.unwrap())
}

#[tokio::test]
async fn service_needs_a_name_of_its_own_and_a_person() {
    let (fixture, service) = with_service("queries:read").await;
    let management = &fixture.management;
    let create = async |name: &str, responsible: &str| {
        let created = management::create_service(
            management,
            OPERATOR,
            ORG,
            name,
            responsible,
            UserGrants::default(),
            clock::now(),
        )
        .await;
        created.unwrap_err().code()
    };
    assert_eq!(create("NIGHTLY report", ADA).await, "taken");
    for name in ["ada@example.com", "", "a\nb", &service.id.to_string()] {
        assert_eq!(create(name, ADA).await, "invalid_name", "{name:?}");
    }
    assert_eq!(create("weekly", "eve@example.com").await, "no_such_user");
    assert_eq!(create("weekly", NIGHTLY).await, "not_a_person");
    let reassign = async |user: &str, responsible: &str| {
        let error = management::update_user(management, OPERATOR, ORG, user, responsibility(responsible), clock::now())
            .await
            .unwrap_err();
        (error.code(), error.kind())
    };
    assert_eq!(reassign(ADA, BOB).await, ("not_a_service", ErrorKind::Conflict));
    assert_eq!(reassign(NIGHTLY, NIGHTLY).await, ("not_a_person", ErrorKind::Conflict));
    assert_eq!(reassign(NIGHTLY, "eve@example.com").await.0, "no_such_user");
    // No address is the name of a service, so that no provider can vouch for one.
    let as_person =
        management::create_user(management, OPERATOR, ORG, NIGHTLY, UserGrants::default(), clock::now()).await;
    assert_eq!(as_person.unwrap_err().code(), "invalid_email");
    let users = management::list_users(management, OPERATOR, ORG, &PageQuery::default(), clock::now()).await.unwrap();
    assert_eq!(users.items.len(), 3);
}

#[tokio::test]
async fn service_does_not_count_as_an_admin_who_can_act() {
    let (fixture, _) = with_service("org:admin").await;
    let management = &fixture.management;
    let admin = vec!["org:admin".parse().unwrap()];
    management::update_user(management, OPERATOR, ORG, ADA, permission(admin.clone()), clock::now()).await.unwrap();
    let (actor, now) = (&fixture.ada().await, clock::now());
    let last = management::suspend_user(management, actor, ORG, ADA, now).await.unwrap_err();
    assert_eq!(last.code(), "last_admin", "the service cannot sign in");
    // An admin suspends a service, whatever its permissions are, makes its keys, and neither creates nor reassigns one.
    management::suspend_user(management, actor, ORG, NIGHTLY, now).await.unwrap();
    management::resume_user(management, actor, ORG, NIGHTLY, now).await.unwrap();
    management::create_key(
        management,
        actor,
        ORG,
        NewKeyRequest { user: NIGHTLY, ..laptop() },
        SecretSource::Generated,
        now,
    )
    .await
    .unwrap();
    let created = management::create_service(management, actor, ORG, "weekly", ADA, UserGrants::default(), now)
        .await
        .unwrap_err();
    let reassigned =
        management::update_user(management, actor, ORG, NIGHTLY, responsibility(BOB), now).await.unwrap_err();
    assert_eq!([created.code(), reassigned.code()], ["not_allowed"; 2]);
    management::update_user(management, OPERATOR, ORG, BOB, permission(admin), now).await.unwrap();
    management::suspend_user(management, actor, ORG, ADA, now).await.unwrap();
}
