//! A request to the dashboard or the management API, read whole, with its client and the session that it presents.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use uuid::Uuid;

use crate::management::{ClientInfo, Management, ManagementError};
use domain::clock::Micros;
use domain::identity::Peer;
use domain::session::{self, AmbiguousCookie, TokenDigest};
use edge::forward::{Client, TrustedProxies};

/// Bytes of a body at most. The largest expected one is a form with a name and an email address.
const MAX_BODY: usize = 64 << 10;
/// Time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A request to the dashboard or to the management API.
pub(crate) struct ControlRequest {
    /// Request id, for the response, the log and error pages.
    pub(crate) id: Uuid,
    /// Time of arrival.
    pub(crate) now: Micros,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// Path below the base, such as the dashboard's path, without the slash at its beginning.
    pub(crate) path: String,
    /// Parameters of the query, decoded, in their order.
    pub(crate) query: Vec<(String, String)>,
    /// Query as it was sent.
    pub(crate) query_text: String,
    pub(crate) body: Bytes,
    /// Client address (by the trusted-proxy rule) and user agent.
    pub(crate) client: ClientInfo,
    /// Digest of the session cookie; an error when there are several.
    pub(crate) session: Result<Option<TokenDigest>, AmbiguousCookie>,
}

impl ControlRequest {
    /// Reads a request, with its body, whose path is below `base`.
    ///
    /// # Errors
    /// [`ManagementError::BodyLost`], [`ManagementError::BodyTimeout`].
    pub(crate) async fn read(
        base: &str,
        id: Uuid,
        peer: &Peer,
        trusted: &TrustedProxies,
        request: Request<Incoming>,
        management: &Management,
    ) -> Result<Self, ManagementError> {
        let (head, body) = request.into_parts();
        let body = read_body(body, MAX_BODY).await?;
        let ip = Client::find(peer, &head.headers, trusted).ip;
        Ok(Self::new(base, (id, management.now()), Some(ip), head, body))
    }

    /// The request of a client at this address, if it has one, with its body.
    pub(crate) fn new(base: &str, (id, now): (Uuid, Micros), ip: Option<IpAddr>, head: Parts, body: Bytes) -> Self {
        let path = head.uri.path().strip_prefix(base).unwrap_or_default();
        Self {
            id,
            now,
            method: head.method,
            path: path.strip_prefix('/').unwrap_or(path).to_owned(),
            query: parse_form(head.uri.query().unwrap_or_default().as_bytes()),
            query_text: head.uri.query().unwrap_or_default().to_owned(),
            body,
            client: ClientInfo::new(ip, &head.headers),
            session: session::read_cookie(&head.headers, session::COOKIE_NAME),
            headers: head.headers,
        }
    }

    /// Segments of the path below the base, still percent-encoded.
    pub(crate) fn segments(&self) -> Vec<&str> {
        self.path.split('/').collect()
    }

    /// The first parameter of the query with this name.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        first(&self.query, name)
    }

    /// The parameters of the query with this name, in their order.
    pub(crate) fn parameters<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        all(&self.query, name)
    }

    /// The body as a form (application/x-www-form-urlencoded).
    pub(crate) fn form(&self) -> Form {
        Form(parse_form(&self.body))
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// The method to route by: `GET` for `HEAD`, whose response differs only in having no body.
    pub(crate) fn route_method(&self) -> &str {
        if self.is_head() { "GET" } else { self.method.as_str() }
    }
}

/// Fields of a form.
#[derive(Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// A form with these fields.
    #[cfg(test)]
    pub(crate) fn new(fields: &[(&str, &str)]) -> Self {
        Self(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// The first field with this name, trimmed; empty when there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        first(&self.0, name).unwrap_or_default().trim()
    }

    /// Returns whether the form has a field with this name.
    pub(crate) fn has_field(&self, name: &str) -> bool {
        first(&self.0, name).is_some()
    }

    /// The fields with this name, trimmed, in their order.
    pub(crate) fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        all(&self.0, name).map(str::trim)
    }
}

/// Reads a body of at most so many bytes.
///
/// # Errors
/// [`ManagementError::BodyLost`], [`ManagementError::BodyTimeout`].
pub(crate) async fn read_body(body: Incoming, most: usize) -> Result<Bytes, ManagementError> {
    let reading = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, most).collect());
    let read = reading.await.map_err(|_| ManagementError::BodyTimeout)?;
    read.map(|body| body.to_bytes()).map_err(|_| ManagementError::BodyLost)
}

fn parse_form(text: &[u8]) -> Vec<(String, String)> {
    form_urlencoded::parse(text).into_owned().collect()
}

fn first<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

fn all<'a>(pairs: &'a [(String, String)], name: &'a str) -> impl Iterator<Item = &'a str> {
    pairs.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
}
