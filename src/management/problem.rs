//! A refusal as programs read it (RFC 9457).

use http::StatusCode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A refusal as `application/problem+json` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Always `about:blank`: the code says more.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The status.
    pub status: u16,
    /// What was wrong, and what to do.
    pub detail: String,
    /// The stable name of the error.
    pub code: String,
    /// The request's id, where requests have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Uuid>,
}

impl Problem {
    /// A refusal with this status and code, of a request without an id.
    pub fn new(status: StatusCode, code: &str, detail: String) -> Self {
        Self {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail,
            code: code.to_owned(),
            request_id: None,
        }
    }

    /// As it is sent.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a problem is a struct with text keys")
    }
}
