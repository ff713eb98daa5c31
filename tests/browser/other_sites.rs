//! Pages of other origins in the browser of a signed-in user: they change nothing.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway};
use crate::support::Upstream;

#[test]
fn api_accepts_pages_of_the_gateway_and_refuses_pages_of_other_origins() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    assert_eq!(browser.script("return document.cookie"), "", "scripts do not see the session");
    assert_eq!(list(&browser).len(), 250);
    let kind = json!({ "Content-Type": "application/json" });
    let post = json!({ "method": "POST", "headers": kind, "body": r#"{"name":"mine","sql":"select 1"}"# });
    assert_eq!(browser.fetch("/api/queries", &post).0, 201, "the gateway's own pages may change something");
    let keys = browser.texts(".keys .name");

    let other = other_site(&gateway.origin);
    // Another port is another origin of the same site: the browser sends the session. `localhost` is another site: its
    // forms are sent without the session.
    let sites = [(format!("http://127.0.0.1:{other}"), 403), (format!("http://localhost:{other}"), 401)];
    for (site, api) in sites {
        for (form, expected) in [("query", api), ("key", 403), ("out", 403)] {
            browser.go(&site);
            browser.click_link_or_submit(&format!("#{form} button"));
            assert!(browser.address().starts_with(&gateway.origin), "{}", browser.address());
            assert_eq!(browser.status(), expected, "{form} of {site}: {}", browser.text("body"));
        }
        browser.go(&site);
        browser.follow("To the keys");
        assert_eq!(browser.heading(), "API Keys", "the session is still valid, and links from other sites send it");
        assert_eq!(browser.texts(".keys .name"), keys, "no key was created");
    }
    let planted = list(&browser).into_iter().filter(|query| query["name"] == "planted").count();
    assert_eq!(planted, 0, "no query was created");
    gateway.end(&browser);
}

/// All queries, fetched page by page by a script of the current page.
fn list(browser: &Browser) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, text) = browser.fetch(&format!("/api/queries?limit=100{cursor}"), &json!({}));
        assert_eq!(status, 200, "{text}");
        let page: Value = serde_json::from_str(&text).unwrap();
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["nextCursor"].as_str() else { return items };
        cursor = format!("&cursor={next}");
    }
}

/// A site with forms that target the gateway, and its port. The first form has a JSON body.
fn other_site(gateway: &str) -> u16 {
    let page = format!(
        r#"<!doctype html><title>Elsewhere</title><link rel="icon" href="data:,">
<form id="query" method="post" enctype="text/plain" action="{gateway}/api/queries">
<input name="{{&quot;name&quot;:&quot;planted&quot;,&quot;sql&quot;:&quot;select 1&quot;,&quot;rest&quot;:&quot;"
 value="&quot;}}">
<button>Go</button></form>
<form id="key" method="post" action="{gateway}/settings/keys/new"><input name="name" value="planted">
<button>Go</button></form>
<form id="out" method="post" action="{gateway}/settings/sign-out"><button>Go</button></form>
<a href="{gateway}/settings/keys">To the keys</a>"#
    );
    let site = Upstream::answering(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        stream.write_all(format!("{head}{page}").as_bytes()).ok();
    });
    site.address.port()
}
