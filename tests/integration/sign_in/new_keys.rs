//! The way of a new key from the form to the page that shows it: by a redirect, sealed in a cookie, for one session.

use super::fixture::{self, member};
use super::gateway_browser::{GatewayBrowser, SESSION, path_here, text};
use crate::support::{Gateway, Response, Upstream};

const ADA: &str = "ada@example.com";

fn signed_in(gateway: &Gateway) -> GatewayBrowser {
    member(gateway, "acme", ADA, &["org:admin"]);
    let mut visitor = GatewayBrowser::new(gateway);
    sign_in(gateway, &mut visitor);
    visitor
}

fn sign_in(gateway: &Gateway, visitor: &mut GatewayBrowser) {
    assert_eq!(visitor.submit(&path_here(&gateway.create_link("acme", ADA)), &[]).status, 303);
}

/// The address of the page that shows a new key, and the name of its cookie.
fn redirect(answer: &Response) -> (String, String) {
    assert_eq!(answer.status, 303, "{}", text(answer));
    let page = answer.header("location").unwrap().to_owned();
    let id = page.strip_prefix("/settings/keys/").and_then(|rest| rest.strip_suffix("/new")).unwrap();
    (page.clone(), format!("__Host-keygate-new-{id}"))
}

fn shows_a_key(answer: &Response) -> bool {
    text(answer).contains("sk_live_")
}

#[test]
fn new_key_is_shown_on_one_page_view_of_the_session_that_created_it() {
    let upstream = Upstream::start();
    let gateway = fixture::gateway(&upstream, &[]);
    let (mut ada, mut other) = (signed_in(&gateway), GatewayBrowser::new(&gateway));
    let created = ada.submit("/settings/keys/new", &[("name", "laptop")]);
    let (page, cookie) = redirect(&created);
    assert!(!shows_a_key(&created) && !created.headers.iter().any(|(_, value)| value.contains("sk_live_")));
    let set = created.headers.iter().find(|(name, value)| name == "set-cookie" && value.starts_with(&cookie)).unwrap();
    for attribute in ["HttpOnly", "Secure", "SameSite=Lax", "Path=/", "Max-Age=120"] {
        assert!(set.1.contains(attribute), "{attribute}: {}", set.1);
    }
    let sealed = ada.cookie(&cookie).unwrap();
    assert!(sealed.len() < 300, "{sealed}");

    // Neither an address alone nor a cookie alone shows the key.
    other.plant(&cookie, &sealed);
    assert!(other.open(&page).status == 303, "without a session");
    sign_in(&gateway, &mut other);
    let elsewhere = other.open(&page);
    assert_eq!(elsewhere.header("location"), Some(&*page.replace("/new", "?done=shown")), "of another session");

    let head = ada.fetch("HEAD", &page);
    assert!(head.status == 200 && ada.cookie(&cookie).is_some(), "HEAD shows nothing, and takes nothing away");
    let shown = ada.open(&page);
    assert!(shown.status == 200 && shows_a_key(&shown), "{}", text(&shown));
    assert_eq!(shown.header("cache-control"), Some("no-store"));
    assert_eq!(ada.cookie(&cookie), None, "the page deletes the cookie");
    let reloaded = ada.open(&page);
    assert!(reloaded.status == 303 && !shows_a_key(&reloaded));
    let led = ada.open(reloaded.header("location").unwrap());
    assert!(text(&led).contains("shown on one page, once") && !shows_a_key(&led), "{}", text(&led));
    assert!(ada.cookie(SESSION).is_some());
}

