//! Features that a request asks for beyond a plain exchange: a head only, another protocol, trailers.
//!
//! The fields that ask for them are for one connection only (RFC 9110, section 7.6.1). They are removed like all
//! hop-by-hop fields, and written anew where the route allows the feature.

use http::header::{CONNECTION, CONTENT_TYPE, TE, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Version};

/// Features that a route allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowedFeatures<'a> {
    /// Protocols to which a connection may be switched.
    pub upgrade: &'a [HeaderValue],
    /// True if responses may have trailers.
    pub trailers: bool,
}

/// Features that a request asks for and its route allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFeatures {
    /// The client wants the head of the response only.
    pub head_only: bool,
    /// Protocol that the client wants to switch to, as the configuration spells it.
    pub upgrade: Option<HeaderValue>,
    /// The client reads trailers.
    pub trailers: bool,
    /// The exchange has no time limit as a whole: gRPC.
    pub long_lived: bool,
    /// The client sent `TE: trailers`.
    sends_te_trailers: bool,
}

impl RequestFeatures {
    /// Reads the features of a request. `empty`: it has no body.
    pub fn from_head(head: &Parts, empty: bool, allowed: AllowedFeatures<'_>) -> Self {
        let sends_te_trailers = allowed.trailers && lists(&head.headers, &TE, b"trailers");
        let trailers = allowed.trailers && (sends_te_trailers || head.version == Version::HTTP_2);
        Self {
            head_only: head.method == Method::HEAD,
            upgrade: upgrade(head, empty, allowed.upgrade),
            trailers,
            long_lived: trailers && is_grpc(&head.headers),
            sends_te_trailers,
        }
    }

    /// Writes the fields that ask the upstream for the features.
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

/// Protocol that a request asks for (RFC 9110, section 7.8): exactly one, an allowed one, and without a body, whose
/// bytes one server could take for HTTP and another one for the new protocol.
fn upgrade(head: &Parts, empty: bool, allowed: &[HeaderValue]) -> Option<HeaderValue> {
    if allowed.is_empty() || head.method != Method::GET || head.version != Version::HTTP_11 || !empty {
        return None;
    }
    let wanted = only(&head.headers, &UPGRADE)?;
    let found = allowed.iter().find(|protocol| protocol.as_bytes().eq_ignore_ascii_case(wanted.as_bytes()))?;
    lists(&head.headers, &CONNECTION, b"upgrade").then(|| found.clone())
}

/// Value of a field that is there exactly once.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a HeaderValue> {
    let mut fields = headers.get_all(name).into_iter();
    fields.next().filter(|_| fields.next().is_none())
}

/// Returns whether a list has an item, in any of the fields of its name.
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

    fn features(request: http::request::Builder, empty: bool) -> RequestFeatures {
        let (head, ()) = request.body(()).unwrap().into_parts();
        RequestFeatures::from_head(&head, empty, AllowedFeatures { upgrade: &WEBSOCKET, trailers: true })
    }

    fn upgrading(fields: &[(&str, &str)]) -> Option<HeaderValue> {
        let request = fields.iter().fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
        features(request, true).upgrade
    }

    #[test]
    fn one_allowed_protocol_is_passed_on() {
        let fields = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        assert_eq!(upgrading(&fields), Some(HeaderValue::from_static("websocket")));
        let mut headers = HeaderMap::new();
        let request = Request::get("/").header("connection", "upgrade").header("upgrade", "WEBSOCKET");
        features(request, true).write_headers(&mut headers);
        assert_eq!((&headers["connection"], &headers["upgrade"]), (&"upgrade".parse().unwrap(), &WEBSOCKET[0]));
    }

    #[test]
    fn other_upgrades_are_plain_requests() {
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
        assert_eq!(features(request("POST"), true).upgrade, None);
        assert_eq!(features(request("GET"), false).upgrade, None);
        assert_eq!(features(request("GET").version(Version::HTTP_10), true).upgrade, None);
        assert_eq!(features(request("GET").version(Version::HTTP_2), true).upgrade, None);
    }

    #[test]
    fn trailers_are_for_clients_that_read_them() {
        assert!(!features(Request::get("/"), true).trailers);
        assert!(features(Request::get("/").header("te", "gzip, Trailers"), true).trailers);
        assert!(features(Request::get("/").version(Version::HTTP_2), true).trailers);
        let grpc = Request::post("/").version(Version::HTTP_2).header("content-type", "application/grpc+proto");
        assert!(features(grpc, false).long_lived);
        assert!(!features(Request::post("/").header("content-type", "application/grpc"), false).long_lived);
    }
}
