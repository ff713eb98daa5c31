//! Signing in and out by a certified identity provider.

use serde_json::{Value, json};

use super::fixture::{self, Member, certified, given, is_admitted, is_signed_in, member};
use super::gateway_browser::{AGENT, GatewayBrowser, SESSION, form, path_here, refresh, text};
use crate::oidc::certified_provider::Real;
use crate::support::{Gateway, Upstream, eventually};

fn people() -> Value {
    json!({
        "ada": {"email": "Ada@example.com", "email_verified": true, "name": "Ada", "groups": ["acme", "admins"]},
        "bob": {"email": "bob@example.com", "email_verified": false},
        "eve": {"email": "eve@example.com", "email_verified": true},
    })
}

/// A gateway with the certified provider, and ada in its directory.
fn setup() -> (Real, Upstream, Gateway, Member) {
    let (real, upstream) = (fixture::real(people()), Upstream::start());
    let gateway = fixture::gateway(&upstream, &[certified(&real, "")]);
    let ada = member(&gateway, "acme", "ada@example.com", &["queries:read"]);
    (real, upstream, gateway, ada)
}

fn pairs(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields.iter().map(|(name, value)| (&**name, &**value)).collect()
}

#[test]
fn sign_in_leads_to_the_requested_page() {
    let (_real, _upstream, gateway, _) = setup();
    let mut ada = GatewayBrowser::new(&gateway);
    let asked = ada.open("/settings/keys?q=lap%20top&page=2");
    assert_eq!(asked.status, 303, "{}", text(&asked));
    let offer = ada.open(asked.header("location").unwrap());
    let (action, fields) = form(&offer);
    assert_eq!(action, "/settings/sign-in/real");
    // A page, not a redirect: browsers apply `form-action` to redirects of forms as well.
    let leaving = ada.submit(&action, &pairs(&fields));
    assert_eq!(leaving.status, 200, "{}", text(&leaving));
    let provider = refresh(&leaving).expect("the page leads to the provider");
    let asked: Vec<_> = provider.query_pairs().map(|(name, _)| name.into_owned()).collect();
    for name in ["state", "nonce", "code_challenge"] {
        assert!(asked.contains(&name.to_owned()), "{name} is not in {asked:?}");
    }
    let back = ada.elsewhere.sign_in(provider.as_str(), "ada");
    let answer = ada.arrive(&path_here(&back));
    assert_eq!(answer.status, 303, "{}", text(&answer));
    assert_eq!(answer.header("location"), Some("/settings/keys?q=lap+top&page=2"));
    let page = ada.open("/settings/keys");
    assert!(page.status == 200 && text(&page).contains("ada@example.com"), "{}", text(&page));
}

