//! Secrets of requests: none of them is in the bytes of the access log.

use domain::management_token::PlainToken;

use super::{FILE, lines};
use crate::support::{Client, Gateway};

#[test]
fn keys_cookies_and_query_strings_are_never_in_the_log() {
    let (_upstream, gateway, key) = Gateway::with_secret(FILE);
    let secret = &key[key.len() - 49..];
    let encoded: String = key.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let headers = [
        ("Cookie", "session=cookie-secret"),
        ("User-Agent", &format!("agent {key}")),
        ("Referer", "https://example.com/?referer-secret"),
        ("X-Api-Key", "header-secret"),
    ];
    let paths = [format!("/a/{key}?query-secret=1&k={key}"), format!("/b/{encoded}"), format!("/c?token={key}")];
    let mut client = Client::connect(gateway.address);
    for path in &paths {
        client.request("POST", path, &key, &headers, b"body-secret");
    }
    client.request("POST", &paths[0], "sk_live_unknown", &headers, b"body-secret");
    let token = PlainToken::generate().unwrap();
    let token_text = token.expose().expose();
    client.request("GET", &format!("/d/{token_text}"), token_text, &[("User-Agent", token_text)], b"");
    lines(&gateway, 5);
    let text = std::fs::read_to_string(gateway.dir.path().join("access.log")).unwrap();
    assert!(!text.contains("-secret") && !text.contains(secret) && !text.contains(&encoded[30..]), "{text}");
    assert!(!text.contains(&token_text[15..]), "{text}");
    assert!(text.contains("/a/sk_live_"), "the key's public id stays: {text}");
    assert!(text.contains(&format!("/d/kgm_{}_", token.id())), "the token's, too: {text}");
}

#[test]
fn query_string_is_logged_where_its_route_says_so_without_its_keys() {
    let routes = "routes: [{ name: shown, path: /shown, log_query: true }, { name: hidden, path: /hidden }]\n";
    let (_upstream, gateway, key) = Gateway::with_secret(&format!("{FILE}{routes}"));
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get(&format!("/shown?limit=20&api_key=legacy-secret&q={key}"), &key).status, 200);
    assert_eq!(client.get("/hidden?limit=20", &key).status, 200);
    assert_eq!(client.get("/shown?limit=20&access_token=legacy-secret", "sk_live_unknown").status, 401);
    let lines = lines(&gateway, 3);
    let public = &key[..18];
    let shown = format!("limit=20&api_key=REDACTED&q={public}\u{2026}");
    assert_eq!(lines[0]["url.query"], shown, "{lines:#?}");
    assert!(lines[1].get("url.query").is_none());
    assert_eq!(lines[2]["url.query"], "limit=20&access_token=REDACTED", "refusals follow the route as well");
}

#[test]
fn request_cannot_forge_a_line() {
    let (_upstream, gateway, key) = Gateway::with_secret(FILE);
    let mut client = Client::connect(gateway.address);
    let agent = "x\",\"keygate.outcome\":\"forged\",\"y\":\"\u{9b}31m\u{e9}\\";
    client.request("GET", "/%0a%7b?x", &key, &[("User-Agent", agent)], b"");
    let lines = lines(&gateway, 1);
    assert_eq!(lines[0]["user_agent.original"], agent);
    assert_eq!(lines[0]["keygate.outcome"], "completed");
    assert_eq!(lines[0]["url.path"], "/%0a%7b");
}
