//! A request to the dashboard, read whole, with what is known of its sender.

use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use uuid::Uuid;

use crate::clock::{self, Micros};
use crate::forward::{Client, TrustedProxies};
use crate::identity::Peer;
use crate::management::ClientInfo;
use crate::session::{self, Ambiguous, TokenDigest};

/// Bytes of a body; the largest is a form with a name and an address.
const BODY: usize = 64 << 10;
/// For a body to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// Characters of a user agent that are looked at.
const AGENT: usize = 1000;

/// A request to the dashboard.
pub(super) struct DashboardRequest {
    /// Its id, for the log and for people who ask.
    pub(super) id: Uuid,
    /// When it came.
    pub(super) now: Micros,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    /// The path below the dashboard's, without the slash that it begins with.
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    /// The query as it came.
    pub(super) query_text: String,
    pub(super) body: Bytes,
    /// Where it came from.
    pub(super) origin: ClientInfo,
    /// The session that it presents.
    pub(super) session: Result<Option<TokenDigest>, Ambiguous>,
}

/// Why a request could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// Its body is too large, or broke off.
    Body,
    /// Its body took too long.
    TimedOut,
}

impl DashboardRequest {
    /// Reads a request whose path is under `base`.
    pub(super) async fn read(
        base: &str,
        id: Uuid,
        peer: &Peer,
        trusted: &TrustedProxies,
        request: Request<Incoming>,
    ) -> Result<Self, ReadError> {
        let (head, body) = request.into_parts();
        let reading = tokio::time::timeout(PATIENCE, Limited::new(body, BODY).collect());
        let body = reading.await.map_err(|_| ReadError::TimedOut)?.map_err(|_| ReadError::Body)?.to_bytes();
        Ok(Self::of(base, id, peer, trusted, head, body))
    }

    fn of(base: &str, id: Uuid, peer: &Peer, trusted: &TrustedProxies, head: Parts, body: Bytes) -> Self {
        let agent = head.headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        let client = Client::find(peer, &head.headers, trusted);
        let path = head.uri.path().strip_prefix(base).unwrap_or_default();
        Self {
            id,
            now: clock::now(),
            method: head.method,
            path: path.strip_prefix('/').unwrap_or(path).to_owned(),
            query: pairs(head.uri.query().unwrap_or_default().as_bytes()),
            query_text: head.uri.query().unwrap_or_default().to_owned(),
            body,
            origin: ClientInfo {
                ip: Some(client.ip),
                user_agent: agent.map(|agent| agent.chars().take(AGENT).collect()),
            },
            session: session::presented(&head.headers, session::COOKIE_NAME),
            headers: head.headers,
        }
    }

    /// The segments of the path.
    pub(super) fn segments(&self) -> Vec<&str> {
        self.path.split('/').collect()
    }

    /// A parameter of the query: the first of its name.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        first(&self.query, name)
    }

    /// The fields of a form (application/x-www-form-urlencoded).
    pub(super) fn form(&self) -> Form {
        Form(pairs(&self.body))
    }

    /// Whether only the head of an answer is wanted.
    pub(super) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// The method, with `HEAD` for `GET`, whose answers are the same.
    pub(super) fn verb(&self) -> &str {
        if self.is_head() { "GET" } else { self.method.as_str() }
    }
}

/// The fields of a form.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// A field, without the blanks around it; empty when there is none.
    pub(super) fn field(&self, name: &str) -> &str {
        first(&self.0, name).unwrap_or_default().trim()
    }
}

fn pairs(text: &[u8]) -> Vec<(String, String)> {
    form_urlencoded::parse(text).into_owned().collect()
}

fn first<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}
