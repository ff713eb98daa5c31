//! The gateway's own cookies are removed before requests are forwarded, in any spelling and in any number of fields.

use bytes::Bytes;
use domain::session::Token;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;

use super::fixture::{self, PERSON, hostile, member, signed_in};
use super::gateway_browser::{GatewayBrowser, SESSION, SIGN_IN};
use crate::oidc::hostile::Hostile;
use crate::support::{Gateway, Upstream, over_http2};

fn setup(upstream: &Upstream) -> (Hostile, Gateway) {
    let provider = Hostile::start();
    let gateway = fixture::gateway(upstream, &[hostile("corp", &provider, "")]);
    member(&gateway, "acme", PERSON, &[]);
    (provider, gateway)
}

/// Checks that the request at the upstream has this `Cookie`, and the secret nowhere.
fn assert_clean(upstream: &Upstream, secret: &str, cookie: Option<&str>, what: &str) {
    let received = upstream.last();
    assert_eq!(received.header("cookie"), cookie, "{what}");
    assert_eq!(received.header("x-auth-method"), Some("session"), "{what}");
    let whole = format!("{} {:?}", received.line, received.headers);
    assert!(!whole.contains(secret), "{what}: {whole}");
}

#[test]
fn cookies_of_others_are_forwarded_and_the_gateways_are_not() {
    let upstream = Upstream::start();
    let (_provider, gateway) = setup(&upstream);
    let session = signed_in(&gateway, "corp").session();
    let ours = format!("{SESSION}={session}");
    let folded = format!("__host-KeyGate={session}");
    let under_way = format!("{SIGN_IN}={session}");
    for (fields, left) in [
        (vec![ours.clone()], None),
        (vec![format!("a=1; {ours}; b=2")], Some("a=1; b=2")),
        (vec![format!("a=1;{ours};b=2")], Some("a=1; b=2")),
        (vec![format!("  {ours}  ;; ;\tb=2")], Some("b=2")),
        (vec!["a=1".into(), ours.clone(), "b=2".into()], Some("a=1; b=2")),
        (vec![format!("{ours}; {ours}"), ours.clone()], None),
        (vec![format!("{ours}; {folded}; {under_way}; c=3")], Some("c=3")),
        (vec![format!("{ours}; __Host-keygate-anything={session}; d=\"x; y\"")], Some("d=\"x; y\"")),
        (vec![format!("__Host-keygate =  {session} ; e=5")], Some("e=5")),
    ] {
        let what = format!("{fields:?}");
        let fields: Vec<(&str, &str)> = fields.iter().map(|field| ("Cookie", field.as_str())).collect();
        let answer = GatewayBrowser::new(&gateway).send("GET", "/x", &fields, "");
        assert_eq!(answer.status, 200, "{what}: {answer:?}");
        assert_clean(&upstream, &session, left, &what);
    }
}

#[test]
fn cookies_over_http2_are_filtered_in_separate_fields() {
    let upstream = Upstream::start();
    let (_provider, gateway) = setup(&upstream);
    let session = signed_in(&gateway, "corp").session();
    let ours = format!("{SESSION}={session}");
    for (crumbs, left) in [
        (vec!["a=1", &ours, "b=2"], Some("a=1; b=2")),
        (vec![&ours], None),
        (vec!["a=1; b=2", &ours, "c=3"], Some("a=1; b=2; c=3")),
    ] {
        let mut request = Request::get(format!("http://{}/x", gateway.address));
        for crumb in &crumbs {
            request = request.header("cookie", *crumb);
        }
        let request = request.body(Full::default()).unwrap();
        let status = over_http2(gateway.address, async |mut sender: SendRequest<Full<Bytes>>| {
            sender.send_request(request).await.unwrap().status()
        });
        assert_eq!(status, 200, "{crumbs:?}");
        assert_clean(&upstream, &session, left, &format!("{crumbs:?}"));
    }
}

#[test]
fn cookies_beside_a_key_are_filtered() {
    let upstream = Upstream::start();
    let (_provider, gateway) = setup(&upstream);
    let key = gateway.key();
    let token = Token::generate().unwrap();
    let bearer = format!("Bearer {}", key.text);
    let cookie = format!("a=1; {SESSION}={}; {SIGN_IN}={}", token.expose(), token.expose());
    let fields = [("Authorization", bearer.as_str()), ("Cookie", &cookie)];
    assert_eq!(GatewayBrowser::new(&gateway).send("GET", "/x", &fields, "").status, 200);
    let received = upstream.last();
    assert_eq!((received.header("cookie"), received.header("x-auth-method")), (Some("a=1"), Some("api-key")));
}

#[test]
fn dashboard_path_never_reaches_the_upstream() {
    let upstream = Upstream::start();
    let (_provider, gateway) = setup(&upstream);
    let mut visitor = signed_in(&gateway, "corp");
    for path in ["/settings", "/settings/", "/settings/unknown", "/settings/api/unknown", "/settings/keys/unknown"] {
        for method in ["GET", "POST", "DELETE"] {
            visitor.fetch(method, path);
        }
    }
    assert_eq!(upstream.count(), 0);
    visitor.fetch("GET", "/settingsx");
    assert_eq!(upstream.count(), 1);
}
