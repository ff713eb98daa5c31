//! Parts of a head that the access log shows, copied: the head itself is not kept for a line.

use http::header::USER_AGENT;
use http::request::Parts;
use http::{Method, Version};

use platform::telemetry::access_log::RequestText;

/// Parts of a head that a line shows.
pub(super) struct ObservedHead {
    pub(super) method: Method,
    version: Version,
    pub(super) path: RequestText,
    pub(super) user_agent: Option<RequestText>,
    /// Bytes of the head, as HTTP/1.1 writes it.
    pub(super) bytes: u64,
}

impl ObservedHead {
    pub(super) fn new(head: &Parts, path: &str) -> Self {
        Self {
            method: head.method.clone(),
            version: head.version,
            path: RequestText::path(path),
            user_agent: head.headers.get(USER_AGENT).map(|agent| RequestText::user_agent(agent.as_bytes())),
            bytes: head_bytes(head),
        }
    }

    /// Number of the HTTP version.
    pub(super) fn version_number(&self) -> Option<&'static str> {
        match self.version {
            Version::HTTP_10 => Some("1.0"),
            Version::HTTP_11 => Some("1.1"),
            Version::HTTP_2 => Some("2"),
            _ => None,
        }
    }
}

/// Bytes of a head as HTTP/1.1 writes it: `METHOD target HTTP/1.1`, fields with colon, space and line end, an empty line.
fn head_bytes(head: &Parts) -> u64 {
    let target = head.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let fields: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    (head.method.as_str().len() + target + " HTTP/1.1\r\n".len() + 1 + fields + "\r\n".len()) as u64
}
