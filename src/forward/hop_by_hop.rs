//! Hop-by-hop fields: they are for one connection only (RFC 9110, section 7.6.1) and are not forwarded in either direction.

use http::header::{
    CONNECTION, EXPECT, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

/// Fields that are removed whether `Connection` names them or not. `Expect` is among them because the gateway has answered
/// it itself.
const FIELDS: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
];

/// Removes the fields that `Connection` names, and all fields that are hop-by-hop by themselves.
pub(super) fn remove(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        for name in nominated(headers) {
            headers.remove(name);
        }
    }
    for name in &FIELDS {
        headers.remove(name);
    }
}

/// Returns whether a field is removed whether `Connection` names it or not.
pub(super) fn contains(name: &HeaderName) -> bool {
    FIELDS.contains(name)
}

/// Names in all `Connection` fields. An option that is not a valid name cannot name a field.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    let options =
        headers.get_all(CONNECTION).into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    options.filter_map(|option| HeaderName::from_bytes(option.trim_ascii()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_named_by_any_connection_field_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("connection", "x-a ,X-B"), ("connection", "x-c,,=bad="), ("x-a", "1"), ("x-b", "1")] {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        for name in ["x-c", "x-d", "keep-alive", "upgrade"] {
            headers.append(HeaderName::from_static(name), "1".parse().unwrap());
        }
        remove(&mut headers);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-d"]);
    }
}
