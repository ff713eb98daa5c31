//! The upstream's response on its way to the client.

use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_PROTOCOL, VARY};
use http::{HeaderMap, HeaderValue, Response, Version};
use http_body::Body as _;
use tracing::field::display;

use super::Gateway;
use super::exchange::{Exchange, ForwardedBody};
use super::guarded_body::{GuardedBody, OwnBody};
use super::own_response::own;
use super::rejection::classify_send_error;
use super::request::Arrival;
use super::tunnel::TunnelExchange;
use crate::admission::Route;
use domain::identity::AuthMethod;
use domain::refusal::Refusal;
use edge::forward;
use journal::audit::Outcome;
use upstream::{ResponseBody, SendError, Tunnel, UpstreamResponse};

impl Gateway {
    /// Takes the upstream's response through `forward` on its way to the client. An invalid one closes its connection.
    pub(super) fn rewrite_response(
        &self,
        received: Result<UpstreamResponse, SendError>,
        exchange: &Exchange,
        arrival: &Arrival,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let mut response = received.map_err(|error| {
            let trace_id = arrival.trace_id().map(display);
            tracing::debug!(request_id = %arrival.id, trace_id, %error, "no response from the upstream");
            classify_send_error(&error)
        })?;
        arrival.note(|facts| facts.endpoint = Some(response.endpoint().to_owned()));
        match forward::rewrite_response(&mut response.head, response.fields, &exchange.features, arrival.origin) {
            Ok(dropped_fields) => {
                self.metrics.fields_dropped.response.inc_by(dropped_fields);
                if let Some(cors) = &arrival.cors {
                    cors.remove_upstreams(&mut response.head.headers);
                }
                Ok(response.accept())
            }
            Err(error) => {
                let trace_id = arrival.trace_id().map(display);
                tracing::debug!(
                    request_id = %arrival.id, trace_id, %error,
                    "the upstream's response is invalid and is not forwarded"
                );
                response.reject();
                Err(Refusal::UpstreamFailed)
            }
        }
    }

    /// Answers with the upstream's response. Its body holds the exchange.
    pub(super) fn respond(
        &self,
        arrival: &Arrival,
        route: &Route,
        mut response: Response<ResponseBody>,
        mut exchange: Box<Exchange>,
    ) -> Response<GuardedBody> {
        self.write_head(&mut response, route, &mut exchange);
        // The upstream did not wait for the whole request. The rest of it has no reader, and would stand before the
        // next request on this connection.
        if !exchange.upload.is_finished() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // In this order: most responses have a body, and nothing is looked for.
        let has_no_body = response.body().is_end_stream() && arrival.version != Version::HTTP_2;
        let length_only = has_no_body && response.headers().contains_key(CONTENT_LENGTH);
        response.map(|frames| {
            exchange.body = Some(ForwardedBody { frames, length_only });
            GuardedBody::Upstream(exchange)
        })
    }

    /// Notes and counts the status, and writes what the gateway adds to the upstream's fields.
    fn write_head(&self, response: &mut Response<ResponseBody>, route: &Route, exchange: &mut Exchange) {
        route.metrics.count_response(response.status());
        exchange.status = Some(response.status());
        if let Some(metering) = &mut exchange.metering {
            metering.read_head(response.headers());
        }
        let Some(caller) = exchange.caller() else { return };
        caller.rate_limit.write(response.headers_mut(), &self.policies, &self.memory);
        if caller.rate_limit.method() == AuthMethod::Session {
            keep_private(response.headers_mut());
        }
        if caller.has_key_field {
            keep_unshared(response.headers_mut());
        }
    }

    /// Answers with 101, and opens the tunnel once it was sent.
    pub(super) async fn switch_protocols(
        &self,
        arrival: &Arrival,
        route: &Route,
        mut response: Response<ResponseBody>,
        mut exchange: Box<Exchange>,
    ) -> Response<GuardedBody> {
        self.write_head(&mut response, route, &mut exchange);
        if arrival.offers_key {
            self.choose_protocol(response.headers_mut());
        }
        let (head, body) = response.into_parts();
        let Some(upstream) = body.into_tunnel().await else {
            let exchange = &mut exchange;
            exchange.end(Outcome::UpstreamError);
            let response = exchange.rejection(Refusal::UpstreamFailed).respond_to(arrival);
            exchange.status = Some(response.status());
            return own(response);
        };
        self.open_tunnel(arrival, upstream, exchange);
        Response::from_parts(head, GuardedBody::Own(OwnBody::default()))
    }

    /// Chooses the subprotocol by which the client offered its key, where the upstream has chosen none: a browser that
    /// has offered some needs one (RFC 6455, section 4.2.2).
    fn choose_protocol(&self, headers: &mut HeaderMap) {
        let marker = self.settings.credentials.websocket_protocol().map(HeaderValue::from_str);
        if let (Some(Ok(marker)), false) = (marker, headers.contains_key(SEC_WEBSOCKET_PROTOCOL)) {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, marker);
        }
    }

    fn open_tunnel(&self, arrival: &Arrival, upstream: Tunnel, exchange: Box<Exchange>) {
        let idle = self.tunnel_idle;
        let timeouts = self.metrics.timeouts.tunnel_idle.clone();
        let tunnel = TunnelExchange::new(exchange);
        arrival.downstream.on_upgrade(move |client| tunnel.run(client, upstream, idle, timeouts));
    }
}

/// Keeps shared caches from storing a response to a session. They do not store responses to requests with
/// `Authorization` (RFC 9111, section 3.5), but a cookie means nothing to them.
fn keep_private(headers: &mut HeaderMap) {
    vary_by_cookie(headers);
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    }
}

/// Keeps shared caches from storing a response to a key in a field of its own, unless the upstream allows it. For a key
/// in `Authorization` they keep this rule by themselves (RFC 9111, section 3.5).
fn keep_unshared(headers: &mut HeaderMap) {
    let values = headers.get_all(CACHE_CONTROL).iter();
    let mut directives = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    if !directives.any(decides_sharing) {
        headers.append(CACHE_CONTROL, HeaderValue::from_static("private"));
    }
}

/// Returns whether a directive of `Cache-Control` says of the whole response whether shared caches may store it.
fn decides_sharing(directive: &[u8]) -> bool {
    let is = |name: &str| directive.eq_ignore_ascii_case(name.as_bytes());
    let has_shared_age = directive.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"s-maxage="));
    has_shared_age || ["private", "no-store", "public", "must-revalidate"].into_iter().any(is)
}

/// Tells caches that the response depends on the session.
pub(super) fn vary_by_cookie(headers: &mut HeaderMap) {
    headers.append(VARY, HeaderValue::from_static("Cookie"));
}
