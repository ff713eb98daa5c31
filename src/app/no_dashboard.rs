//! The answer to a browser that looks for the dashboard where none is configured: a page that says so, in place of JSON
//! about a key that a person has no place to send.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use crate::gateway::{GuardedBody, ResponseFuture};

/// Path of a dashboard that is configured without one.
const PATH: &str = "/settings";
const PAGE: &str = "<!doctype html>
<html lang=\"en\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>No dashboard here</title>
<h1>This gateway has no dashboard</h1>
<p>Its configuration has no block <code>session</code>. Whoever runs it can add one, and restart it:</p>
<pre>session: { origin: https://keygate.example }</pre>
<p>The origin is the address that browsers show. <code>keygate session link EMAIL</code> prints a first link to sign
in.</p>
</html>
";

/// Returns whether a browser asks for the page of a dashboard.
pub(super) fn is_asked_for<B>(request: &Request<B>) -> bool {
    let accepts_page = |value: &HeaderValue| value.as_bytes().windows(9).any(|part| part == b"text/html");
    request.uri().path() == PATH
        && request.method() == Method::GET
        && request.headers().get(ACCEPT).is_some_and(accepts_page)
}

/// Puts the page in place of the explanation that a key is missing. Any other response stays as it is: the path may be
/// one of the upstream.
pub(super) fn explain(responding: ResponseFuture) -> ResponseFuture {
    Box::pin(async move {
        let mut response: Response<GuardedBody> = responding.await;
        // A credential that was sent is told by its error (RFC 6750, section 3.1).
        let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|challenge| challenge.to_str().ok());
        let lacks_key =
            response.status() == StatusCode::UNAUTHORIZED && !challenge.is_some_and(|c| c.contains("error="));
        if lacks_key && response.body_mut().replace_own(Bytes::from_static(PAGE.as_bytes())) {
            let fields = response.headers_mut();
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
            fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
        }
        response
    })
}
