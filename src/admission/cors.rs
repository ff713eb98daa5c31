//! Cross-origin resource sharing (WHATWG Fetch, section 3.2): which origins may read answers of a route.
//!
//! - Only keys are credentials across origins: no answer ever allows cookies, so sessions stay same-origin.

use std::time::Duration;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};

use domain::head_fields::{CredentialField, CredentialFields};

/// Fields of answers that pages may always read.
const EXPOSED: [&str; 4] = ["RateLimit", "RateLimit-Policy", "Retry-After", "X-Request-Id"];

/// Settings of the origins that may read answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsSettings {
    /// The origins, as browsers send them; none of them: no origin. One `*`: all.
    pub origins: Vec<String>,
    /// Time for which browsers keep the answer to a preflight.
    pub max_age: Duration,
    /// Names of further fields that pages may send.
    pub headers: Vec<HeaderName>,
    /// Names of further fields that pages may read.
    pub expose: Vec<HeaderName>,
}

/// Policy of a route, with the values of the fields.
#[derive(Debug)]
pub struct CorsPolicy {
    origins: Box<[HeaderValue]>,
    /// `Access-Control-Allow-Headers`.
    pub(crate) allow_headers: HeaderValue,
    /// `Access-Control-Expose-Headers`.
    pub(crate) expose_headers: HeaderValue,
    /// `Access-Control-Max-Age`.
    pub(crate) max_age: HeaderValue,
}

impl CorsPolicy {
    /// The policy of these settings, where keys may also come in these fields.
    pub(super) fn new(settings: &CorsSettings, credentials: &CredentialFields) -> Self {
        let keys = credentials.iter().map(CredentialField::text);
        let sent = settings.headers.iter().map(HeaderName::as_str);
        let exposed = settings.expose.iter().map(HeaderName::as_str);
        let origin = |origin: &String| HeaderValue::try_from(origin).expect("origins are visible ASCII");
        Self {
            origins: settings.origins.iter().map(origin).collect(),
            allow_headers: list(["Authorization", "Content-Type"].into_iter().chain(keys).chain(sent)),
            expose_headers: list(EXPOSED.into_iter().chain(exposed)),
            max_age: HeaderValue::from(settings.max_age.as_secs()),
        }
    }

    /// The value of `Access-Control-Allow-Origin` for a request; none when its origin is not listed.
    pub(crate) fn allow_origin(&self, head: &Parts) -> Option<HeaderValue> {
        let mut given = head.headers.get_all(ORIGIN).iter();
        let (origin, None) = (given.next()?, given.next()) else { return None };
        let is_listed = |listed: &&HeaderValue| listed.as_bytes() == b"*" || *listed == origin;
        self.origins.iter().find(is_listed).cloned()
    }
}

/// The method that a preflight asks for; none when the request is no preflight.
pub(crate) fn preflight_method(head: &Parts) -> Option<Method> {
    if head.method != Method::OPTIONS || !head.headers.contains_key(ORIGIN) {
        return None;
    }
    let mut given = head.headers.get_all(ACCESS_CONTROL_REQUEST_METHOD).iter();
    let (method, None) = (given.next()?, given.next()) else { return None };
    Method::from_bytes(method.as_bytes()).ok()
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> HeaderValue {
    let names: Vec<&str> = names.collect();
    HeaderValue::try_from(names.join(", ")).expect("names of fields are visible ASCII")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn policy(origins: &[&str]) -> CorsPolicy {
        let settings = CorsSettings {
            origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
            max_age: Duration::from_secs(600),
            headers: vec![HeaderName::from_static("x-trace")],
            expose: vec![HeaderName::from_static("link")],
        };
        CorsPolicy::new(&settings, &CredentialFields::new(vec!["X-API-Key".parse().unwrap()]))
    }

    fn head(method: &str, fields: &[(&str, &str)]) -> Parts {
        let request = Request::builder().method(method).uri("/");
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn origin_is_allowed_by_its_exact_bytes() {
        let listed = policy(&["https://app.example", "http://localhost:3000"]);
        let allowed = |origins: &[&str]| {
            let fields: Vec<_> = origins.iter().map(|&origin| ("origin", origin)).collect();
            listed.allow_origin(&head("GET", &fields)).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(allowed(&["https://app.example"]).as_deref(), Some("https://app.example"));
        assert_eq!(allowed(&["http://localhost:3000"]).as_deref(), Some("http://localhost:3000"));
        for origins in [
            &["https://APP.example"][..],
            &["https://app.example/"],
            &["https://app.example:443"],
            &["https://app.example.evil"],
            &["null"],
            &["https://app.example", "https://app.example"],
            &["https://app.example https://evil.example"],
            &[],
        ] {
            assert_eq!(allowed(origins), None, "{origins:?}");
        }
        let all = policy(&["*"]);
        assert_eq!(all.allow_origin(&head("GET", &[("origin", "null")])).unwrap(), "*");
        assert_eq!(all.allow_origin(&head("GET", &[])), None);
    }

    #[test]
    fn fields_are_those_for_keys_and_those_listed() {
        let policy = policy(&["*"]);
        assert_eq!(policy.allow_headers, "Authorization, Content-Type, X-API-Key, x-trace");
        assert_eq!(policy.expose_headers, "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, link");
        assert_eq!(policy.max_age, "600");
    }

    #[test]
    fn preflight_is_options_with_an_origin_and_one_method() {
        let origin = ("origin", "https://app.example");
        let asks = ("access-control-request-method", "PUT");
        assert_eq!(preflight_method(&head("OPTIONS", &[origin, asks])), Some(Method::PUT));
        for (method, fields) in [
            ("GET", &[origin, asks][..]),
            ("OPTIONS", &[asks]),
            ("OPTIONS", &[origin]),
            ("OPTIONS", &[origin, asks, asks]),
            ("OPTIONS", &[origin, ("access-control-request-method", "a b")]),
        ] {
            assert_eq!(preflight_method(&head(method, fields)), None, "{method} {fields:?}");
        }
    }
}
