//! Limits of sign-in attempts and keys, removed users, and cache control of responses to sessions.

use std::io::Write as _;

use serde_json::json;

use super::fixture::{self, PERSON, changes, hostile, is_signed_in, link_of, member, signed_in};
use super::gateway_browser::{GatewayBrowser, text};
use crate::oidc::hostile::Hostile;
use crate::support::{Client, Gateway, Upstream};

#[test]
fn sign_in_attempts_are_limited_by_address_and_sessions_are_not_affected() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let session = fixture::session(&[hostile("corp", &provider, "")], "");
    let limits = "limits: { sign_ins: { requests: 4, per: 1h, burst: 4 } }\n";
    let gateway = Gateway::with(&[upstream.address], &format!("{session}{limits}"));
    let person = member(&gateway, "acme", PERSON, &["org:admin"]);
    let (mut inside, mut outside) = (signed_in(&gateway, "corp"), GatewayBrowser::new(&gateway));
    let mut statuses: Vec<u16> = Vec::new();
    for _ in 0..2 {
        statuses.push(outside.submit("/settings/sign-in/corp", &[]).status);
    }
    statuses.push(outside.arrive("/settings/callback/corp?state=x&code=y").status);
    assert_eq!(statuses, [200, 200, 400]);
    for refused in [
        outside.submit("/settings/sign-in/corp", &[]),
        outside.arrive("/settings/callback/corp?state=x&code=y"),
        outside.arrive("/settings/link/nothing"),
    ] {
        assert_eq!(refused.status, 429, "{}", text(&refused));
        assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
    }
    assert!(is_signed_in(&mut inside));
    let link = link_of(&gateway, person);
    assert_eq!(outside.submit(&link, &[]).status, 303, "a valid link does not count as an attempt");
}

#[test]
fn sign_ins_and_bad_keys_take_no_attempts_from_each_other() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let session = fixture::session(&[hostile("corp", &provider, "")], "");
    // Without a limit of its own, sign-ins have the same one, in a table of their own.
    let limits = "limits: { bad_keys: { requests: 3, per: 1h } }\n";
    let gateway = Gateway::with(&[upstream.address], &format!("{session}{limits}"));
    let bad_key = || Client::connect(gateway.address).get("/", "sk_live_bad").status;
    assert_eq!([bad_key(), bad_key(), bad_key(), bad_key()], [401, 401, 401, 429]);
    let mut visitor = GatewayBrowser::new(&gateway);
    let mut sign_in = || visitor.submit("/settings/sign-in/corp", &[]).status;
    assert_eq!([sign_in(), sign_in(), sign_in(), sign_in()], [200, 200, 200, 429]);
    let other = Gateway::with(&[upstream.address], &format!("{session}{limits}"));
    let mut visitor = GatewayBrowser::new(&other);
    assert!((0..4).map(|_| visitor.submit("/settings/sign-in/corp", &[]).status).any(|status| status == 429));
    assert_eq!(Client::connect(other.address).get("/", "sk_live_bad").status, 401);
}

#[test]
fn responses_to_a_session_are_kept_from_shared_caches() {
    let upstream = Upstream::answering(|received, stream| {
        let field = if received.path() == "/said" { "Cache-Control: max-age=60\r\n" } else { "" };
        write!(stream, "HTTP/1.1 200 OK\r\n{field}Set-Cookie: __Host-keygate=x; Path=/\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
    });
    let provider = Hostile::start();
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &provider, "")]);
    let person = member(&gateway, "acme", PERSON, &[]);
    let mut visitor = signed_in(&gateway, "corp");
    let plain = visitor.fetch("GET", "/x");
    assert_eq!((plain.header("vary"), plain.header("cache-control")), (Some("Cookie"), Some("private, no-cache")));
    assert_eq!(plain.header("set-cookie"), None, "the upstream cannot set the gateway's cookies");
    let said = visitor.fetch("GET", "/said");
    assert_eq!((said.header("vary"), said.header("cache-control")), (Some("Cookie"), Some("max-age=60")));
    let key = gateway.create_key(person.org, PERSON, "k").text;
    let by_key = Client::connect(gateway.address).get("/x", &key);
    assert_eq!((by_key.status, by_key.header("vary"), by_key.header("cache-control")), (200, None, None));
}

#[test]
fn removed_user_does_not_come_back_by_a_claim() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    provider.behave(|now| now.claims = Box::new(|claims| claims["groups"] = json!(["acme"])));
    let gateway = fixture::gateway(&upstream, &[hostile("corp", &provider, "organization: { claim: groups }")]);
    gateway.create_org("acme");
    let mut visitor = signed_in(&gateway, "corp");
    gateway.remove_user_of("acme", PERSON);
    fixture::assert_refused(&visitor.sign_in("corp"), 403);
    gateway.create_user("acme", PERSON, &[]);
    assert_eq!(visitor.sign_in("corp").status, 303, "the operator can add the user again");
}

