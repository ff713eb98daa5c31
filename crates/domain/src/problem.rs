//! Problem details for HTTP APIs (RFC 9457): the JSON body of every refusal, of the gateway, the dashboard's API, the
//! admin socket and query-store.

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::trace_context::TraceId;

/// The media type of a problem (RFC 9457, section 4).
pub const MEDIA_TYPE: &str = "application/problem+json";
/// The type of a problem that its status and code describe completely (RFC 9457, section 4.2.1).
pub const ABOUT_BLANK: &str = "about:blank";

/// Types of problems: links to a page that explains each code, or the types of their own where no page is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProblemTypes(Option<Arc<str>>);

impl ProblemTypes {
    /// Links below this address of the page: an absolute URL without query and fragment.
    pub fn of_page(base: &str) -> Self {
        Self(Some(base.into()))
    }

    /// The type of a problem with this code: the link to its explanation, or `unlinked` without a page.
    pub fn link<'a>(&self, code: &str, unlinked: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(base) => format!("{base}#{code}").into(),
            None => unlinked.into(),
        }
    }
}

/// A problem: the members of RFC 9457, section 3.1, and the extension members of this project.
///
/// Serialized in the order of the fields. Borrows its texts when it is written, owns them when it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem<'a> {
    /// URI of the problem type.
    #[serde(rename = "type")]
    pub kind: Cow<'a, str>,
    /// Reason phrase of the status.
    pub title: Cow<'a, str>,
    /// HTTP status.
    pub status: u16,
    /// Explanation for a person: the cause, and the remedy where there is one.
    pub detail: Cow<'a, str>,
    /// Extension: stable name of the error, for programs.
    pub code: Cow<'a, str>,
    /// Extension: id of the refused request, where requests have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Cow<'a, str>>,
    /// Extension: id of the trace of the refused request, where requests are traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// Extension: names of the `RateLimit-Policy` items that the request exceeded. Written, never read.
    #[serde(rename = "violated-policies", skip_deserializing, skip_serializing_if = "<[_]>::is_empty")]
    pub violated_policies: &'a [&'a str],
}

impl<'a> Problem<'a> {
    /// A problem of type [`ABOUT_BLANK`] without request id.
    pub fn new(status: StatusCode, code: impl Into<Cow<'a, str>>, detail: impl Into<Cow<'a, str>>) -> Self {
        Self {
            kind: ABOUT_BLANK.into(),
            title: status.canonical_reason().unwrap_or("Error").into(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.into(),
            request_id: None,
            trace_id: None,
            violated_policies: &[],
        }
    }

    /// The same problem, with the id of the refused request.
    #[must_use]
    pub fn with_request_id(self, id: impl Into<Cow<'a, str>>) -> Self {
        Self { request_id: Some(id.into()), ..self }
    }

    /// The body of the response.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are JSON")
    }
}

/// A text with a capital letter at its beginning and a full stop at its end.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_has_the_members_of_the_contract_in_order() {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Wait.");
        let json =
            r#"{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Wait.","code":"rate_limited"}"#;
        assert_eq!(problem.to_json(), json.as_bytes());
        assert_eq!(serde_json::from_str::<Problem<'static>>(json).unwrap(), problem);
        let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736".parse().ok();
        let traced = Problem { trace_id, ..problem.clone() };
        assert!(
            String::from_utf8(traced.to_json())
                .unwrap()
                .ends_with(r#","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"}"#)
        );
        let problem = Problem { kind: "urn:x".into(), violated_policies: &["key"], ..problem }.with_request_id("7");
        let json = concat!(
            r#"{"type":"urn:x","title":"Too Many Requests","status":429,"detail":"Wait.","#,
            r#""code":"rate_limited","request_id":"7","violated-policies":["key"]}"#,
        );
        assert_eq!(problem.to_json(), json.as_bytes());
    }
}
