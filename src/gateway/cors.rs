//! Answers that pages of other origins may read, and preflights.
//!
//! - Every answer to a listed origin says that it may be read, refusals included; what the upstream says of that is
//!   dropped. An answer to another origin stays as it is.
//! - A preflight of a listed origin costs no token and no slot and has no record: the bucket of its address bounds it.
//!   Other requests with `OPTIONS` are requests like all.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use super::Gateway;
use super::guarded_body::GuardedBody;
use super::own_response::{own, reject};
use super::rejection::Rejection;
use super::request::Arrival;
use crate::admission::{CorsPolicy, preflight_method};
use domain::refusal::Refusal;

/// Beginning of the names of all fields about it.
const PREFIX: &str = "access-control-";

/// A request to a route with a policy.
#[derive(Debug)]
pub(super) struct CrossOrigin {
    policy: Arc<CorsPolicy>,
    /// `Access-Control-Allow-Origin`; none when the origin is not listed, or there is none.
    allow_origin: Option<HeaderValue>,
}

impl CrossOrigin {
    /// The request as its policy sees it; none when its route has no policy.
    pub(super) fn of(gateway: &Gateway, head: &Parts) -> Option<Box<Self>> {
        let policy = gateway.admission.cors_policy(head)?;
        let allow_origin = policy.allow_origin(head);
        Some(Box::new(Self { policy: Arc::clone(policy), allow_origin }))
    }

    /// Removes what the upstream says, where the gateway says it.
    pub(super) fn remove_upstreams(&self, headers: &mut HeaderMap) {
        if self.allow_origin.is_none() {
            return;
        }
        let names: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
        names.into_iter().for_each(|name| drop(headers.remove(name)));
    }

    /// Writes what a page may do with the answer, and tells caches that it depends on the origin.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        if let Some(origin) = &self.allow_origin {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, self.policy.expose_headers.clone());
        }
        if !varies_by_origin(headers) {
            headers.append(VARY, HeaderValue::from_static("Origin"));
        }
    }
}

impl Gateway {
    /// Answers a preflight of a listed origin; none when the request is another one.
    pub(super) fn answer_preflight(&self, arrival: &Arrival, head: &Parts) -> Option<Response<GuardedBody>> {
        let cors = arrival.cors.as_ref()?;
        cors.allow_origin.as_ref()?;
        let method = preflight_method(head)?;
        let route = self.admission.find_route_for(head, &method);
        arrival.note_admission(head, route, &self.settings.credentials, || None);
        if let Err(seconds) = self.public.count(arrival.client.ip, arrival.time) {
            let rejection = Rejection::with_retry_after(Refusal::AddressLimited, seconds);
            return Some(reject(arrival, &rejection, &route.metrics));
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        if let Some(methods) = list(&self.admission.methods_for(head, method)) {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        }
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, cors.policy.allow_headers.clone());
        headers.insert(ACCESS_CONTROL_MAX_AGE, cors.policy.max_age.clone());
        let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
        headers.insert(VARY, HeaderValue::from_static(vary));
        route.metrics.count_response(response.status());
        Some(own(response))
    }
}

/// The value that lists these methods; none when there are none.
fn list(methods: &[Method]) -> Option<HeaderValue> {
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    (!names.is_empty()).then(|| HeaderValue::try_from(names.join(", ")).expect("methods are visible ASCII"))
}

/// Returns whether `Vary` says that the answer depends on the origin, or on everything.
fn varies_by_origin(headers: &HeaderMap) -> bool {
    let values = headers.get_all(VARY).iter();
    let mut names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"origin"))
}
