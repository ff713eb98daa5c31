//! The page of users: an admin suspends and resumes users of the organization, and nobody else does.

use super::fixture::{self, PERSON, hostile, is_signed_in, member, signed_in};
use super::gateway_browser::{GatewayBrowser, path_here, text};
use crate::oidc::hostile::Hostile;
use crate::support::{Client, Gateway, Upstream};

const BOB: &str = "bob@example.com";

/// Another user of the organization `acme`, with this permission, and a key.
fn add(gateway: &Gateway, email: &str, permission: &str) -> (String, String) {
    let user = gateway.create_user("acme", email, &[permission]).id;
    (user.to_string(), gateway.create_key("acme", user, "k").text)
}

fn page(visitor: &mut GatewayBrowser) -> String {
    let page = visitor.open("/settings/users");
    assert_eq!(page.status, 200, "{}", text(&page));
    text(&page)
}

#[test]
fn admin_suspends_and_resumes_users_of_the_organization_but_not_the_last_admin() {
    let upstream = Upstream::start();
    let corp = Hostile::start();
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &corp, "")]);
    let ada = member(&gateway, "acme", PERSON, &["org:admin"]);
    let (bob, key) = add(&gateway, BOB, "queries:read");
    let elsewhere = member(&gateway, "bolt", BOB, &[]);
    let mut admin = signed_in(&gateway, "corp");
    let mut of_bob = GatewayBrowser::new(&gateway);
    assert_eq!(of_bob.submit(&path_here(&gateway.create_link("acme", BOB)), &[]).status, 303);
    assert!(is_signed_in(&mut of_bob));
    let status = |key: &str| Client::connect(gateway.address).get("/x", key).status;
    assert_eq!(status(&key), 200);

    let before = page(&mut admin);
    assert!(before.contains(&format!("/settings/users/{bob}/suspend\"")), "{before}");
    assert!(!before.contains(&format!("/settings/users/{}/suspend\"", ada.user)), "not oneself");
    let suspended = admin.submit(&format!("/settings/users/{bob}/suspend"), &[]);
    assert_eq!((suspended.status, suspended.header("location")), (303, Some("/settings/users?done=suspended")));
    assert_eq!(status(&key), 401);
    assert!(!is_signed_in(&mut of_bob), "the session has ended");
    let after = page(&mut admin);
    assert!(after.contains("Suspended") && after.contains(&format!("/settings/users/{bob}/resume\"")), "{after}");

    let resumed = admin.submit(&format!("/settings/users/{bob}/resume"), &[]);
    assert_eq!((resumed.status, resumed.header("location")), (303, Some("/settings/users?done=resumed")));
    assert_eq!(status(&key), 200);
    assert!(!is_signed_in(&mut of_bob), "a session does not come back");

    // Not the last admin, and no user of another organization.
    let last = admin.submit(&format!("/settings/users/{}/suspend", ada.user), &[]);
    assert_eq!(last.status, 409, "{}", text(&last));
    let foreign = admin.submit(&format!("/settings/users/{}/suspend", elsewhere.user), &[]);
    assert_eq!(foreign.status, 404, "{}", text(&foreign));
    let (eve, _) = add(&gateway, "eve@example.com", "org:admin");
    assert_eq!(admin.submit(&format!("/settings/users/{eve}/suspend"), &[]).status, 303);
    let last = admin.submit(&format!("/settings/users/{}/suspend", ada.user), &[]);
    assert_eq!(last.status, 409, "a suspended admin does not count");
    gateway.resume_user_of("acme", eve);
    assert_eq!(admin.submit(&format!("/settings/users/{}/suspend", ada.user), &[]).status, 303);
    assert!(!is_signed_in(&mut admin));
}

#[test]
fn member_sees_no_users_and_suspends_none() {
    let upstream = Upstream::start();
    let corp = Hostile::start();
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &corp, "")]);
    member(&gateway, "acme", PERSON, &["queries:read"]);
    let (bob, key) = add(&gateway, BOB, "queries:read");
    let mut visitor = signed_in(&gateway, "corp");
    assert!(!text(&visitor.open("/settings/keys")).contains("/settings/users"), "there is no link to it");
    assert_eq!(visitor.open("/settings/users").status, 403);
    for action in ["suspend", "resume"] {
        assert_eq!(visitor.submit(&format!("/settings/users/{bob}/{action}"), &[]).status, 403);
    }
    assert_eq!(Client::connect(gateway.address).get("/x", &key).status, 200);
    let mut stranger = GatewayBrowser::new(&gateway);
    assert_eq!(stranger.open("/settings/users").status, 303, "a visitor is sent to sign in");
}
