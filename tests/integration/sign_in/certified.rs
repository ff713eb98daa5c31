//! The certified provider signs people in to the gateway, and out again.

use serde_json::{Value, json};

use super::rig::{self, Member, certified, given, is_admitted, is_signed_in, member};
use super::visitor::{AGENT, SESSION, SIGN_IN, Visitor, form, path_here, refresh, text};
use crate::support::{Upstream, eventually};

fn people() -> Value {
    json!({
        "ada": {"email": "Ada@example.com", "email_verified": true, "name": "Ada", "groups": ["acme", "admins"]},
        "bob": {"email": "bob@example.com", "email_verified": false},
        "eve": {"email": "eve@example.com", "email_verified": true},
    })
}

#[test]
fn a_person_signs_in_from_the_page_that_was_asked_for_and_out_again() {
    let (real, upstream) = (rig::real(people()), Upstream::start());
    let gateway = rig::gateway(&upstream, &[certified(&real, "")]);
    let Member { org, user } = member(&gateway, "acme", "ada@example.com", &["queries:read"]);
    let mut ada = Visitor::new(&gateway);

    let asked = ada.open("/settings/keys?q=lap%20top&page=2");
    assert_eq!(asked.status, 303, "{}", text(&asked));
    let offer = ada.open(asked.header("location").unwrap());
    let (action, fields) = form(&offer);
    assert_eq!(action, "/settings/sign-in/real");
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    // No redirect: browsers hold `form-action` against where a form's answer redirects to as well.
    let leaving = ada.submit(&action, &fields);
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
    assert!(ada.cookie(SIGN_IN).is_none(), "the sign-in is over");

    let cookie = answer.headers.iter().find_map(|(_, field)| field.strip_prefix(&format!("{SESSION}="))).unwrap();
    let mut attributes: Vec<&str> = cookie.split("; ").collect();
    assert_eq!(attributes.remove(0).len(), 43, "256 bits");
    attributes.sort_unstable();
    assert_eq!(attributes, ["HttpOnly", "Max-Age=43200", "Path=/", "SameSite=Lax", "Secure"]);
    let page = ada.open("/settings/keys");
    assert!(page.status == 200 && text(&page).contains("ada@example.com"), "{}", text(&page));

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

    let mut old = Visitor::new(&gateway);
    old.plant(SESSION, &ada.session());
    let leaving = ada.submit("/settings/sign-out", &[]);
    assert!(leaving.status == 200 && ada.cookie(SESSION).is_none(), "{}", text(&leaving));
    assert!(!is_signed_in(&mut old) && !is_admitted(&mut old), "the session outlives its end");
    let out = refresh(&leaving).expect("the page leads to the provider, to sign out there");
    let page = ada.elsewhere.get(&out);
    let (action, mut fields) = page.form().unwrap();
    fields.push(("logout".into(), "yes".into()));
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    let page = ada.elsewhere.submit(&action, &fields);
    let back = ada.elsewhere.follow(page).unwrap_err();
    assert_eq!(path_here(&back), "/settings/signed-out");
    let page = ada.arrive("/settings/signed-out");
    assert!(page.status == 200 && text(&page).contains("signed out"), "{}", text(&page));
    // There, too: the next one is asked who they are.
    let url = ada.begin("real", "");
    let page = ada.elsewhere.get(&url);
    let page = ada.elsewhere.follow(page).expect("the provider asks who it is");
    assert!(page.form().unwrap().1.contains(&("prompt".into(), "login".into())), "{}", page.text());

    let actions: Vec<_> = rig::changes(&gateway).into_iter().map(|record| (record.action, record.ip)).collect();
    let [.., (start, from), (end, _)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!((start.as_str(), end.as_str()), ("session.start", "session.end"));
    assert_eq!(from.unwrap().to_string(), "127.0.0.1");
}

#[test]
fn what_a_session_did_is_in_the_audit_as_its_persons() {
    let (real, upstream) = (rig::real(people()), Upstream::start());
    let gateway = rig::gateway(&upstream, &[certified(&real, "")]);
    let Member { org, user } = member(&gateway, "acme", "ada@example.com", &[]);
    let mut ada = Visitor::new(&gateway);
    assert_eq!(ada.sign_in_as("real", "ada").status, 303);
    let answer = ada.fetch("GET", "/api/x?secret=1");
    let [record] = gateway.records().try_into().unwrap();
    assert_eq!(answer.header("x-request-id"), Some(&*record.id.to_string()));
    assert_eq!((record.user_id, record.org_id, record.key_id), (Some(user), Some(org), None));
    assert_eq!((record.auth_method.as_str(), record.action.as_str()), ("session", "GET /api/x"));
    assert_eq!((record.ip.unwrap().to_string(), record.user_agent.as_deref()), ("127.0.0.1".into(), Some(AGENT)));
    let changes = rig::changes(&gateway);
    let start = changes.last().unwrap();
    assert_eq!((start.action.as_str(), start.user_id, start.org_id), ("session.start", Some(user), Some(org)));
    assert_eq!((start.auth_method.as_str(), start.user_agent.as_deref()), ("session", Some(AGENT)));
}

#[test]
fn people_whom_no_organization_knows_or_the_provider_does_not_vouch_for_stay_outside() {
    let (real, upstream) = (rig::real(people()), Upstream::start());
    let gateway = rig::gateway(&upstream, &[certified(&real, "")]);
    member(&gateway, "acme", "bob@example.com", &[]);
    for (name, status, word) in [("bob", 403, "verified"), ("eve", 403, "no organization")] {
        let mut visitor = Visitor::new(&gateway);
        let answer = visitor.sign_in_as("real", name);
        rig::assert_refused(&answer, status);
        assert!(text(&answer).contains(word), "{name}: {}", text(&answer));
        assert!(!is_signed_in(&mut visitor));
    }
    assert!(rig::sessions(&gateway).is_empty());
}

#[test]
fn a_person_may_decline_at_the_provider() {
    let (real, upstream) = (rig::real(people()), Upstream::start());
    let gateway = rig::gateway(&upstream, &[certified(&real, "")]);
    let mut ada = Visitor::new(&gateway);
    let url = ada.begin("real", "");
    let page = ada.elsewhere.get(&url);
    let page = ada.elsewhere.follow(page).unwrap();
    let page = ada.elsewhere.get(&format!("{}/abort", page.url).parse().unwrap());
    let back = ada.elsewhere.follow(page).unwrap_err();
    rig::assert_refused(&ada.arrive(&path_here(&back)), 403);
}

#[test]
fn the_session_before_ends_when_a_person_signs_in_anew() {
    let (real, upstream) = (rig::real(people()), Upstream::start());
    let gateway = rig::gateway(&upstream, &[certified(&real, "")]);
    member(&gateway, "acme", "ada@example.com", &[]);
    let mut ada = Visitor::new(&gateway);
    let first = given(&ada.sign_in_as("real", "ada")).unwrap().to_owned();
    let second = given(&ada.sign_in_as("real", "ada")).unwrap().to_owned();
    assert_ne!(first, second);
    eventually("there is one session", || rig::sessions(&gateway).len() == 1);
    ada.plant(SESSION, &first);
    assert!(!is_admitted(&mut ada));
    ada.plant(SESSION, &second);
    assert!(is_admitted(&mut ada));
}
