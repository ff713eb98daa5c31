//! Accounts of services on the dashboard: admins see them and make their keys, and nothing signs one in.

use control::management::{self, User};
use serde_json::json;

use super::fixture::{self, Member, PERSON, assert_refused, hostile, member, sessions, signed_in};
use super::gateway_browser::{GatewayBrowser, text};
use crate::oidc::hostile::Hostile;
use crate::support::gateway::{OPERATOR, parse_permissions};
use crate::support::updates::responsibility;
use crate::support::{Client, Gateway, Upstream};

const SERVICE: &str = "nightly report";
const BOB: &str = "bob@example.com";

/// A service of the organization `acme`, for which this person is responsible.
fn add_service(gateway: &Gateway, responsible: &str) -> User {
    let permissions = parse_permissions(&["org:admin"]);
    gateway.perform(async |to, now| {
        management::create_service(to, OPERATOR, "acme", "Nightly Report", responsible, permissions.into(), now).await
    })
}

fn add_bob(gateway: &Gateway) {
    gateway.create_user("acme", BOB, &["queries:read"]);
}

fn page(visitor: &mut GatewayBrowser, path: &str) -> String {
    let page = visitor.open(path);
    assert_eq!(page.status, 200, "{}", text(&page));
    text(&page)
}

/// The row of the service in the table of users.
fn row(visitor: &mut GatewayBrowser) -> String {
    let page = page(visitor, "/settings/users");
    let rows: Vec<&str> = page.split("<tr role=\"row\">").filter(|row| row.contains(SERVICE)).collect();
    let [row] = rows.as_slice() else { panic!("{page}") };
    (*row).to_owned()
}

/// The only key that is not Ada's: its page.
fn key_page(gateway: &Gateway, visitor: &mut GatewayBrowser) -> String {
    let keys = gateway.list_keys("acme");
    let key = keys.iter().find(|key| key.email == SERVICE).expect("a key of the service");
    page(visitor, &format!("/settings/keys/{}", key.id))
}

#[test]
fn admin_creates_keys_of_a_service_and_sees_that_its_person_has_left() {
    let upstream = Upstream::start();
    let corp = Hostile::start();
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &corp, "")]);
    let Member { user: ada, .. } = member(&gateway, "acme", PERSON, &["org:admin"]);
    add_bob(&gateway);
    let service = add_service(&gateway, BOB);
    let mut admin = signed_in(&gateway, "corp");
    assert!(page(&mut admin, "/settings/keys/new").contains(&format!("{SERVICE} (service)</option>")));
    let fields = [("name", "export job"), ("owner", &*service.id.to_string())];
    let created = admin.submit("/settings/keys/new", &fields);
    assert_eq!(created.status, 303, "{}", text(&created));
    let new = page(&mut admin, created.header("location").unwrap());
    let key = new.split("sk_live_").nth(1).unwrap();
    let key = format!("sk_live_{}", key.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap());
    let status = || Client::connect(gateway.address).get("/x", &key).status;
    assert_eq!(status(), 200);
    assert_eq!(upstream.last().header("x-user-id"), Some(&*service.id.to_string()));

    let before = row(&mut admin);
    assert!(before.contains(">Service<") && before.contains("bob<wbr>@example.com"), "{before}");
    assert_eq!(before.matches("class=\"badge").count(), 1, "its own state alone: {before}");
    let changes: [(&dyn Fn() -> User, _); 3] = [
        (&|| gateway.suspend_user_of("acme", BOB), Some(">Suspended<")),
        (&|| gateway.resume_user_of("acme", BOB), None),
        (&|| gateway.remove_user_of("acme", BOB), Some(">Removed<")),
    ];
    for (change, mark) in changes {
        change();
        for shown in [row(&mut admin), key_page(&gateway, &mut admin)] {
            let badges: Vec<&str> = [">Suspended<", ">Removed<"].into_iter().filter(|it| shown.contains(it)).collect();
            assert_eq!(badges, mark.into_iter().collect::<Vec<_>>(), "{shown}");
        }
        assert_eq!(status(), 200, "the service goes on");
    }
    let ada = ada.to_string();
    gateway.perform(async |to, now| {
        management::update_user(to, OPERATOR, "acme", SERVICE, responsibility(&ada), now).await
    });
    let after = row(&mut admin);
    assert!(!after.contains("Removed") && after.contains("person<wbr>@example.com"), "{after}");
}

#[test]
fn member_creates_no_key_of_a_service_even_when_responsible() {
    let upstream = Upstream::start();
    let corp = Hostile::start();
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &corp, "")]);
    member(&gateway, "acme", PERSON, &["queries:read"]);
    let service = add_service(&gateway, PERSON).id.to_string();
    let mut visitor = signed_in(&gateway, "corp");
    for owner in [SERVICE, &service] {
        let created = visitor.submit("/settings/keys/new", &[("name", "mine"), ("owner", owner)]);
        assert_eq!(created.status, 403, "{}", text(&created));
    }
    let keys = gateway.list_keys("acme");
    assert!(keys.is_empty(), "{keys:?}");
}

#[test]
fn service_never_signs_in() {
    let upstream = Upstream::start();
    let corp = Hostile::start();
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &corp, "organization: { claim: groups }")]);
    member(&gateway, "acme", PERSON, &[]);
    let service = add_service(&gateway, PERSON);
    for user in [SERVICE.to_owned(), service.id.to_string()] {
        let refused = gateway.refused(async |to, now| management::create_link(to, OPERATOR, "acme", &user, now).await);
        assert_eq!(refused, "not_a_person");
    }
    // A provider that vouches for any name vouches for no service.
    for email in [SERVICE, "Nightly Report", "nightly report@"] {
        corp.behave(|now| {
            now.claims = Box::new(move |claims| {
                claims["email"] = json!(email);
                claims["groups"] = json!(["acme"]);
            });
        });
        let mut visitor = GatewayBrowser::new(&gateway);
        assert_refused(&visitor.sign_in("corp"), 400);
    }
    assert!(sessions(&gateway).is_empty());
}
