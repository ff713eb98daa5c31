//! Persons: bounds go by issuer and `sub`, or by the user of a link, and never by the address that two
//! providers may claim.

use control::management::Session;
use serde_json::json;

use super::fixture::{self, Member, PERSON, hostile, is_admitted, is_signed_in, link_of, member, sessions, signed_in};
use super::gateway_browser::{GatewayBrowser, text};
use crate::oidc::hostile::Hostile;
use crate::support::{Gateway, Response, Upstream};

const API: &str = "/settings/api/v1";

/// A gateway on which two providers claim one address, each for an organization of its own.
struct TwoProviders {
    gateway: Gateway,
    _upstream: Upstream,
    _providers: [Hostile; 2],
}

impl TwoProviders {
    /// With these settings in the block `session`, and these blocks.
    fn new(session: &str, blocks: &str) -> Self {
        let (providers, upstream) = ([Hostile::start(), Hostile::start()], Upstream::start());
        for (provider, org) in providers.iter().zip(["acme", "bolt"]) {
            provider.behave(|now| {
                now.claims = Box::new(move |claims| {
                    claims["groups"] = json!([org]);
                    claims["roles"] = json!(["org:admin"]);
                });
            });
        }
        let people =
            |org: &str| format!("organization: {{ claim: groups }}, permissions: {{ claim: roles }}, only: [{org}]");
        let blocks_of =
            [hostile("one", &providers[0], &people("acme")), hostile("two", &providers[1], &people("bolt"))];
        let session = if session.is_empty() {
            fixture::session(&blocks_of, "")
        } else {
            // In place of the fixture's limit.
            fixture::session(&blocks_of, "").replace("limit: { requests: 1000000, per: 1m }", session)
        };
        let gateway = Gateway::with(&[upstream.address], &format!("{session}{blocks}"));
        for name in ["acme", "bolt"] {
            gateway.create_org(name);
        }
        Self { gateway, _upstream: upstream, _providers: providers }
    }
}

fn delete(visitor: &mut GatewayBrowser, path: &str) -> Response {
    visitor.send("DELETE", &format!("{API}{path}"), &[("Sec-Fetch-Site", "same-origin")], "")
}