#[test]
fn keys_of_a_user_are_limited_and_records_name_the_sign_in_method() {
    let upstream = Upstream::start();
    let gateway = fixture::gateway(&upstream, &[]);
    let person = member(&gateway, "acme", PERSON, &[]);
    let mut visitor = GatewayBrowser::new(&gateway);
    assert_eq!(visitor.submit(&link_of(&gateway, person), &[]).status, 303);
    for n in 0..100 {
        let made = visitor.submit("/settings/keys/new", &[("name", &format!("key {n}"))]);
        assert_eq!(made.status, 303, "{n}: {}", text(&made));
    }
    let refused = visitor.submit("/settings/keys/new", &[("name", "one more")]);
    assert!(refused.status == 409 && text(&refused).contains("100 keys"), "{}", text(&refused));
    let [session] = fixture::sessions(&gateway).try_into().unwrap();
    visitor.submit("/settings/sign-out", &[]);
    let paths: Vec<String> = changes(&gateway).into_iter().map(|change| change.path).collect();
    assert!(paths.contains(&"session.start/link".to_owned()));
    assert_eq!(paths.last(), Some(&format!("session.end/{}", session.id)));
}

/// The attack: a member makes a key, spends its burst, revokes it, and again; by the page and by the API.
#[test]
fn making_keys_is_no_way_around_the_limit() {
    const BURST: usize = 3;
    const CREATIONS: usize = 4;
    let upstream = Upstream::start();
    let session = fixture::session(&[], "");
    let limits =
        "limits: { key: { requests: 1, per: 24h, burst: 3 }, key_creation: { requests: 1, per: 1h, burst: 4 } }\n";
    let gateway = Gateway::with(&[upstream.address], &format!("{session}{limits}"));
    let person = member(&gateway, "acme", PERSON, &[]);
    let mut visitor = GatewayBrowser::new(&gateway);
    assert_eq!(visitor.submit(&link_of(&gateway, person), &[]).status, 303);
    let own = [("Sec-Fetch-Site", "same-origin"), ("Content-Type", "application/json")];
    let (mut client, mut admitted) = (Client::connect(gateway.address), 0);
    let refused = loop {
        let made = visitor.send("POST", "/settings/api/v1/orgs/acme/keys", &own, r#"{"name":"k"}"#);
        if made.status != 201 {
            break made;
        }
        let made = made.json();
        let (secret, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
        while client.get("/x", secret).status == 200 {
            admitted += 1;
        }
        assert!(admitted <= BURST * CREATIONS, "{admitted} requests with a limit of {BURST}");
        let revoked = visitor.send("POST", &format!("/settings/api/v1/keys/{id}/revoke"), &own, "");
        assert_eq!(revoked.status, 200);
    };
    assert_eq!((refused.status, refused.code().as_str()), (429, "key_creation_limited"), "{}", text(&refused));
    assert!((1..=3600).contains(&refused.header("retry-after").unwrap().parse::<u64>().unwrap()));
    assert_eq!(admitted, BURST * CREATIONS);
    let page = visitor.submit("/settings/keys/new", &[("name", "one more")]);
    assert_eq!(page.status, 429, "{}", text(&page));
    assert!(page.header("retry-after").is_some() && text(&page).contains("too many keys"), "{}", text(&page));
    // The operator is not bound, and the key that the operator makes cannot be rotated by the member now.
    let key = gateway.create_key(person.org, person.user, "laptop");
    let rotated = visitor.send("POST", &format!("/settings/api/v1/keys/{}/rotate", key.id), &own, "{}");
    assert_eq!((rotated.status, rotated.code().as_str()), (429, "key_creation_limited"));
    gateway.rotate(&key, None);
}

#[test]
fn oldest_session_of_a_person_ends_for_a_new_one() {
    let upstream = Upstream::start();
    let session = fixture::session(&[], "");
    let gateway = Gateway::with(&[upstream.address], &format!("{session}limits: {{ sessions_per_person: 2 }}\n"));
    let person = member(&gateway, "acme", PERSON, &[]);
    let mut browsers: Vec<GatewayBrowser> = (0..3).map(|_| GatewayBrowser::new(&gateway)).collect();
    for browser in &mut browsers {
        assert_eq!(browser.submit(&link_of(&gateway, person), &[]).status, 303);
    }
    let signed_in: Vec<bool> = browsers.iter_mut().map(is_signed_in).collect();
    assert_eq!(signed_in, [false, true, true]);
    assert_eq!(fixture::sessions(&gateway).len(), 2);
    let ends = changes(&gateway).into_iter().filter(|change| change.path.starts_with("session.end/"));
    assert_eq!(ends.count(), 1, "the end is recorded");
}