#[test]
fn new_token_is_shown_on_one_page_view_of_the_session_that_created_it() {
    let upstream = Upstream::start();
    let gateway = fixture::gateway(&upstream, &[]);
    let (mut ada, mut other) = (signed_in(&gateway), GatewayBrowser::new(&gateway));
    let fields = [("name", "pipeline"), ("scope", "keys:read"), ("expiry", "30d"), ("networks", "")];
    let created = ada.submit("/settings/tokens/new", &fields);
    assert_eq!(created.status, 303, "{}", text(&created));
    assert!(!text(&created).contains("kgm_") && !created.headers.iter().any(|(_, value)| value.contains("kgm_")));
    let page = created.header("location").unwrap().to_owned();
    let id = page.strip_prefix("/settings/tokens/").and_then(|rest| rest.strip_suffix("/new")).unwrap();
    let cookie = format!("__Host-keygate-new-{id}");
    other.plant(&cookie, &ada.cookie(&cookie).unwrap());
    sign_in(&gateway, &mut other);
    assert_eq!(other.open(&page).header("location"), Some("/settings/tokens?done=shown-token"), "another session");

    assert!(ada.fetch("HEAD", &page).status == 200 && ada.cookie(&cookie).is_some(), "HEAD takes nothing away");
    let shown = ada.open(&page);
    assert!(shown.status == 200 && text(&shown).contains(&format!("kgm_{id}_")), "{}", text(&shown));
    assert_eq!((shown.header("cache-control"), ada.cookie(&cookie)), (Some("no-store"), None));
    let reloaded = ada.open(&page);
    assert!(reloaded.status == 303 && !text(&reloaded).contains("kgm_"));
    let led = ada.open(reloaded.header("location").unwrap());
    assert!(text(&led).contains("A new token is shown on one page, once"), "{}", text(&led));

    for (wrong, status) in [
        (&[("name", "x"), ("expiry", "30d")][..], 422),
        (&[("name", ""), fields[1], fields[2]], 422),
        (&[fields[0], ("scope", "orgs:write"), fields[2]], 403),
    ] {
        assert_eq!(ada.submit("/settings/tokens/new", wrong).status, status, "{wrong:?}");
    }
    let form = page.replace("/new", "/revoke");
    assert!(text(&ada.open(&form)).contains("Revoke this token"));
    let revoked = ada.submit(&form, &[]);
    assert_eq!(revoked.header("location"), Some("/settings/tokens?done=revoked-token"));
    let list = ada.open("/settings/tokens");
    assert!(text(&list).contains(">Revoked</span>") && !text(&list).contains(&form), "{}", text(&list));
    assert_eq!(ada.open(&form).header("location"), Some("/settings/tokens"), "there is nothing to revoke");
}

#[test]
fn pages_of_tokens_are_for_admins() {
    let upstream = Upstream::start();
    let gateway = fixture::gateway(&upstream, &[]);
    let mut ada = signed_in(&gateway);
    assert!(text(&ada.open("/settings/keys")).contains("href=\"/settings/tokens\""));
    gateway.permit_user_of("acme", ADA, &["queries:read"]);
    assert!(!text(&ada.open("/settings/keys")).contains("/settings/tokens"), "the navigation of a member");
    for path in ["/settings/tokens", "/settings/tokens/new"] {
        assert_eq!(ada.open(path).status, 403, "{path}");
    }
    for path in ["/settings/tokens/aB3dE6gH9j/new", "/settings/tokens/aB3dE6gH9j/revoke"] {
        assert_eq!(ada.open(path).status, 404, "{path}");
    }
    assert_eq!(
        ada.submit("/settings/tokens/new", &[("name", "x"), ("scope", "keys:read"), ("expiry", "30d")]).status,
        403
    );
}

#[test]
fn secret_that_was_replaced_is_not_shown() {
    let upstream = Upstream::start();
    let gateway = fixture::gateway(&upstream, &[]);
    let mut ada = signed_in(&gateway);
    let (page, cookie) = redirect(&ada.submit("/settings/keys/new", &[("name", "laptop")]));
    let sealed = ada.cookie(&cookie).unwrap();
    let form = page.replace("/new", "/rotate");
    let (same, _) = redirect(&ada.submit(&form, &[("rotated", "never"), ("overlap", "24h")]));
    assert_eq!(same, page);
    let newest = ada.cookie(&cookie).unwrap();
    ada.plant(&cookie, &sealed);
    assert_eq!(ada.open(&page).status, 303);
    ada.plant(&cookie, &newest);
    assert!(shows_a_key(&ada.open(&page)));
}

#[test]
fn rotation_form_without_the_last_rotation_changes_nothing() {
    let upstream = Upstream::start();
    let gateway = fixture::gateway(&upstream, &[]);
    let mut ada = signed_in(&gateway);
    let (page, _) = redirect(&ada.submit("/settings/keys/new", &[("name", "laptop")]));
    let form = page.replace("/new", "/rotate");
    for fields in [&[("overlap", "24h")][..], &[("overlap", "24h"), ("rotated", "x")], &[("rotated", "never")]] {
        assert_eq!(ada.submit(&form, fields).status, 422, "{fields:?}");
    }
    let stale = ada.submit(&form, &[("overlap", "24h"), ("rotated", "1")]);
    assert!(stale.status == 409 && text(&stale).contains("rotated meanwhile"), "{}", text(&stale));
    assert!(
        fixture::changes(&gateway)
            .iter()
            .filter(|change| change.action == "key.rotate")
            .all(|change| { change.status == Some(409) })
    );
}
