//! What is known of a request when its head has arrived.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderValue, Method, Response, Version};
use http_body_util::Full;
use uuid::{ContextV7, Timestamp, Uuid};

use super::guarded_body::GuardedBody;
use super::rejection::Rejection;
use crate::admission::Route;
use crate::audit::Use;
use crate::clock::{self, Micros};
use crate::forward::{Client, TrustedProxies};
use crate::identity::{AuthMethod, Peer, Principal};
use crate::metrics::RouteMetrics;
use crate::transport::UpgradeSlot;

/// A request's arrival.
pub(super) struct Arrival<'a> {
    /// The request's id and its audit record's.
    pub(super) id: Uuid,
    /// When.
    pub(super) time: Micros,
    /// The other end of the connection.
    pub(super) peer: &'a Peer,
    /// How the connection is taken over.
    pub(super) upgrade_slot: &'a UpgradeSlot,
    /// Of the request.
    pub(super) version: Version,
    /// The client, by the trusted-proxy rule.
    pub(super) client: Client,
    /// Whether it asks for a head only.
    pub(super) is_head: bool,
}

impl<'a> Arrival<'a> {
    pub(super) fn new(
        peer: &'a Peer,
        upgrade_slot: &'a UpgradeSlot,
        head: &Parts,
        trusted: &TrustedProxies,
        ids: &ContextV7,
    ) -> Self {
        let client = Client::find(peer, &head.headers, trusted);
        Self {
            id: Uuid::new_v7(Timestamp::now(ids)),
            time: clock::now(),
            peer,
            upgrade_slot,
            version: head.version,
            client,
            is_head: head.method == Method::HEAD,
        }
    }

    /// The value of `X-Request-Id`.
    pub(super) fn id_header(&self) -> HeaderValue {
        let mut text = Uuid::encode_buffer();
        let text = self.id.hyphenated().encode_lower(&mut text);
        HeaderValue::from_str(text).expect("hexadecimal digits and dashes are visible ASCII")
    }

    /// Seconds since the arrival.
    pub(super) fn seconds(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a duration in a histogram")]
        let micros = clock::now().since(self.time) as f64;
        micros / 1e6
    }

    /// The route's name, else `METHOD /path`.
    pub(super) fn action<'b>(&self, head: &'b Parts, route: &'b Route) -> Cow<'b, str> {
        match &route.name {
            Some(name) => name.into(),
            None => format!("{} {}", head.method, head.uri.path()).into(),
        }
    }

    /// The beginning of the request's audit record, as it is when nothing was taken.
    pub(super) fn opening<'b>(
        &'b self,
        head: &'b Parts,
        route: &Route,
        action: &'b str,
        principal: Option<&Principal>,
    ) -> Use<'b> {
        let whole = head.uri.path_and_query().map_or("/", |target| target.as_str());
        Use {
            id: self.id,
            time: self.time,
            number: None,
            key_id: principal.and_then(|principal| principal.key_id),
            user_id: principal.map(|principal| principal.user_id),
            org_id: principal.map(|principal| principal.org_id),
            auth_method: principal.map_or(AuthMethod::ApiKey, |principal| principal.method),
            ip: Some(self.client.ip),
            user_agent: head.headers.get(USER_AGENT).map(HeaderValue::as_bytes),
            action,
            method: head.method.as_str(),
            path: if route.query_in_audit { whole } else { head.uri.path() },
            provisional: false,
        }
    }

    /// Bytes of body that go out with an answer of our own.
    pub(super) fn sent(&self, response: &Response<Bytes>) -> u64 {
        if self.is_head { 0 } else { response.body().len() as u64 }
    }

    /// Answers with a "no", and counts it.
    pub(super) fn reject(&self, rejection: &Rejection<'_>, metrics: &RouteMetrics) -> Response<GuardedBody> {
        let response = rejection.response(self.id);
        metrics.count_response(response.status());
        own(response)
    }
}

/// A response in the gateway's own words.
pub(super) fn own(response: Response<Bytes>) -> Response<GuardedBody> {
    response.map(|body| GuardedBody::Own(Full::new(body)))
}
