//! What a request asks for beyond a plain exchange: a head only, another protocol, trailers.
//!
//! The fields that ask for these are for one connection only (RFC 9110, section 7.6.1), so they are removed like all of
//! their kind, and said anew where the route allows it.

use http::header::{CONNECTION, CONTENT_TYPE, TE, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Version};

/// What a route lets pass.
#[derive(Clone, Copy, Debug)]
pub struct AllowedFeatures<'a> {
    /// The protocols to which a connection may be switched.
    pub upgrade: &'a [HeaderValue],
    /// Whether responses may have trailers.
    pub trailers: bool,
}

/// What a request asks for, as far as its route allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFeatures {
    /// The head only.
    pub head_only: bool,
    /// Another protocol, in the words of the configuration.
    pub upgrade: Option<HeaderValue>,
    /// Trailers: the client reads them.
    pub trailers: bool,
    /// A stream that may go on for as long as both sides like: gRPC.
    pub long_lived: bool,
    /// Whether the client itself said that it reads trailers.
    sends_te_trailers: bool,
}

impl RequestFeatures {
    /// What a request with this head asks for. `empty` says that it has no body.
    pub fn from_head(head: &Parts, empty: bool, passes: AllowedFeatures<'_>) -> Self {
        let sends_te_trailers = passes.trailers && lists(&head.headers, &TE, b"trailers");
        let trailers = passes.trailers && (sends_te_trailers || head.version == Version::HTTP_2);
        Self {
            head_only: head.method == Method::HEAD,
            upgrade: upgrade(head, empty, passes.upgrade),
            trailers,
            long_lived: trailers && is_grpc(&head.headers),
            sends_te_trailers,
        }
    }

    /// Says it to the upstream, in fields made anew.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        if let Some(protocol) = &self.upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol.clone());
        } else if self.sends_te_trailers {
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
}

/// The protocol that a request asks for (RFC 9110, section 7.8): exactly one, one that is allowed, and nothing sent
/// ahead that two servers could take for different things.
fn upgrade(head: &Parts, empty: bool, allowed: &[HeaderValue]) -> Option<HeaderValue> {
    if allowed.is_empty() || head.method != Method::GET || head.version != Version::HTTP_11 || !empty {
        return None;
    }
    let asked = only(&head.headers, &UPGRADE)?;
    let found = allowed.iter().find(|protocol| protocol.as_bytes().eq_ignore_ascii_case(asked.as_bytes()))?;
    lists(&head.headers, &CONNECTION, b"upgrade").then(|| found.clone())
}

/// The value of a field that is there exactly once.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a HeaderValue> {
    let mut fields = headers.get_all(name).into_iter();
    fields.next().filter(|_| fields.next().is_none())
}

/// Whether a list has an item, in any of the fields of its name.
pub(super) fn lists(headers: &HeaderMap, name: &http::HeaderName, item: &[u8]) -> bool {
    let mut items = headers.get_all(name).into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    items.any(|given| given.trim_ascii().eq_ignore_ascii_case(item))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const WEBSOCKET: [HeaderValue; 1] = [HeaderValue::from_static("websocket")];

    fn asked(request: http::request::Builder, empty: bool) -> RequestFeatures {
        let (head, ()) = request.body(()).unwrap().into_parts();
        RequestFeatures::from_head(&head, empty, AllowedFeatures { upgrade: &WEBSOCKET, trailers: true })
    }

    fn upgrading(fields: &[(&str, &str)]) -> Option<HeaderValue> {
        let request = fields.iter().fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
        asked(request, true).upgrade
    }

    #[test]
    fn one_allowed_protocol_is_asked_for_in_our_words() {
        let fields = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        assert_eq!(upgrading(&fields), Some(HeaderValue::from_static("websocket")));
        let mut headers = HeaderMap::new();
        let request = Request::get("/").header("connection", "upgrade").header("upgrade", "WEBSOCKET");
        asked(request, true).write_headers(&mut headers);
        assert_eq!((&headers["connection"], &headers["upgrade"]), (&"upgrade".parse().unwrap(), &WEBSOCKET[0]));
    }

    #[test]
    fn anything_else_is_a_plain_request() {
        let connection = ("connection", "upgrade");
        for fields in [
            &[("upgrade", "websocket")][..],
            &[("connection", "close"), ("upgrade", "websocket")],
            &[connection],
            &[connection, ("upgrade", "h2c")],
            &[connection, ("upgrade", "websocket, h2c")],
            &[connection, ("upgrade", "websocket/13")],
            &[connection, ("upgrade", "websocket"), ("upgrade", "websocket")],
        ] {
            assert_eq!(upgrading(fields), None, "{fields:?}");
        }
        let request =
            |method| Request::builder().method(method).header("connection", "upgrade").header("upgrade", "websocket");
        assert_eq!(asked(request("POST"), true).upgrade, None);
        assert_eq!(asked(request("GET"), false).upgrade, None);
        assert_eq!(asked(request("GET").version(Version::HTTP_10), true).upgrade, None);
        assert_eq!(asked(request("GET").version(Version::HTTP_2), true).upgrade, None);
    }

    #[test]
    fn trailers_are_for_clients_that_read_them() {
        assert!(!asked(Request::get("/"), true).trailers);
        assert!(asked(Request::get("/").header("te", "gzip, Trailers"), true).trailers);
        assert!(asked(Request::get("/").version(Version::HTTP_2), true).trailers);
        let grpc = Request::post("/").version(Version::HTTP_2).header("content-type", "application/grpc+proto");
        assert!(asked(grpc, false).long_lived);
        assert!(!asked(Request::post("/").header("content-type", "application/grpc"), false).long_lived);
    }
}
