//! Answers that pages of other origins may read: every answer to a listed origin says that it may be read, refusals
//! included, and what the upstream says of that is dropped. An answer to another origin stays as it is.

use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::Gateway;
use crate::admission::CorsPolicy;

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

    /// True if the origin is listed.
    pub(super) fn is_listed(&self) -> bool {
        self.allow_origin.is_some()
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

    /// Writes what the answer to a preflight says beside: what requests may have, with these methods.
    pub(super) fn write_preflight(&self, headers: &mut HeaderMap, methods: &[Method]) {
        if let Some(methods) = list(methods) {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        }
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, self.policy.allow_headers.clone());
        headers.insert(ACCESS_CONTROL_MAX_AGE, self.policy.max_age.clone());
        let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
        headers.insert(VARY, HeaderValue::from_static(vary));
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