#[test]
fn session_cookie_has_its_attributes() {
    let (_real, _upstream, gateway, _) = setup();
    let mut ada = GatewayBrowser::new(&gateway);
    let answer = ada.sign_in_as("real", "ada");
    let cookie = answer.headers.iter().find_map(|(_, field)| field.strip_prefix(&format!("{SESSION}="))).unwrap();
    let mut attributes: Vec<&str> = cookie.split("; ").collect();
    assert_eq!(attributes.remove(0).len(), 43, "256 bits");
    attributes.sort_unstable();
    assert_eq!(attributes, ["HttpOnly", "Max-Age=43200", "Path=/", "SameSite=Lax", "Secure"]);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[test]
fn upstream_receives_the_user_and_no_credential() {
    let (_real, upstream, gateway, Member { org, user }) = setup();
    let mut ada = GatewayBrowser::new(&gateway);
    ada.sign_in_as("real", "ada");
    assert_eq!(ada.fetch("GET", "/api/x").status, 200);
    let received = upstream.last();
    for (name, value) in [
        ("x-auth-method", "session"),
        ("x-user-id", &user.to_string()),
        ("x-org-id", &org.to_string()),
        ("x-permissions", "queries:read"),
    ] {
        assert_eq!(received.header(name), Some(value), "{name}");
    }
    for name in ["cookie", "x-key-id", "authorization"] {
        assert_eq!(received.header(name), None, "{name}");
    }
}

#[test]
fn sign_out_ends_the_session_and_leads_to_the_provider() {
    let (_real, _upstream, gateway, _) = setup();
    let mut ada = GatewayBrowser::new(&gateway);
    ada.sign_in_as("real", "ada");
    let mut old = GatewayBrowser::new(&gateway);
    old.plant(SESSION, &ada.session());
    let leaving = ada.submit("/settings/sign-out", &[]);
    assert!(leaving.status == 200 && ada.cookie(SESSION).is_none(), "{}", text(&leaving));
    assert!(!is_signed_in(&mut old) && !is_admitted(&mut old), "the session is accepted after its end");
    let out = refresh(&leaving).expect("the page leads to the provider, to sign out there");
    let page = ada.elsewhere.get(&out);
    let (action, mut fields) = page.form().unwrap();
    fields.push(("logout".into(), "yes".into()));
    let page = ada.elsewhere.submit(&action, &pairs(&fields));
    let back = ada.elsewhere.follow(page).unwrap_err();
    assert_eq!(path_here(&back), "/settings/signed-out");
    let page = ada.arrive("/settings/signed-out");
    assert!(page.status == 200 && text(&page).contains("signed out"), "{}", text(&page));
    // The provider's session has ended as well: it asks the next user for a login.
    let url = ada.begin("real", "");
    let page = ada.elsewhere.get(&url);
    let page = ada.elsewhere.follow(page).expect("the provider asks who it is");
    assert!(page.form().unwrap().1.contains(&("prompt".into(), "login".into())), "{}", page.text());
}

#[test]
fn audit_records_of_a_session_name_its_user() {
    let (_real, _upstream, gateway, Member { org, user }) = setup();
    let mut ada = GatewayBrowser::new(&gateway);
    assert_eq!(ada.sign_in_as("real", "ada").status, 303);
    let answer = ada.fetch("GET", "/api/x?secret=1");
    let [record] = gateway.records().try_into().unwrap();
    assert_eq!(answer.header("x-request-id"), Some(&*record.id.to_string()));
    assert_eq!((record.user_id, record.org_id, record.key_id), (Some(user), Some(org), None));
    assert_eq!((record.auth_method.as_str(), record.action.as_str()), ("session", "GET /api/x"));
    assert_eq!((record.ip.unwrap().to_string(), record.user_agent.as_deref()), ("127.0.0.1".into(), Some(AGENT)));
    ada.submit("/settings/sign-out", &[]);
    let changes = fixture::changes(&gateway);
    let [.., start, end] = changes.as_slice() else { panic!("{changes:?}") };
    for (change, action) in [(start, "session.start"), (end, "session.end")] {
        assert_eq!((change.action.as_str(), change.user_id, change.org_id), (action, Some(user), Some(org)));
        assert_eq!((change.auth_method.as_str(), change.user_agent.as_deref()), ("session", Some(AGENT)));
        assert_eq!(change.ip.unwrap().to_string(), "127.0.0.1");
    }
}

#[test]
fn form_with_an_ended_session_is_refused_and_changes_nothing() {
    let (_real, _upstream, gateway, _) = setup();
    let mut ada = GatewayBrowser::new(&gateway);
    ada.sign_in_as("real", "ada");
    let [session] = fixture::sessions(&gateway).try_into().unwrap();
    gateway.end_session(session.id);
    let answer = ada.submit("/settings/keys/new", &[("name", "late")]);
    fixture::assert_refused(&answer, 401);
    assert!(text(&answer).contains("You are signed out"), "{}", text(&answer));
    assert!(fixture::changes(&gateway).iter().all(|change| change.action != "key.create"));
}

#[test]
fn users_without_membership_or_verified_address_are_refused() {
    let (real, upstream) = (fixture::real(people()), Upstream::start());
    let gateway = fixture::gateway(&upstream, &[certified(&real, "")]);
    member(&gateway, "acme", "bob@example.com", &[]);
    for (name, status, word) in [("bob", 403, "verified"), ("eve", 403, "no organization")] {
        let mut visitor = GatewayBrowser::new(&gateway);
        let answer = visitor.sign_in_as("real", name);
        fixture::assert_refused(&answer, status);
        assert!(text(&answer).contains(word), "{name}: {}", text(&answer));
        assert!(!is_signed_in(&mut visitor));
    }
    assert!(fixture::sessions(&gateway).is_empty());
}

#[test]
fn declined_sign_in_is_refused() {
    let (_real, _upstream, gateway, _) = setup();
    let mut ada = GatewayBrowser::new(&gateway);
    let url = ada.begin("real", "");
    let page = ada.elsewhere.get(&url);
    let page = ada.elsewhere.follow(page).unwrap();
    let page = ada.elsewhere.get(&format!("{}/abort", page.url).parse().unwrap());
    let back = ada.elsewhere.follow(page).unwrap_err();
    fixture::assert_refused(&ada.arrive(&path_here(&back)), 403);
}

#[test]
fn previous_session_ends_with_a_new_sign_in() {
    let (_real, _upstream, gateway, _) = setup();
    let mut ada = GatewayBrowser::new(&gateway);
    let first = given(&ada.sign_in_as("real", "ada")).unwrap().to_owned();
    let second = given(&ada.sign_in_as("real", "ada")).unwrap().to_owned();
    assert_ne!(first, second);
    eventually("there is one session", || fixture::sessions(&gateway).len() == 1);
    ada.plant(SESSION, &first);
    assert!(!is_admitted(&mut ada));
    ada.plant(SESSION, &second);
    assert!(is_admitted(&mut ada));
}
