//! The blocks `credentials` and `pass_authorization`: their errors, their effect, and a reload of them.

use super::{BLOCKS, bare};
use crate::config::{MINIMAL, parse};
use crate::edge::frames::{self, Raw};
use crate::support::{Client, Gateway, Upstream, eventually};

fn problems(block: &str) -> String {
    let problems = parse(&format!("{MINIMAL}{block}\n")).unwrap_err();
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn fields_that_carry_no_key_are_configuration_errors() {
    for (block, expected) in [
        ("credentials: { headers: [X_API_Key] }", "`X_API_Key` is not the name of a field"),
        ("credentials: { headers: [Authorization] }", "`Authorization` is read anyway"),
        ("credentials: { headers: [Connection] }", "`Connection` is for one connection only"),
        ("credentials: { headers: [Proxy-Authorization] }", "`Proxy-Authorization` is for one connection only"),
        ("credentials: { headers: [X-User-Id] }", "`X-User-Id` is set by the gateway"),
        ("credentials: { headers: [X-Forwarded-Key] }", "`X-Forwarded-Key` is set by the gateway"),
        ("credentials: { headers: [Remote-User] }", "`Remote-User` is set by the gateway"),
        ("credentials: { headers: [Cookie] }", "`Cookie` has another meaning"),
        ("credentials: { headers: [host] }", "`host` has another meaning"),
        ("credentials: { headers: [User-Agent] }", "`User-Agent` has another meaning"),
        ("credentials: { headers: [apikey, APIKey] }", "`APIKey` is listed already"),
        ("credentials: { headers: [a, b, c, d, e] }", "has more than 4 fields"),
        ("credentials: { headers: apikey }", "a list is expected"),
        ("credentials: { header: [apikey] }", "credentials.header"),
        ("routes: [{ name: a, path: /a, pass_authorization: true }]", "leaves no field for the API key"),
        (
            "credentials: { headers: [] }\nroutes: [{ name: a, path: /a, pass_authorization: true }]",
            "leaves no field for the API key",
        ),
        (
            "credentials: { headers: [apikey] }\n\
             routes: [{ name: a, path: /a, serve: usage, pass_authorization: true }]",
            "has no effect beside `serve`",
        ),
    ] {
        let problems = problems(block);
        assert!(problems.contains(expected), "{block}: {problems}");
        assert_eq!(problems.lines().count(), 1, "{block}: {problems}");
    }
    // An error in the list is not another one of the routes.
    let both = "credentials: { headers: [Host] }\nroutes: [{ name: a, path: /a, pass_authorization: true }]";
    assert_eq!(problems(both).lines().count(), 1, "{}", problems(both));
    let config = parse(&format!("{MINIMAL}credentials: {{ headers: [X-API-Key, apikey, a, b] }}\n")).unwrap();
    let listed: Vec<&str> = config.transport.credentials.iter().map(|field| field.text()).collect();
    assert_eq!(listed, ["X-API-Key", "apikey", "a", "b"]);
    assert!(parse(MINIMAL).unwrap().transport.credentials.is_empty());
}

#[test]
fn authorization_goes_through_where_the_route_passes_it() {
    let routes = "routes: [{ name: legacy, path: '/v1/**', pass_authorization: true }, { name: rest, path: '/**' }]\n";
    let (upstream, gateway, key) = Gateway::with_key(&format!("{BLOCKS}{routes}"));
    let mut client = Client::connect(gateway.address);
    let field = ("X-API-Key", key.text.as_str());
    // Fields that are removed stand beside it, so that the whole head is searched.
    for removed in [&[][..], &[("X-User-Id", "forged")], &[("x_odd", "1"), ("Authorization_", "odd")]] {
        for own in ["Bearer of-the-upstream", "Basic YTpi", "", &format!("Bearer {}", key.text)] {
            let fields = [&[("Authorization", own), field], removed].concat();
            assert_eq!(client.send(bare("GET", "/v1/a", &fields)).response().status, 200, "{fields:?}");
            let received = upstream.last();
            let values: Vec<&str> = received
                .headers
                .iter()
                .filter(|(name, _)| name.eq_ignore_ascii_case("authorization"))
                .map(|(_, value)| &**value)
                .collect();
            assert_eq!(values, [own]);
            assert_eq!((received.header("x-api-key"), received.header("x-key-id")), (None, Some(key.id.as_str())));
        }
    }
    let twice = [("Authorization", "Bearer a"), ("Authorization", "Bearer b"), field];
    assert_eq!(client.send(bare("GET", "/v1/a", &twice)).response().status, 200, "the upstream may refuse it");
    // The field is required there, and `Authorization` is none of the gateway's business.
    for fields in [&[][..], &[("Authorization", &*format!("Bearer {}", key.text))]] {
        let refused = client.send(bare("GET", "/v1/a", fields)).response();
        assert_eq!((refused.status, refused.code().as_str()), (401, "unauthenticated"), "{fields:?}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("'X-API-Key: <API_KEY>' or 'apikey: <API_KEY>'"), "{detail}");
        assert!(!detail.contains("Bearer"), "{detail}");
    }
    // On other routes it counts, and never goes through.
    let both = [("Authorization", "Basic YTpi"), field];
    assert_eq!(client.send(bare("GET", "/other", &both)).response().code(), "invalid_request");
    assert_eq!(client.get("/other", &key.text).status, 200);
    assert_eq!(upstream.last().header("authorization"), None);
    let refused = client.get("/other", "");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("'Authorization: Bearer <API_KEY>', 'X-API-Key: <API_KEY>' or 'apikey"), "{detail}");
    let mut raw = Raw::connect(gateway.address);
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/v1/b"),
        (":authority", "h"),
        ("authorization", "Bearer of-the-upstream"),
        ("x_api_key", &key.text),
    ];
    let fields: Vec<u8> = fields.iter().flat_map(|(name, value)| frames::field(name, value)).collect();
    raw.send(frames::frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, 1, &fields));
    assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 200);
    assert_eq!(upstream.last().header("authorization"), Some("Bearer of-the-upstream"));
}

