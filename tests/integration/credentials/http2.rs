//! A key in a field of its own over HTTP/2, in heads of single frames.

use super::{BLOCKS, assert_unseen, start};
use crate::edge::frames::{self, Raw};
use crate::support::{Gateway, Upstream};

/// A head without a credential of its own.
fn bare(stream: u32, method: &str, fields: &[(&str, &str)], last: bool) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "http"), (":path", "/"), (":authority", "gateway.test")];
    let all = pseudo.iter().chain(fields).map(|(name, value)| frames::field(name, value));
    let flags = if last { frames::END_HEADERS | frames::END_STREAM } else { frames::END_HEADERS };
    frames::frame(frames::HEADERS, flags, stream, &all.collect::<Vec<_>>().concat())
}

/// Status of a request with these fields, on a connection of its own.
fn status(gateway: &Gateway, fields: &[(&str, &str)]) -> u16 {
    let mut raw = Raw::connect(gateway.address);
    raw.send(bare(1, "GET", fields, true));
    raw.until(|frame| frame.is(frames::HEADERS, 1)).status()
}

#[test]
fn key_in_a_listed_field_is_admitted_and_the_field_removed() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_key();
    for name in ["x-api-key", "apikey", "x_api_key", "x.api.key", "x-api_key"] {
        for value in [key.text.clone(), format!(" {}\t", key.text)] {
            assert_eq!(status(&gateway, &[(name, &value), ("x-own", "kept")]), 200, "{name}");
            assert_eq!(upstream.last().header("x-key-id"), Some(key.id.as_str()), "{name}");
            assert_eq!(upstream.last().header("x-own"), Some("kept"), "{name}");
        }
    }
    assert_unseen(&upstream, &key.text);
}

#[test]
fn second_and_empty_fields_are_refused() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_secret();
    let bearer = format!("Bearer {key}");
    for fields in [
        &[("x-api-key", key.as_str()), ("x-api-key", &key)][..],
        &[("x-api-key", &key), ("apikey", &key)],
        &[("x-api-key", &key), ("x_api_key", "")],
        &[("x-api-key", &key), ("authorization", &bearer)],
        &[("authorization", &bearer), ("apikey", "")],
        &[("authorization", "Basic YTpi"), ("apikey", &key)],
        &[("apikey", "")],
        &[("apikey", " ")],
    ] {
        assert_eq!(status(&gateway, fields), 400, "{fields:?}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn streams_of_one_connection_have_credentials_of_their_own() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_secret();
    let mut raw = Raw::connect(gateway.address);
    let heads = [
        bare(1, "GET", &[("x-api-key", &key)], true),
        bare(3, "GET", &[("x-own", "1")], true),
        frames::request(5, "GET", "/", &key),
        bare(7, "GET", &[("x_api_key", &key)], true),
    ];
    raw.send(heads.concat());
    let mut statuses = [0; 4];
    while statuses.contains(&0) {
        let answer = raw.until(|frame| frame.kind == frames::HEADERS);
        statuses[answer.stream as usize / 2] = answer.status();
    }
    assert_eq!(statuses, [200, 401, 200, 200]);
    assert_unseen(&upstream, &key);
}

#[test]
fn field_in_trailers_is_no_credential_and_goes_nowhere() {
    let routes = "routes:\n  - { name: all, path: /**, trailers: true }\n";
    let (upstream, gateway, key) = Gateway::with_secret(&format!("{BLOCKS}{routes}"));
    let rest = |stream| {
        let trailers = [frames::field("x-api-key", &key), frames::field("x_api_key", &key)].concat();
        let flags = frames::END_HEADERS | frames::END_STREAM;
        [frames::frame(frames::DATA, 0, stream, b"body"), frames::frame(frames::HEADERS, flags, stream, &trailers)]
            .concat()
    };
    let mut raw = Raw::connect(gateway.address);
    raw.send([bare(1, "POST", &[("te", "trailers")], false), rest(1)].concat());
    assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 1)).status(), 401);
    raw.send([bare(3, "POST", &[("apikey", &key), ("te", "trailers")], false), rest(3)].concat());
    assert_eq!(raw.until(|frame| frame.is(frames::HEADERS, 3)).status(), 200);
    assert_unseen(&upstream, &key);
}
