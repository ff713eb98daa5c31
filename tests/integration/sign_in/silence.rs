//! What is secret is in no log at any level, nor in the metrics or the audit.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use openidconnect::url::Url;
use serde_json::json;

use super::rig::{self, certified};
use super::served::Served;
use super::visitor::{SESSION, SIGN_IN, Visitor, path_here, refresh, text};
use crate::support::{Client, Upstream, over_http2};

#[test]
fn a_whole_run_at_level_trace_holds_nothing_secret() {
    let accounts = json!({"ada": {"email": "ada@example.com", "email_verified": true}});
    let (real, upstream) = (rig::real(accounts), Upstream::start());
    let served = Served::start(&upstream, &rig::session(&[certified(&real, "")], ""));
    served.keygate(&["org", "create", "acme"]);
    served.keygate(&["user", "create", "--org", "acme", "--permission", "org:admin", "ada@example.com"]);
    let key = served.keygate(&["key", "create", "--org", "acme", "--user", "ada@example.com", "laptop"]);
    let link = served.keygate(&["session", "link", "--org", "acme", "ada@example.com"]);
    let link: Url = link.split_whitespace().find(|word| word.starts_with("https://")).unwrap().parse().unwrap();
    let mut secrets = vec![
        ("the key", key.clone()),
        ("the link", link.path_segments().unwrap().next_back().unwrap().to_owned()),
        ("the client's secret", real.settings().client_secret.unwrap().expose().to_owned()),
    ];

    // By the provider, with a failure before, and out again.
    let mut ada = Visitor::at(served.address);
    for fails in [true, false] {
        let url = ada.begin("real", "");
        secrets.push(("the sign-in's cookie", ada.cookie(SIGN_IN).unwrap()));
        for (name, value) in url.query_pairs().filter(|(name, _)| ["state", "nonce"].contains(&&**name)) {
            secrets.push((if name == "state" { "the state" } else { "the nonce" }, value.into_owned()));
        }
        let back = ada.elsewhere.sign_in(url.as_str(), "ada");
        let code = back.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
        secrets.push(("the code", code));
        let mut browser = Visitor::at(served.address);
        if !fails {
            browser.plant(SIGN_IN, &ada.cookie(SIGN_IN).unwrap());
        }
        let answer = browser.arrive(&path_here(&back));
        assert_eq!(answer.status, if fails { 400 } else { 303 }, "{}", text(&answer));
        if !fails {
            ada = browser;
        }
    }
    secrets.push(("the session", ada.session()));
    for path in ["/settings/keys", "/settings/sessions", "/settings/api/v1/session", "/api/x"] {
        assert_eq!(ada.fetch("GET", path).status, 200, "{path}");
    }
    let created = ada.submit("/settings/keys/new", &[("name", "made on a page")]);
    let created = text(&created);
    let made = created.find("sk_live_").map(|start| created[start..].chars().take(key.len()).collect::<String>());
    secrets.push(("the key of the page", made.expect("the page shows the key")));
    assert_eq!(Client::connect(served.address).get("/api/x", &key).status, 200);
    let mut twice = Visitor::at(served.address);
    let both = format!("{SESSION}={}; {SESSION}=other", ada.session());
    assert_eq!(twice.send("GET", "/settings/keys", &[("Cookie", &both)], "").status, 400);
    over_frames(&served, &format!("{SESSION}={}", ada.session()), &key);
    let leaving = ada.submit("/settings/sign-out", &[]);
    let out = refresh(&leaving).expect("the page leads to the provider");
    let id_token = out.query_pairs().find(|(name, _)| name == "id_token_hint").unwrap().1.into_owned();
    secrets.extend(id_token.split('.').map(|part| ("the ID token", part.to_owned())));

    // By the link, twice.
    let mut by_link = Visitor::at(served.address);
    assert_eq!(by_link.open(link.path()).status, 200);
    assert_eq!(by_link.submit(link.path(), &[]).status, 303);
    secrets.push(("the link's session", by_link.session()));
    assert_eq!(by_link.submit(link.path(), &[]).status, 403);

    let log = served.log();
    for said in ["TRACE", "DEBUG", "somebody signed in", "somebody signed in by a link", "a sign-in was refused"] {
        assert!(log.contains(said), "the log is not of the whole run: no {said}");
    }
    let metrics = text(&Client::connect(served.admin).get("/metrics", ""));
    let audit = String::from_utf8_lossy(&served.files("audit")).into_owned();
    assert!(audit.contains("session.start") && metrics.contains("keygate_"));
    for (place, content) in [("log", &log), ("metrics", &metrics), ("audit", &audit)] {
        for (what, secret) in &secrets {
            assert!(secret.len() > 20 && !content.contains(secret.as_str()), "{what} is in the {place}");
        }
        assert!(!content.contains("eyJ"), "a token is in the {place}");
    }
}

/// The same credentials over HTTP/2, whose library says much of what it does.
fn over_frames(served: &Served, cookie: &str, key: &str) {
    for (name, value) in [("cookie", cookie.to_owned()), ("authorization", format!("Bearer {key}"))] {
        let request = Request::get(format!("http://{}/api/x", served.address)).header(name, value);
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let status = over_http2(served.address, async |mut sender: SendRequest<Full<Bytes>>| {
            sender.send_request(request).await.unwrap().status()
        });
        assert_eq!(status, 200, "{name}");
    }
}