#[test]
fn reload_reaches_connections_that_stay_open() {
    let (upstream, gateway, key) = Gateway::with_key(BLOCKS);
    let mut open = Client::connect(gateway.address);
    let mut status = |name: &str| open.send(bare("GET", "/", &[(name, &key.text)])).response().status;
    assert_eq!([status("X-API-Key"), status("X-Other-Key")], [200, 401]);
    gateway.reconfigure(|text| text.replace("[X-API-Key, apikey]", "[X-Other-Key]"));
    // The connection was accepted when other fields were listed: its heads are read by the new ones.
    eventually("the reload applies", || status("X-Other-Key") == 200);
    assert_eq!([status("x_other_key"), status("X-API-Key")], [200, 401]);
    let leaked = |received: &crate::support::upstream::Received| {
        received.headers.iter().any(|(name, value)| name.contains("key") && value.contains(&key.text))
    };
    assert!(!upstream.received().iter().any(leaked), "{:?}", upstream.received());
    gateway.reconfigure(|text| text.replace("[X-Other-Key]", "[]"));
    eventually("the reload applies", || status("X-Other-Key") == 401);
}

#[test]
fn response_to_a_key_in_a_field_is_stored_by_no_shared_cache_unless_the_upstream_says_so() {
    let upstream = Upstream::answering(|request, stream| {
        use std::io::Write as _;
        let policy = request.header("x-policy").map_or(String::new(), |policy| format!("cache-control: {policy}\r\n"));
        write!(stream, "HTTP/1.1 200 OK\r\n{policy}content-length: 2\r\n\r\nok").ok();
    });
    let (gateway, key) = Gateway::with(&[upstream.address], BLOCKS).and_secret();
    let mut client = Client::connect(gateway.address);
    let mut policies = |credential: (&str, &str), policy: &[(&str, &str)]| -> Vec<String> {
        let response = client.send(bare("GET", "/", &[&[credential], policy].concat())).response();
        assert_eq!(response.status, 200);
        response.headers.into_iter().filter(|(name, _)| name == "cache-control").map(|(_, value)| value).collect()
    };
    let field = ("X_API_Key", &*key);
    assert_eq!(policies(field, &[]), ["private"]);
    assert_eq!(policies(field, &[("X-Policy", "max-age=60")]), ["max-age=60", "private"]);
    for allowed in ["public, max-age=60", "max-age=1,S-MaxAge=9", "must-revalidate", "no-store", "Private"] {
        assert_eq!(policies(field, &[("X-Policy", allowed)]), [allowed]);
    }
    // To caches, `Authorization` says the same by itself (RFC 9111, section 3.5).
    assert!(policies(("Authorization", &format!("Bearer {key}")), &[]).is_empty());
}
