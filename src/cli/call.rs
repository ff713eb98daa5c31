//! A call of the API of management, as commands make it: to the running gateway, to one elsewhere, or in this process.

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

/// Characters that a segment of a path has percent-encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');
/// The same without the dot, as in `keys.csv`.
const ENCODED_BUT_DOTS: &AsciiSet = &ENCODED.remove(b'.');

/// A call of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) method: Method,
    /// Path with the one of the API before it, percent-encoded.
    path: String,
    query: Vec<(String, String)>,
    pub(super) body: Option<Value>,
    /// Its answer has a secret that no later answer has.
    pub(super) makes_secret: bool,
}

impl Call {
    pub(super) fn get(path: &[&str]) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn post(path: &[&str]) -> Self {
        Self::new(Method::POST, path)
    }

    pub(super) fn put(path: &[&str]) -> Self {
        Self::new(Method::PUT, path)
    }

    /// A merge patch (RFC 7396).
    pub(super) fn patch(path: &[&str], patch: &impl Serialize) -> Self {
        Self::new(Method::PATCH, path).with_body(patch)
    }

    pub(super) fn delete(path: &[&str]) -> Self {
        Self::new(Method::DELETE, path)
    }

    fn new(method: Method, path: &[&str]) -> Self {
        let segments = path.iter().map(|segment| {
            // A segment of dots alone would be taken for a step in the path (RFC 3986, section 5.2.4).
            let encoded = if segment.bytes().all(|byte| byte == b'.') { ENCODED } else { ENCODED_BUT_DOTS };
            format!("/{}", utf8_percent_encode(segment, encoded))
        });
        let path = std::iter::once(control::admin::API_PATH.to_owned()).chain(segments).collect();
        Self { method, path, query: Vec::new(), body: None, makes_secret: false }
    }

    /// The same with this body; members that are absent are left out by their type.
    pub(super) fn with_body(self, body: &impl Serialize) -> Self {
        Self { body: Some(json!(body)), ..self }
    }

    /// The same with the members of an object as parameters; `null` is left out.
    pub(super) fn with_query(mut self, parameters: &impl Serialize) -> Self {
        if let Value::Object(members) = json!(parameters) {
            self.query.extend(members.into_iter().filter_map(|(name, value)| Some((name, text(&value)?))));
        }
        self
    }

    /// The same with a secret in its answer.
    pub(super) fn with_secret(self) -> Self {
        Self { makes_secret: true, ..self }
    }

    /// The same for the page of a list behind this cursor.
    pub(super) fn at_cursor(mut self, cursor: String) -> Self {
        self.query.retain(|(name, _)| name != "cursor");
        self.query.push(("cursor".to_owned(), cursor));
        self
    }

    /// Returns whether a name or an id in its path is empty, which names nothing.
    pub(super) fn has_empty_segment(&self) -> bool {
        self.path.split('/').skip(1).any(str::is_empty)
    }

    /// Path with its query.
    pub(super) fn target(&self) -> String {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish();
        let separator = if query.is_empty() { "" } else { "?" };
        format!("{}{separator}{query}", self.path)
    }
}

/// A parameter of a query; none of `null`.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => Some(items.iter().filter_map(text).collect::<Vec<_>>().join(",")),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_parameters_are_encoded() {
        let show = Call::get(&["orgs", "a/b ü", "users", ".."]);
        assert_eq!(show.target(), "/v1/orgs/a%2Fb%20%C3%BC/users/%2E%2E");
        assert_eq!(Call::get(&["orgs", "a.b", "keys.csv"]).target(), "/v1/orgs/a.b/keys.csv");
        let list = Call::get(&["orgs", "a", "federation-rules"]).with_query(&json!({ "limit": 5, "org": null }));
        assert_eq!(list.target(), "/v1/orgs/a/federation-rules?limit=5");
        let keys = Call::get(&["keys"]).with_query(&json!({ "sha256": ["a", "b"], "name": null }));
        assert_eq!(keys.at_cursor("x y".into()).target(), "/v1/keys?sha256=a%2Cb&cursor=x+y");
    }
}
