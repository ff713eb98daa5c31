//! Messages that Envoy 1.40.0 has sent, byte for byte, for requests like this one:
//!
//! `curl -H 'authorization: Bearer sk_live_1' -H 'x-user-id: forged' -H 'x_user_id: forged' 127.0.0.1:18081/v1/a?b=c`

use prost::Message;

use crate::ext_authz::{CheckRequest, HttpRequest};
use crate::ext_proc::{ProcessingRequest, Request};

/// Bytes of a message that Envoy has sent.
macro_rules! sent {
    ($name:literal) => {
        &include_bytes!(concat!("../../golden/envoy-1.40.0/", $name, ".binpb"))[..]
    };
}

/// The one value of a field.
#[track_caller]
fn value<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>, name: &str) -> &'a str {
    let values: Vec<&[u8]> = fields.filter(|(other, _)| *other == name).map(|(_, value)| value).collect();
    let [value] = values[..] else { panic!("{} values of {name}", values.len()) };
    std::str::from_utf8(value).unwrap()
}

#[test]
fn check_requests_of_envoy_are_read() {
    for (sent, path, has_map) in [
        (sent!("check_request"), "/v1/a?b=c", false),
        // With `encode_raw_headers: true`.
        (sent!("check_request_raw_headers"), "/v1/a", true),
    ] {
        let message = CheckRequest::decode(sent).unwrap();
        assert!(message.source().unwrap().socket_addr().unwrap().ip().is_loopback());
        let http: &HttpRequest = message.http().unwrap();
        assert_eq!((http.method.as_str(), http.path.as_str(), http.scheme.as_str()), ("GET", path, "http"));
        assert_eq!((http.protocol.as_str(), http.query.as_str()), ("HTTP/1.1", ""));
        assert_eq!((http.header_map.is_some(), http.headers.is_empty()), (has_map, has_map));
        assert_eq!(http.fields().count(), 13);
        assert_eq!(value(http.fields(), ":method"), "GET");
        assert_eq!(value(http.fields(), ":path"), path);
        assert_eq!(value(http.fields(), ":authority"), http.host);
        assert_eq!(value(http.fields(), "authorization"), "Bearer sk_live_1");
        assert_eq!(value(http.fields(), "x_user_id"), "forged");
    }
}

#[test]
fn heads_of_envoy_are_read() {
    let message = ProcessingRequest::decode(sent!("request_headers")).unwrap();
    let attributes = &message.attributes["envoy.filters.http.ext_proc"];
    assert!(attributes.fields.contains_key("source.address") && !message.observability_mode);
    let Some(Request::RequestHeaders(head)) = message.request else { panic!("{message:?}") };
    assert!(head.end_of_stream);
    assert_eq!(head.fields().count(), 13);
    assert_eq!(value(head.fields(), ":method"), "GET");
    assert_eq!(value(head.fields(), ":path"), "/v1/a");
    assert_eq!(value(head.fields(), "authorization"), "Bearer sk_live_1");

    let message = ProcessingRequest::decode(sent!("response_headers")).unwrap();
    let Some(Request::ResponseHeaders(head)) = message.request else { panic!("{message:?}") };
    assert!(!head.end_of_stream);
    assert_eq!(value(head.fields(), ":status"), "200");
}