/// The id of a visitor's own session.
fn own(visitor: &mut GatewayBrowser) -> String {
    let shown = visitor.fetch("GET", &format!("{API}/session"));
    assert_eq!(shown.status, 200, "{}", text(&shown));
    shown.json()["session"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn sessions_of_the_same_address_at_another_provider_end_nothing() {
    let setup = TwoProviders::new("", "limits: { sessions_per_person: 2 }\n");
    let mut ada = signed_in(&setup.gateway, "one");
    for _ in 0..4 {
        signed_in(&setup.gateway, "two");
    }
    assert!(is_signed_in(&mut ada), "sign-ins at another provider have ended her session");
    assert_eq!(sessions(&setup.gateway).len(), 3);
    signed_in(&setup.gateway, "one");
    signed_in(&setup.gateway, "one");
    assert!(!is_signed_in(&mut ada), "her own ones count");
    assert_eq!(sessions(&setup.gateway).len(), 4);
}

#[test]
fn requests_of_the_same_address_at_another_provider_use_nothing_up() {
    let setup = TwoProviders::new("limit: { requests: 6, per: 1h, burst: 4 }", "");
    let (mut ada, mut other) = (signed_in(&setup.gateway, "one"), signed_in(&setup.gateway, "two"));
    let statuses: Vec<u16> = (0..6).map(|_| other.fetch("GET", &format!("{API}/session")).status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    assert_eq!(ada.fetch("GET", &format!("{API}/session")).status, 200);
    let mut again = signed_in(&setup.gateway, "two");
    assert_eq!(again.fetch("GET", &format!("{API}/session")).status, 429, "all sessions of a person share a bucket");
}

/// The attack: whoever has stolen a session keeps its owner from ending it.
#[test]
fn stolen_session_does_not_keep_its_owner_from_ending_it() {
    let upstream = Upstream::start();
    let provider = Hostile::start();
    let session = fixture::session(&[hostile("corp", &provider, "")], "")
        .replace("limit: { requests: 1000000, per: 1m }", "limit: { requests: 4, per: 1h, burst: 4 }");
    let gateway = Gateway::with(&[upstream.address], &session);
    member(&gateway, "acme", PERSON, &[]);
    let mut stolen = signed_in(&gateway, "corp");
    let id = own(&mut stolen);
    // Requests that end nothing use nothing up, also in the stolen session itself.
    for _ in 0..20 {
        let missing = delete(&mut stolen, "/sessions/ses_0198f0c4a5b37c8e9d2f3a4b5c6d7e8f");
        assert_eq!(missing.status, 404, "{}", text(&missing));
        assert_eq!(stolen.submit("/settings/sessions/nothing/end", &[]).status, 404);
    }
    while stolen.fetch("GET", &format!("{API}/session")).status == 200 {}
    let mut owner = signed_in(&gateway, "corp");
    assert_eq!(owner.fetch("GET", &format!("{API}/session")).status, 429, "the person's bucket is empty");
    // The bucket of what has ended something is the session's.
    for _ in 0..4 {
        signed_in(&gateway, "corp");
        let mut listed = sessions(&gateway).into_iter().map(|session| session.id.to_string());
        let newest = listed.rfind(|other| *other != id).unwrap();
        // Ends the owner's too, if it is the newest: then the owner signs in again.
        assert_eq!(delete(&mut stolen, &format!("/sessions/{newest}")).status, 200);
    }
    assert_eq!(delete(&mut stolen, &format!("/sessions/{id}")).status, 429);
    let mut owner = signed_in(&gateway, "corp");
    let ended = delete(&mut owner, &format!("/sessions/{id}"));
    assert_eq!(ended.status, 200, "{}", text(&ended));
    assert!(!is_signed_in(&mut stolen));
}

#[test]
fn all_other_sessions_end_by_one_request_that_is_always_served() {
    let upstream = Upstream::start();
    let provider = Hostile::start();
    let session = fixture::session(&[hostile("corp", &provider, "")], "")
        .replace("limit: { requests: 1000000, per: 1m }", "limit: { requests: 1, per: 1h, burst: 1 }");
    let gateway = Gateway::with(&[upstream.address], &session);
    let person = member(&gateway, "acme", PERSON, &[]);
    let other = member(&gateway, "bolt", "other@example.com", &[]);
    let [mut by_link, mut stranger] = [person, other].map(|member| {
        let mut visitor = GatewayBrowser::new(&gateway);
        assert_eq!(visitor.submit(&link_of(&gateway, member), &[]).status, 303);
        visitor
    });
    let (mut owner, mut stolen) = (signed_in(&gateway, "corp"), signed_in(&gateway, "corp"));
    // Both buckets of the owner's session are empty.
    assert_eq!(delete(&mut owner, &format!("/sessions/{}", own_id(&gateway, PERSON, 0))).status, 200);
    assert_eq!(owner.fetch("GET", &format!("{API}/session")).status, 200);
    assert_eq!(owner.fetch("GET", &format!("{API}/session")).status, 429);
    assert!(!is_admitted(&mut by_link));
    assert_eq!(by_link.submit(&link_of(&gateway, person), &[]).status, 303);
    for _ in 0..3 {
        let ended = owner.submit("/settings/sessions/end-others", &[]);
        assert_eq!((ended.status, ended.header("location")), (303, Some("/settings/sessions?done=ended-others")));
    }
    assert!(!is_admitted(&mut stolen) && !is_admitted(&mut by_link));
    assert!(is_admitted(&mut owner) && is_admitted(&mut stranger));
    signed_in(&gateway, "corp");
    let ended = delete(&mut owner, "/sessions");
    assert_eq!((ended.status, ended.json()), (200, json!({ "ended": 1 })));
    assert_eq!(delete(&mut owner, "/session").status, 204, "signing out is always served, too");
    assert_eq!(sessions(&gateway).len(), 1);
}

/// The id of the session of this address, at this place among them.
fn own_id(gateway: &Gateway, email: &str, place: usize) -> String {
    let of_person: Vec<Session> = sessions(gateway).into_iter().filter(|session| session.email == email).collect();
    of_person[place].id.to_string()
}

#[test]
fn administrator_ends_the_membership_of_the_own_organization_only() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &provider, "")]);
    let [acme, bolt] = ["acme", "bolt"].map(|org| member(&gateway, org, PERSON, &[]));
    let mut person = signed_in(&gateway, "corp");
    let [boss_of_acme, boss_of_bolt] = ["acme", "bolt"].map(|org| {
        let user = gateway.create_user(org, &format!("boss@{org}.example"), &["org:admin"]);
        let mut boss = GatewayBrowser::new(&gateway);
        assert_eq!(boss.submit(&link_of(&gateway, Member { org: user.org, user: user.id }), &[]).status, 303);
        boss
    });
    let ([mut boss_of_acme, mut boss_of_bolt], id) = ([boss_of_acme, boss_of_bolt], own(&mut person));
    assert_eq!(person.fetch("GET", "/x").status, 200);
    assert_eq!(upstream.last().header("x-org-id"), Some(&*acme.org.to_string()));

    assert_eq!(delete(&mut boss_of_acme, &format!("/sessions/{id}")).status, 200);
    assert!(is_signed_in(&mut person), "the administrator of acme has ended the session in bolt");
    assert_eq!(person.fetch("GET", "/x").status, 200);
    assert_eq!(upstream.last().header("x-org-id"), Some(&*bolt.org.to_string()));
    assert_eq!(person.submit("/settings/org", &[("org", &acme.org.to_string())]).status, 403);
    assert_eq!(delete(&mut boss_of_acme, &format!("/sessions/{id}")).status, 404, "it is not acme's any more");
    let ends: Vec<_> = fixture::changes(&gateway).into_iter().filter(|change| change.action == "session.end").collect();
    let [end] = ends.as_slice() else { panic!("{ends:?}") };
    assert_eq!((end.org_id, end.path.as_str()), (Some(acme.org), &*format!("session.end/{id}")));

    assert_eq!(delete(&mut boss_of_bolt, &format!("/sessions/{id}")).status, 200);
    assert!(!is_signed_in(&mut person) && !is_admitted(&mut person));
    // A person ends a session of their own as a whole.
    let (mut one, mut two) = (signed_in(&gateway, "corp"), signed_in(&gateway, "corp"));
    let id = own(&mut two);
    assert_eq!(delete(&mut one, &format!("/sessions/{id}")).status, 200);
    assert!(!is_signed_in(&mut two) && is_signed_in(&mut one));
}
