//! Signing in without a click, where the only provider has a session of the user.

use std::mem;

use serde_json::json;

use super::fixture::{self, certified, hostile, is_signed_in, member};
use super::gateway_browser::{GatewayBrowser, SESSION, path_here, refresh, text};
use crate::oidc::certified_provider::Real;
use crate::oidc::hostile::Hostile;
use crate::support::{Gateway, Response, Upstream};

/// Cookie of a browser that is not signed in without a click.
const NO_SILENT: &str = "__Host-keygate-no-silent";

fn setup() -> (Real, Upstream, Gateway) {
    let real = fixture::real(json!({ "ada": { "email": "ada@example.com", "email_verified": true } }));
    let upstream = Upstream::start();
    let gateway = fixture::gateway(&upstream, &[certified(&real, "")]);
    member(&gateway, "acme", "ada@example.com", &["queries:read"]);
    (real, upstream, gateway)
}

/// Opens a page as a browser does, and follows redirects to the sign-in page.
fn open(visitor: &mut GatewayBrowser, path: &str) -> Response {
    let fields = [("Sec-Fetch-Site", "none"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    let answer = visitor.send("GET", path, &fields, "");
    match answer.header("location").map(str::to_owned) {
        Some(location) if answer.status == 303 => visitor.send("GET", &location, &fields, ""),
        _ => answer,
    }
}

fn is_sign_in_page(page: &Response) -> bool {
    page.status == 200 && refresh(page).is_none() && text(page).contains("Continue with The real one")
}

/// Opens a page, and goes to the provider and back without a click; returns the response to the callback.
fn come_back(visitor: &mut GatewayBrowser, path: &str) -> Response {
    let leaving = open(visitor, path);
    let provider = refresh(&leaving).unwrap_or_else(|| panic!("no way to the provider: {}", text(&leaving)));
    assert!(provider.query_pairs().any(|pair| pair == ("prompt".into(), "none".into())), "{provider}");
    let back = visitor.elsewhere.sign_in(provider.as_str(), "nobody, because there is no form");
    visitor.arrive(&path_here(&back))
}

#[test]
fn user_with_a_session_at_the_only_provider_is_signed_in_without_a_click() {
    let (_real, _upstream, gateway) = setup();
    let mut first = GatewayBrowser::new(&gateway);
    first.sign_in_as("real", "ada");
    let mut later = GatewayBrowser::new(&gateway);
    later.elsewhere = mem::take(&mut first.elsewhere);
    let answer = come_back(&mut later, "/settings/keys/new");
    assert_eq!((answer.status, answer.header("location")), (303, Some("/settings/keys/new")), "{}", text(&answer));
    assert!(is_signed_in(&mut later) && later.cookie(NO_SILENT).is_none());

    later.submit("/settings/sign-out", &[]);
    assert!(later.cookie(SESSION).is_none() && later.cookie(NO_SILENT).is_some());
    for path in ["/settings", "/settings/keys", "/settings/sign-in"] {
        assert!(is_sign_in_page(&open(&mut later, path)), "who has signed out is not signed in without a click");
    }
    assert_eq!(later.sign_in_as("real", "ada").status, 303);
    assert!(is_signed_in(&mut later) && later.cookie(NO_SILENT).is_none());
    fixture::sessions(&gateway).iter().for_each(|session| gateway.end_session(session.id));
    assert!(is_sign_in_page(&open(&mut later, "/settings/sign-in")), "a session that was ended stays ended");
}

#[test]
fn user_without_a_session_at_the_provider_sees_the_page_after_one_try() {
    let (_real, _upstream, gateway) = setup();
    let mut visitor = GatewayBrowser::new(&gateway);
    let answer = come_back(&mut visitor, "/settings/keys?page=2");
    let location = answer.header("location").unwrap().to_owned();
    assert_eq!((answer.status, &*location), (303, "/settings/sign-in?return_to=%2Fsettings%2Fkeys%3Fpage%3D2&tried=1"));
    assert!(is_sign_in_page(&open(&mut visitor, &location)));
    for path in ["/settings", "/settings/keys", "/settings/sign-in"] {
        assert!(is_sign_in_page(&open(&mut visitor, path)), "there is one try for each visit");
    }
    let mut forgetful = GatewayBrowser::new(&gateway);
    assert!(is_sign_in_page(&open(&mut forgetful, &location)), "the address rules out another try");
    assert_eq!(visitor.sign_in_as("real", "ada").status, 303, "the button still works");
}

#[test]
fn sign_in_without_a_click_is_tried_only_by_a_page_that_is_opened() {
    let (_real, _upstream, gateway) = setup();
    let plain = [("Sec-Fetch-Mode", "navigate")];
    let frame = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")];
    let script = [("Sec-Fetch-Mode", "cors"), ("Sec-Fetch-Dest", "empty")];
    let ahead = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document"), ("Sec-Purpose", "prefetch")];
    for fields in [&[][..], &plain, &frame, &script, &ahead] {
        let page = GatewayBrowser::new(&gateway).send("GET", "/settings/sign-in", fields, "");
        assert!(is_sign_in_page(&page), "{fields:?}: {}", text(&page));
    }
    let (upstream, providers) = (Upstream::start(), [Hostile::start(), Hostile::start()]);
    let blocks = [hostile("one", &providers[0], "only: all"), hostile("two", &providers[1], "only: all")];
    let gateway = fixture::gateway(&upstream, &blocks);
    let page = open(&mut GatewayBrowser::new(&gateway), "/settings/sign-in");
    assert!(refresh(&page).is_none() && text(&page).contains("The two one"), "with two providers, the user chooses");
}

#[test]
fn page_is_shown_when_the_provider_is_away() {
    let (real, _upstream, gateway) = setup();
    drop(real);
    let page = open(&mut GatewayBrowser::new(&gateway), "/settings/sign-in");
    assert!(is_sign_in_page(&page), "{}", text(&page));
}
