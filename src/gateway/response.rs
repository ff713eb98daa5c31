//! The upstream's response on its way to the client.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::Full;

use super::Gateway;
use super::guarded_body::{Exchange, GuardedBody, Held};
use super::rate_limit::RateLimitFields;
use super::rejection::Rejection;
use super::request::{Arrival, own};
use super::tunnel::Tunnelling;
use crate::audit::Outcome;
use crate::identity::AuthMethod;
use crate::refusal::Refusal;
use crate::upstream::{ResponseBody, Tunnel};

impl Gateway {
    /// The upstream's response, with what the request holds in its body, or in the tunnel that it opens.
    pub(super) async fn respond(
        &self,
        arrival: &Arrival<'_>,
        mut response: Response<ResponseBody>,
        mut exchange: Exchange,
        fields: &RateLimitFields,
    ) -> Response<GuardedBody> {
        exchange.status = Some(response.status());
        // Our own version, not the upstream's (RFC 9110, section 6.2).
        *response.version_mut() = Version::HTTP_11;
        fields.write(response.headers_mut(), None);
        if fields.method() == AuthMethod::Session {
            keep_private(response.headers_mut());
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(arrival, response, exchange, *fields).await;
        }
        // The upstream did not wait for the whole request: the rest of it has nowhere to go, and the next request would
        // come after it.
        if !exchange.upload.is_finished() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let length = response.headers().contains_key(CONTENT_LENGTH) && response.body().is_end_stream();
        let length_only = length && arrival.version != Version::HTTP_2;
        response.map(|body| GuardedBody::Upstream { body, length_only, exchange: Box::new(Held(exchange)) })
    }

    /// Has the client's connection taken over when the 101 has gone out.
    async fn switch(
        &self,
        arrival: &Arrival<'_>,
        response: Response<ResponseBody>,
        mut exchange: Exchange,
        fields: RateLimitFields,
    ) -> Response<GuardedBody> {
        let (head, body) = response.into_parts();
        let Some(upstream) = body.into_tunnel().await else {
            exchange.end(Outcome::UpstreamError);
            let rejection = Rejection::with_rate_limit(Refusal::UpstreamFailed, fields);
            let response = rejection.response(arrival.id);
            exchange.status = Some(response.status());
            return own(response);
        };
        self.tunnel(arrival, upstream, exchange);
        Response::from_parts(head, GuardedBody::Own(Full::new(Bytes::new())))
    }

    fn tunnel(&self, arrival: &Arrival<'_>, upstream: Tunnel, exchange: Exchange) {
        let (idle, idled) = (self.tunnel_idle, self.metrics.upstream_timeouts.tunnel.clone());
        let tunnelling = Tunnelling::new(exchange);
        arrival.upgrade_slot.on_upgrade(move |client| tunnelling.run(client, upstream, idle, idled));
    }
}

/// Caches keep what was answered to `Authorization` to themselves (RFC 9111, section 3.5), but not what was answered to a
/// cookie: they are told here.
fn keep_private(headers: &mut HeaderMap) {
    headers.append(VARY, HeaderValue::from_static("Cookie"));
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    }
}
