//! Answers, and the fields that all of them have.
//!
//! - Nothing of a page may come from elsewhere, run inline, or be shown within another page (Content Security Policy 3).
//! - Nothing is kept by caches but the assets.

use bytes::Bytes;
use cookie::{Cookie, SameSite};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, REFERRER_POLICY,
    RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::assets::Asset;
use crate::session::{COOKIE_NAME, SIGN_IN_COOKIE_NAME, Token};

/// An answer, whole.
pub(super) type DashboardResponse = Response<Bytes>;

const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'",
);
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// An answer with a body of this type.
pub(super) fn of(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> DashboardResponse {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // With less, browsers would send `Origin: null` with our own forms.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    answer
}

/// A part of the binary that pages refer to. Browsers keep it for a while, and then ask whether it is still the same.
pub(super) fn asset(asset: &Asset, headers: &HeaderMap) -> DashboardResponse {
    let tag = format!("\"{:08x}\"", crc32fast::hash(asset.content.as_bytes()));
    let same = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let (status, content) = if same { (StatusCode::NOT_MODIFIED, "") } else { (StatusCode::OK, asset.content) };
    let mut answer = of(status, asset.media_type, content);
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    headers.insert(ETAG, HeaderValue::try_from(tag).expect("hexadecimal digits are visible ASCII"));
    answer
}

/// A page.
pub(super) fn page(status: StatusCode, html: String) -> DashboardResponse {
    of(status, "text/html; charset=utf-8", html)
}

/// Sends the browser to a path of this origin, by `GET` (RFC 9110, section 15.4.4).
pub(super) fn see_other(path: &str) -> DashboardResponse {
    let mut answer = of(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", format!("See {path}\n"));
    let path = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    answer.headers_mut().insert(LOCATION, path);
    answer
}

/// The same answer, naming the methods that there are (RFC 9110, section 10.2.1).
pub(super) fn allowing(mut answer: DashboardResponse, methods: &'static str) -> DashboardResponse {
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

/// The same answer, for so many seconds.
pub(super) fn retrying(mut answer: DashboardResponse, seconds: u64) -> DashboardResponse {
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    answer
}

/// The same answer, to somebody who is nobody here. There is no registered scheme for cookies, and 401 must name one
/// (RFC 9110, section 11.6.1); browsers show no dialog for one that they do not know.
pub(super) fn challenging(mut answer: DashboardResponse) -> DashboardResponse {
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Cookie realm=\"keygate\""));
    answer
}

/// The same answer, with a session for the browser to hold.
pub(super) fn with_session(answer: DashboardResponse, token: &Token, seconds: u64) -> DashboardResponse {
    with_cookie(answer, COOKIE_NAME, token.expose(), seconds)
}

/// The same answer, after which the browser holds no session.
pub(super) fn without_session(answer: DashboardResponse) -> DashboardResponse {
    with_cookie(answer, COOKIE_NAME, "", 0)
}

/// The same answer, with what binds a sign-in to this browser.
pub(super) fn with_sign_in(answer: DashboardResponse, token: &Token, seconds: u64) -> DashboardResponse {
    with_cookie(answer, SIGN_IN_COOKIE_NAME, token.expose(), seconds)
}

/// The same answer, after which no sign-in is under way.
pub(super) fn without_sign_in(answer: DashboardResponse) -> DashboardResponse {
    with_cookie(answer, SIGN_IN_COOKIE_NAME, "", 0)
}

fn with_cookie(mut answer: DashboardResponse, name: &str, value: &str, seconds: u64) -> DashboardResponse {
    let age = cookie::time::Duration::seconds(i64::try_from(seconds).unwrap_or(i64::MAX));
    let cookie =
        Cookie::build((name, value)).path("/").secure(true).http_only(true).same_site(SameSite::Lax).max_age(age);
    let cookie = HeaderValue::try_from(cookie.to_string()).expect("names and tokens are visible ASCII");
    answer.headers_mut().append(SET_COOKIE, cookie);
    answer
}
