//! Responses of the dashboard, and the header fields that all of them have.
//!
//! - Pages load nothing from other origins, run no inline script and cannot be framed (Content Security Policy 3).
//! - Caches store nothing except assets.

use bytes::Bytes;
use cookie::{Cookie, SameSite};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, IF_NONE_MATCH, LOCATION, REFERRER_POLICY, RETRY_AFTER,
    SET_COOKIE, WWW_AUTHENTICATE, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::assets::Asset;
use crate::api::{self, COOKIE_CHALLENGE};
use domain::session::{COOKIE_NAME, NO_SILENT_COOKIE_NAME, Token, sign_in_cookie_name};

/// A response with its whole body.
pub(super) type DashboardResponse = Response<Bytes>;

/// Time after a sign-out for which silent sign-in (one without a click) is disabled in the browser, in seconds: a year.
const SIGNED_OUT_AGE: u64 = 366 * 24 * 3600;
/// Value of the cookie that disables silent sign-in; only its presence counts.
const SILENT_DISABLED: &str = "after-a-click-only";

const CONTENT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'",
);
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// A response with a body of this media type.
pub(super) fn build(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> DashboardResponse {
    secured(api::build(status, media_type, body))
}

/// The response with the header fields that all have.
pub(super) fn secured(mut response: DashboardResponse) -> DashboardResponse {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, CONTENT_POLICY);
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // With `no-referrer`, browsers send `Origin: null` with the dashboard's own forms, which the CSRF check refuses.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// An asset: cached for five minutes, then revalidated by its `ETag`.
pub(super) fn asset(asset: &Asset, headers: &HeaderMap) -> DashboardResponse {
    let tag = format!("\"{:08x}\"", crc32fast::hash(asset.content.as_bytes()));
    let is_cached = headers.get(IF_NONE_MATCH).is_some_and(|cached| cached.as_bytes() == tag.as_bytes());
    let (status, content) = if is_cached { (StatusCode::NOT_MODIFIED, "") } else { (StatusCode::OK, asset.content) };
    let mut response = build(status, asset.media_type, content);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    headers.insert(ETAG, HeaderValue::try_from(tag).expect("hexadecimal digits are visible ASCII"));
    response
}

/// A page.
pub(super) fn page(status: StatusCode, html: String) -> DashboardResponse {
    build(status, "text/html; charset=utf-8", html)
}

/// Redirects the browser to a path of this origin, by `GET` (RFC 9110, section 15.4.4).
pub(super) fn see_other(path: &str) -> DashboardResponse {
    let mut response = build(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", format!("See {path}\n"));
    let path = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, path);
    response
}

/// Adds `Allow` (RFC 9110, section 10.2.1).
pub(super) fn with_allow(mut response: DashboardResponse, methods: &str) -> DashboardResponse {
    let methods = HeaderValue::try_from(methods).expect("names of methods are visible ASCII");
    response.headers_mut().insert(ALLOW, methods);
    response
}

/// Adds `Retry-After`, when there are seconds to wait.
pub(super) fn with_retry_after(mut response: DashboardResponse, seconds: Option<u64>) -> DashboardResponse {
    if let Some(seconds) = seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds the challenge that 401 requires (RFC 9110, section 11.6.1). There is no registered scheme for cookies; for an
/// unknown one, browsers show no dialog.
pub(super) fn with_challenge(mut response: DashboardResponse) -> DashboardResponse {
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(COOKIE_CHALLENGE));
    response
}

/// Sets the session cookie, for this many seconds. Also deletes the cookie that disables silent sign-in.
pub(super) fn with_session(response: DashboardResponse, token: &Token, seconds: u64) -> DashboardResponse {
    let response = with_cookie(response, COOKIE_NAME, token.expose(), Some(seconds));
    with_cookie(response, NO_SILENT_COOKIE_NAME, "", Some(0))
}

/// Deletes the session cookie of a user who signs out, and disables silent sign-in.
pub(super) fn without_session(response: DashboardResponse) -> DashboardResponse {
    let response = with_cookie(response, COOKIE_NAME, "", Some(0));
    with_cookie(response, NO_SILENT_COOKIE_NAME, SILENT_DISABLED, Some(SIGNED_OUT_AGE))
}

/// Disables silent sign-in until the browser is closed.
pub(super) fn without_silent_sign_in(response: DashboardResponse) -> DashboardResponse {
    with_cookie(response, NO_SILENT_COOKIE_NAME, SILENT_DISABLED, None)
}

/// Sets the cookie that binds the pending sign-ins of a browser to it, for this many seconds.
pub(super) fn with_sign_in_cookie(response: DashboardResponse, token: &Token, seconds: u64) -> DashboardResponse {
    with_cookie(response, &sign_in_cookie_name(token), token.expose(), Some(seconds))
}

/// Deletes a cookie of pending sign-ins.
pub(super) fn without_sign_in_cookie(response: DashboardResponse, name: &str) -> DashboardResponse {
    with_cookie(response, name, "", Some(0))
}

/// Sets a cookie that carries a sealed key to the page that shows it, for this many seconds.
pub(super) fn with_sealed_key(
    response: DashboardResponse,
    name: &str,
    sealed: &str,
    seconds: u64,
) -> DashboardResponse {
    with_cookie(response, name, sealed, Some(seconds))
}

/// Deletes the cookie of a sealed key.
pub(super) fn without_sealed_key(response: DashboardResponse, name: &str) -> DashboardResponse {
    with_cookie(response, name, "", Some(0))
}

/// Sets a cookie for this many seconds; with `None`, until the browser is closed.
fn with_cookie(mut response: DashboardResponse, name: &str, value: &str, seconds: Option<u64>) -> DashboardResponse {
    let mut cookie = Cookie::build((name, value)).path("/").secure(true).http_only(true).same_site(SameSite::Lax);
    if let Some(seconds) = seconds {
        cookie = cookie.max_age(cookie::time::Duration::seconds(i64::try_from(seconds).unwrap_or(i64::MAX)));
    }
    let cookie = HeaderValue::try_from(cookie.to_string()).expect("names and tokens are visible ASCII");
    response.headers_mut().append(SET_COOKIE, cookie);
    response
}
