//! The document, and errors that are not those of an operation.

use domain::session::Token;

use super::fixture::{API, OWN, Setup};
use crate::support::Client;

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
fn errors_before_a_request_is_read_are_problems() {
    let setup = Setup::new();
    let ada = setup.admin();
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
