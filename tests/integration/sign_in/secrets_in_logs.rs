//! Secrets are in no log at any level, in no metric and in no audit record.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use serde_json::json;
use url::Url;

use super::fixture::{self, certified};
use super::gateway_browser::{GatewayBrowser, SESSION, path_here, refresh, text};
use super::process::GatewayProcess;
use crate::support::{Client, Upstream, over_http2, until};

/// Names and values of secrets.
type Secrets = Vec<(&'static str, String)>;

#[test]
fn secrets_are_in_no_log_metric_or_audit_record() {
    let accounts = json!({"ada": {"email": "ada@example.com", "email_verified": true}});
    let (real, upstream) = (fixture::real(accounts), Upstream::start());
    let gateway = GatewayProcess::start(&upstream, &fixture::session(&[certified(&real, "")], ""));
    gateway.keygate(&["org", "create", "acme"]);
    gateway.keygate(&["user", "create", "--org", "acme", "--permission", "org:admin", "ada@example.com"]);
    let key = gateway.keygate(&["key", "create", "--org", "acme", "--user", "ada@example.com", "laptop"]);
    let client_secret = real.settings().client_secret.unwrap().expose().to_owned();
    let mut secrets = vec![("the key", key.clone()), ("the client's secret", client_secret)];

    sign_in(&gateway, false, &mut secrets);
    let mut ada = sign_in(&gateway, true, &mut secrets);
    work(&gateway, &mut ada, &key, &mut secrets);
    over_frames(&gateway, &format!("{SESSION}={}", ada.session()), &key);
    sign_out(&mut ada, &mut secrets);
    sign_in_by_link(&gateway, &mut secrets);

    let texts = ["TRACE", "DEBUG", "user signed in", "user signed in with a link", "sign-in refused"];
    let log =
        until("the log is complete", || Some(gateway.log()).filter(|log| texts.iter().all(|text| log.contains(text))));
    let metrics = text(&Client::connect(gateway.admin).get("/metrics", ""));
    let audit = String::from_utf8_lossy(&gateway.files("audit")).into_owned();
    assert!(audit.contains("session.start") && metrics.contains("keygate_"));
    for (place, content) in [("log", &log), ("metrics", &metrics), ("audit", &audit)] {
        for (what, secret) in &secrets {
            assert!(secret.len() > 20 && !content.contains(secret.as_str()), "{what} is in the {place}");
        }
        assert!(!content.contains("eyJ"), "a token is in the {place}");
    }
}

/// Signs in by the provider: in the browser that began the sign-in, or in another, which is refused.
fn sign_in(gateway: &GatewayProcess, in_the_same: bool, secrets: &mut Secrets) -> GatewayBrowser {
    let mut ada = GatewayBrowser::at(gateway.address);
    let url = ada.begin("real", "");
    let browser = ada.sign_in_cookie().unwrap();
    let asked = |name: &str| url.query_pairs().find(|(given, _)| given == name).unwrap().1.into_owned();
    let back = ada.elsewhere.sign_in(url.as_str(), "ada");
    let code = back.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    if !in_the_same {
        ada = GatewayBrowser::at(gateway.address);
    }
    let answer = ada.arrive(&path_here(&back));
    assert_eq!(answer.status, if in_the_same { 303 } else { 400 }, "{}", text(&answer));
    secrets.extend([("the state", asked("state")), ("the nonce", asked("nonce")), ("the code", code)]);
    secrets.push(("the sign-in's cookie", browser));
    secrets.extend(ada.cookie(SESSION).map(|session| ("the session", session)));
    ada
}

/// Opens pages, uses both APIs, creates a key, and sends an invalid request.
fn work(gateway: &GatewayProcess, ada: &mut GatewayBrowser, key: &str, secrets: &mut Secrets) {
    for path in ["/settings/keys", "/settings/sessions", "/settings/api/v1/session", "/api/x"] {
        assert_eq!(ada.fetch("GET", path).status, 200, "{path}");
    }
    let redirect = ada.submit("/settings/keys/new", &[("name", "made on a page")]);
    let page = redirect.header("location").unwrap().to_owned();
    let id = page.split('/').nth(3).unwrap();
    secrets.push(("the sealed key", ada.cookie(&format!("__Host-keygate-new-{id}")).unwrap()));
    let created = text(&ada.open(&page));
    let made = created.find("sk_live_").map(|start| created[start..].chars().take(key.len()).collect::<String>());
    secrets.push(("the key of the page", made.expect("the page shows the key")));
    assert_eq!(Client::connect(gateway.address).get("/api/x", key).status, 200);
    let both = format!("{SESSION}={}; {SESSION}=other", ada.session());
    let twice = GatewayBrowser::at(gateway.address).send("GET", "/settings/keys", &[("Cookie", &both)], "");
    assert_eq!(twice.status, 400);
}

fn sign_out(ada: &mut GatewayBrowser, secrets: &mut Secrets) {
    let leaving = ada.submit("/settings/sign-out", &[]);
    let out = refresh(&leaving).expect("the page leads to the provider");
    let id_token = out.query_pairs().find(|(name, _)| name == "id_token_hint").unwrap().1.into_owned();
    secrets.extend(id_token.split('.').map(|part| ("the ID token", part.to_owned())));
}

/// Signs in by a link, which another browser then tries.
fn sign_in_by_link(gateway: &GatewayProcess, secrets: &mut Secrets) {
    let said = gateway.keygate(&["session", "link", "--org", "acme", "ada@example.com"]);
    let link: Url = said.split_whitespace().find(|word| word.starts_with("https://")).unwrap().parse().unwrap();
    let mut visitor = GatewayBrowser::at(gateway.address);
    assert_eq!(visitor.open(link.path()).status, 200);
    assert_eq!(visitor.submit(link.path(), &[]).status, 303);
    assert_eq!(GatewayBrowser::at(gateway.address).submit(link.path(), &[]).status, 403);
    secrets.push(("the link", link.path_segments().unwrap().next_back().unwrap().to_owned()));
    secrets.push(("the link's session", visitor.session()));
}

/// The same credentials over HTTP/2, whose library logs much at level trace.
fn over_frames(gateway: &GatewayProcess, cookie: &str, key: &str) {
    for (name, value) in [("cookie", cookie.to_owned()), ("authorization", format!("Bearer {key}"))] {
        let request = Request::get(format!("http://{}/api/x", gateway.address)).header(name, value);
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let status = over_http2(gateway.address, async |mut sender: SendRequest<Full<Bytes>>| {
            sender.send_request(request).await.unwrap().status()
        });
        assert_eq!(status, 200, "{name}");
    }
}
