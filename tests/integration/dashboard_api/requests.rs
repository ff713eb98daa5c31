//! Validation of requests, and the errors for invalid ones.

use domain::session::Token;

use super::fixture::{API, JSON, OWN, Setup};
use crate::support::{Client, Response};

#[test]
fn document_is_public_and_its_examples_are_valid() {
    let setup = Setup::new();
    assert!(setup.document.wrong_examples().is_empty(), "{:#?}", setup.document.wrong_examples());
    let mut client = Client::connect(setup.address());
    let head = client.request("HEAD", "/settings/api/openapi.json", "", &[], b"");
    assert_eq!((head.status, head.header("cache-control")), (200, Some("no-store")));
    let post = client.request("POST", "/settings/api/openapi.json", "", &[OWN], b"");
    assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn unknown_paths_and_methods_are_404_and_405() {
    let setup = Setup::new();
    let ada = setup.admin();
    let mut client = Client::connect(setup.address());
    let headers = [("Cookie", ada.cookie.as_str()), OWN];
    for path in
        ["/settings/api", "/settings/api/", "/settings/api/v2/keys", "/settings/api/v1", "/settings/api/v1/keys/"]
    {
        let nowhere = client.request("GET", path, "", &headers, b"");
        assert_eq!((nowhere.status, nowhere.code().as_str()), (404, "not_found"), "{path}");
    }
    for (method, path, allowed) in [
        ("PUT", "/session", "GET, HEAD, PATCH, DELETE"),
        ("DELETE", "/tokens", "GET, HEAD, POST"),
        ("GET", "/keys/aB3dE6gH9/revoke", "POST"),
        ("OPTIONS", "/orgs/acme", "GET, HEAD"),
    ] {
        let refused = client.request(method, &format!("{API}{path}"), "", &headers, b"");
        assert_eq!((refused.status, refused.header("allow")), (405, Some(allowed)), "{method} {path}");
        assert_eq!(refused.code(), "method_not_allowed");
    }
    let head = client.request("HEAD", &format!("{API}/tokens"), "", &headers, b"");
    assert_eq!((head.status, head.header("cache-control")), (200, Some("no-store")));
}

#[test]
fn invalid_input_is_named() {
    let setup = Setup::new();
    let ada = setup.admin();
    let (_, id) = ada.key("laptop");
    let cookie = ("Cookie", ada.cookie.as_str());
    let says = |response: &Response, code: &str, words: &str| {
        assert_eq!(response.code(), code);
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(words), "{detail}");
    };
    for (path, code, words) in [
        ("/keys?offset=3".to_owned(), "invalid_parameter", "`offset`"),
        (format!("/keys/{id}/requests?limit=1&limit=2"), "invalid_parameter", "`limit` is given twice"),
        (format!("/keys/{id}/requests?limit=ten"), "invalid_limit", "`limit`"),
        (format!("/keys/{id}/requests?limit=0"), "invalid_limit", "at least 1"),
        (format!("/keys/{id}/requests?refused=yes"), "invalid_parameter", "`refused`"),
        (format!("/keys/{id}/requests?outcome=bad"), "invalid_parameter", "rate_limited"),
        (format!("/keys/{id}/requests?cursor=x"), "invalid_cursor", "`cursor`"),
    ] {
        says(&ada.get(&path), code, words);
    }
    for (body, words) in [
        ("", "empty"),
        ("[\"laptop\"]", "not a JSON object"),
        ("{\"name\":", "line 1 column 8"),
        ("{}", "missing field `name`"),
        ("{\"name\": \"x\", \"nmae\": 1}", "unknown field `nmae`"),
        ("{\"name\": 1}", "line 1 column 10"),
        ("{\"name\": \"x\", \"name\": \"y\"}", "duplicate field `name`"),
        ("{\"name\": \"x\"} {}", "trailing characters"),
    ] {
        says(
            &setup.send_request("POST", &ada.path("/keys"), &[cookie, OWN, JSON], body.as_bytes()),
            "invalid_body",
            words,
        );
    }
    let bad_name = setup.send_request("POST", &ada.path("/keys"), &[cookie, OWN, JSON], br#"{"name": "x\u200b"}"#);
    says(&bad_name, "invalid_name", "1 to 100 characters");
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", ""] {
        let refused =
            setup.send_request("POST", &ada.path("/keys"), &[cookie, OWN, ("Content-Type", kind)], br#"{"name": "x"}"#);
        assert_eq!((refused.status, refused.code().as_str()), (415, "unsupported_media_type"), "{kind}");
    }
    let too_long = setup.send_request(
        "POST",
        &format!("/keys/{id}/rotate"),
        &[cookie, OWN, JSON],
        br#"{"overlap_seconds": 31622401}"#,
    );
    says(&too_long, "invalid_overlap", "366d");
    assert_eq!(ada.get("/keys").json()["items"].as_array().unwrap().len(), 1);
}

#[test]
fn errors_before_a_request_is_read_are_problems() {
    let setup = Setup::new();
    let ada = setup.admin();
    let large = vec![b' '; (64 << 10) + 1];
    let refused = setup.send_request("POST", &ada.path("/keys"), &[("Cookie", &ada.cookie), OWN, JSON], &large);
    assert_eq!((refused.status, refused.code().as_str()), (413, "body_too_large"));
    let other = format!("{}; __Host-keygate={}", ada.cookie, Token::generate().unwrap().expose());
    let long = ada.path(&format!("/keys?{}", "a".repeat(60_000)));
    assert_eq!(setup.send_request("GET", &long, &[("Cookie", &ada.cookie)], b"").status, 414);
    let wide = "a".repeat(200_000);
    assert_eq!(setup.send_request("GET", &ada.path("/keys"), &[("X-Wide", &wide)], b"").status, 431);
    assert_eq!(setup.send_request("GET", &ada.path("/keys"), &[("Content-Length", "ten")], b"").status, 400);
    let two = setup.send_request("GET", &ada.path("/keys"), &[("Cookie", &other)], b"");
    assert_eq!((two.status, two.code().as_str()), (400, "invalid_request"));
}

#[test]
fn unreadable_journal_is_503_with_retry_after() {
    let setup = Setup::new();
    let ada = setup.admin();
    let (_, id) = ada.key("laptop");
    let audit = setup.gateway.dir.path().join("audit");
    std::fs::rename(&audit, setup.gateway.dir.path().join("away")).unwrap();
    for path in [format!("/keys/{id}/requests"), format!("/activity?keys={id}")] {
        let away = ada.get(&path);
        assert_eq!((away.status, away.code().as_str()), (503, "audit_unavailable"), "{path}");
        assert!(away.header("retry-after").is_some());
        assert!(!away.json()["detail"].as_str().unwrap().contains('/'), "no file is named");
    }
    assert_eq!(ada.get("/keys").status, 200);
    std::fs::rename(setup.gateway.dir.path().join("away"), &audit).unwrap();
}
