//! The answer to a browser that looks for the dashboard where none is configured: a page that says so, in place of JSON
//! about a key that a person has no place to send.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response};

use super::guarded_body::GuardedBody;
use super::own_response::own;

const PAGE: &str = "<!doctype html>
<html lang=\"en\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>No dashboard here</title>
<h1>This gateway has no dashboard</h1>
<p>Its configuration has no block <code>session</code>. Its operator can add one, and restart it:</p>
<pre>session: { origin: https://keygate.example }</pre>
<p>The origin is the address that browsers show. <code>keygate session link EMAIL</code> prints a first link to sign
in.</p>
</html>
";

/// Puts the page in place of the explanation that a credential is missing, for a browser that asks for this path.
pub(super) fn explain(path: &str, head: &Parts, response: Response<GuardedBody>) -> Response<GuardedBody> {
    let accepts_page = |value: &HeaderValue| value.as_bytes().windows(9).any(|part| part == b"text/html");
    let is_asked_for =
        head.uri.path() == path && head.method == Method::GET && head.headers.get(ACCEPT).is_some_and(accepts_page);
    if !is_asked_for {
        return response;
    }
    let mut page = own(response.map(|_| Bytes::from_static(PAGE.as_bytes())));
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    page.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
    page
}
