//! Hop-by-hop fields: they are for one connection only (RFC 9110, section 7.6.1) and are not forwarded
//! in either direction.

use http::header::{
    CONNECTION, EXPECT, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

use domain::head_fields::FieldSet;

/// Members of the set of a head without which it has none of these fields.
const MEMBERS: FieldSet =
    FieldSet::CONNECTION.with(FieldSet::HOP_BY_HOP).with(FieldSet::TRANSFER_ENCODING).with(FieldSet::EXPECT);

/// Fields that are removed whether `Connection` names them or not, each with its member in the set of a head. `Expect`
/// is among them because the gateway has answered it itself.
static FIELDS: [(HeaderName, FieldSet); 10] = [
    (CONNECTION, FieldSet::CONNECTION),
    (TRANSFER_ENCODING, FieldSet::TRANSFER_ENCODING),
    (EXPECT, FieldSet::EXPECT),
    (HeaderName::from_static("keep-alive"), FieldSet::HOP_BY_HOP),
    (HeaderName::from_static("proxy-connection"), FieldSet::HOP_BY_HOP),
    (PROXY_AUTHENTICATE, FieldSet::HOP_BY_HOP),
    (PROXY_AUTHORIZATION, FieldSet::HOP_BY_HOP),
    (TE, FieldSet::HOP_BY_HOP),
    (TRAILER, FieldSet::HOP_BY_HOP),
    (UPGRADE, FieldSet::HOP_BY_HOP),
];

/// Removes the fields that `Connection` names, and all fields that are hop-by-hop by themselves.
pub(super) fn remove(headers: &mut HeaderMap) {
    remove_noted(headers, FieldSet::of_map(headers));
}

/// The same for a head of which the fields are known.
pub(super) fn remove_noted(headers: &mut HeaderMap, fields: FieldSet) {
    if !fields.contains(MEMBERS) {
        return;
    }
    if fields.contains(FieldSet::CONNECTION) {
        for name in nominated(headers) {
            headers.remove(name);
        }
    }
    for (name, member) in &FIELDS {
        if fields.contains(*member) {
            headers.remove(name);
        }
    }
}

/// Returns whether a field is removed whether `Connection` names it or not.
pub(super) fn contains(name: &HeaderName) -> bool {
    FIELDS.iter().any(|(field, _)| field == name)
}

/// Names in all `Connection` fields. An option that is not a valid name cannot name a field, and `keep-alive`, which
/// many clients and servers send, is removed anyway.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    let options =
        headers.get_all(CONNECTION).into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let options = options.map(<[u8]>::trim_ascii).filter(|option| !option.eq_ignore_ascii_case(b"keep-alive"));
    options.filter_map(|option| HeaderName::from_bytes(option).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_noted_in_the_set_of_a_head() {
        for (name, member) in &FIELDS {
            assert_eq!(FieldSet::of_name(name.as_str().as_bytes()), *member, "{name}");
            assert!(MEMBERS.contains(*member), "{name}");
        }
    }

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
