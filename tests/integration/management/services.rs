//! Accounts of services: created and reassigned by the operator, never signed in, and no admin of their organization.

use crate::support::updates::{permission, responsibility};
use control::management::{
    Actor, ClientInfo, Conditions, ErrorKind, Management, NewKeyRequest, SecretSource, SignedInUser, User, UserKind,
    UserStatus,
};
use domain::clock;
use domain::identity::{PersonId, SessionId};
use domain::page::PageQuery;
use state::{Membership, Session};

use super::{ADA, Fixture, OPERATOR, ORG, laptop};

const BOB: &str = "bob@example.com";
const NIGHTLY: &str = "nightly report";

/// A fixture with Ada, Bob, and a service for which Ada is responsible.
async fn with_service(permission: &str) -> (Fixture, User) {
    let fixture = Fixture::with_ada().await;
    let management = &fixture.management;
    management.create_user(OPERATOR, ORG, BOB, Vec::new(), clock::now()).await.unwrap();
    let permissions = vec![permission.parse().unwrap()];
    let name = " Nightly Report";
    let service = management.create_service(OPERATOR, ORG, name, "ADA@example.com", permissions, clock::now()).await;
    (fixture, service.unwrap())
}

async fn users(management: &Management) -> Vec<User> {
    management.list_users(OPERATOR, ORG, &PageQuery::default(), clock::now()).await.unwrap().items
}

#[tokio::test]
async fn service_is_shown_with_its_responsible_person_wherever_it_is() {
    let (fixture, service) = with_service("queries:read").await;
    let management = &fixture.management;
    let [ada, bob, listed] = users(management).await.try_into().unwrap();
    assert_eq!((service.email.as_str(), service.kind, &listed), (NIGHTLY, UserKind::Service, &service));
    for person in [&ada, &bob] {
        assert_eq!((person.kind, &person.responsible), (UserKind::Person, &None));
    }
    let responsible = service.responsible.unwrap();
    assert_eq!((responsible.id, responsible.email.as_str(), responsible.status), (ada.id, ADA, UserStatus::Active));

    let created = management
        .create_key(
            OPERATOR,
            ORG,
            NewKeyRequest { user: "Nightly Report", ..laptop() },
            SecretSource::Generated,
            clock::now(),
        )
        .await
        .unwrap();
    assert_eq!((created.key.email.as_str(), created.key.user_kind), (NIGHTLY, UserKind::Service));
    management.suspend_user(OPERATOR, ORG, ADA, clock::now()).await.unwrap();
    let shown = management.show_key(OPERATOR, created.key.id, clock::now()).await.unwrap();
    let explained = management.explain_key(OPERATOR, created.key.id, clock::now()).await.unwrap();
    let marked = [&shown.responsible, &explained.user.responsible, &users(management).await[2].responsible]
        .map(|responsible| responsible.as_ref().map(|person| person.status));
    assert_eq!(marked, [Some(UserStatus::Suspended); 3]);
    assert_eq!(
        fixture.refusal(created.api_key.as_ref().unwrap().expose(), clock::now()).await,
        None,
        "the service goes on"
    );

    let reassigned =
        management.update_user(OPERATOR, ORG, NIGHTLY, responsibility("BOB@example.com"), clock::now()).await.unwrap();
    assert_eq!(users(management).await[2], reassigned);
    management.remove_user(OPERATOR, ORG, BOB, clock::now()).await.unwrap();
    let suspended = management.suspend_user(OPERATOR, ORG, NIGHTLY, clock::now()).await.unwrap();
    let responsible = suspended.responsible.unwrap();
    assert_eq!((responsible.email.as_str(), responsible.status), (BOB, UserStatus::Removed));
    let resumed = management.resume_user(OPERATOR, ORG, NIGHTLY, clock::now()).await.unwrap();
    assert_eq!(resumed.responsible, Some(responsible));
}

#[tokio::test]
async fn service_needs_a_name_of_its_own_and_a_person() {
    let (fixture, service) = with_service("queries:read").await;
    let management = &fixture.management;
    let create = async |name: &str, responsible: &str| {
        let created = management.create_service(OPERATOR, ORG, name, responsible, Vec::new(), clock::now()).await;
        created.unwrap_err().code()
    };
    assert_eq!(create("NIGHTLY report", ADA).await, "taken");
    for name in ["ada@example.com", "", "a\nb", &service.id.to_string()] {
        assert_eq!(create(name, ADA).await, "invalid_name", "{name:?}");
    }
    assert_eq!(create("weekly", "eve@example.com").await, "no_such_user");
    assert_eq!(create("weekly", NIGHTLY).await, "not_a_person");
    let reassign = async |user: &str, responsible: &str| {
        let error =
            management.update_user(OPERATOR, ORG, user, responsibility(responsible), clock::now()).await.unwrap_err();
        (error.code(), error.kind())
    };
    assert_eq!(reassign(ADA, BOB).await, ("not_a_service", ErrorKind::Conflict));
    assert_eq!(reassign(NIGHTLY, NIGHTLY).await, ("not_a_person", ErrorKind::Conflict));
    assert_eq!(reassign(NIGHTLY, "eve@example.com").await.0, "no_such_user");
    // No address is the name of a service, so that no provider can vouch for one.
    let as_person = management.create_user(OPERATOR, ORG, NIGHTLY, Vec::new(), clock::now()).await;
    assert_eq!(as_person.unwrap_err().code(), "invalid_email");
    assert_eq!(users(management).await.len(), 3);
}

#[tokio::test]
async fn service_does_not_count_as_an_admin_who_can_act() {
    let (fixture, service) = with_service("org:admin").await;
    let management = &fixture.management;
    let admin = vec!["org:admin".parse().unwrap()];
    management.update_user(OPERATOR, ORG, ADA, permission(admin.clone()), clock::now()).await.unwrap();
    let (org, ada) = fixture.state.member(service.org, service.responsible.unwrap().id).await.unwrap().unwrap();
    let now = clock::now();
    let session = Session {
        id: SessionId::generate(),
        person: PersonId::from_user(ada.id),
        email: ADA.into(),
        provider: None,
        memberships: vec![Membership { org: org.id, user: ada.id }],
        chosen: org.id,
        created: now,
        seen: now,
        expires: now,
        idle: std::time::Duration::ZERO,
        id_token: None,
        ip: None,
        user_agent: None,
    };
    let signed_in =
        SignedInUser { session, user: ada, org, client: ClientInfo::default(), conditions: Conditions::NONE };
    let actor = &Actor::User(Box::new(signed_in));
    let last = management.suspend_user(actor, ORG, ADA, now).await.unwrap_err();
    assert_eq!(last.code(), "last_admin", "the service cannot sign in");
    // An admin suspends a service, whatever its permissions are, makes its keys, and neither creates nor reassigns one.
    management.suspend_user(actor, ORG, NIGHTLY, now).await.unwrap();
    management.resume_user(actor, ORG, NIGHTLY, now).await.unwrap();
    management
        .create_key(actor, ORG, NewKeyRequest { user: NIGHTLY, ..laptop() }, SecretSource::Generated, now)
        .await
        .unwrap();
    let created = management.create_service(actor, ORG, "weekly", ADA, Vec::new(), now).await.unwrap_err();
    let reassigned = management.update_user(actor, ORG, NIGHTLY, responsibility(BOB), now).await.unwrap_err();
    assert_eq!([created.code(), reassigned.code()], ["not_allowed"; 2]);
    management.update_user(OPERATOR, ORG, BOB, permission(admin), now).await.unwrap();
    management.suspend_user(actor, ORG, ADA, now).await.unwrap();
}
