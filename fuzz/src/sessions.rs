//! Parts of web sessions: cookies that go no further, and addresses that lead nowhere else.

use control::dashboard;
use domain::head_fields::CredentialFields;
use domain::session::{self, COOKIE_NAME, SIGN_IN_COOKIE_PREFIX, TokenDigest};
use edge::forward::{UpstreamRequest, ValidatedHead, rewrite_request};
use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderValue, Request};
use url::Url;

use super::requests::{BODY_LENGTH, with_context};

/// Value of our cookies here: a text of a token's length.
const SECRET: &[u8] = b"dGhpcyBpcyBubyBzZWNyZXQsIG9ubHkgYSB0ZXN0Li4";
const ORIGIN: &str = "https://gateway.test:8443";

/// Of whatever `Cookie` fields, a line each: what is read as a session is one that was sent, nothing of our cookies is
/// forwarded, and all others are, in their order.
pub fn cookie(bytes: &[u8]) {
    // The fuzzer learns it by coverage; in a foreign cookie it means nothing.
    if has(bytes, SECRET) {
        return;
    }
    let fields: Vec<HeaderValue> = bytes
        .split(|byte| *byte == b'\n')
        .take(50)
        .filter_map(|field| HeaderValue::from_bytes(&with_secret(field)).ok())
        .collect();
    let mut request = Request::new(());
    request.headers_mut().insert(HOST, HeaderValue::from_static("gateway.test"));
    for field in &fields {
        request.headers_mut().append(COOKIE, field.clone());
    }
    for name in [COOKIE_NAME, SIGN_IN_COOKIE_PREFIX] {
        if let Ok(Some(digest)) = session::read_cookie(request.headers(), name) {
            let known = [SECRET, b""].map(TokenDigest::of);
            assert!(known.contains(&digest), "a session was read that was not sent");
            assert!(request.headers().get_all(COOKIE).iter().any(|field| has(field.as_bytes(), name.as_bytes())));
        }
    }
    let sent = forwarded(request);
    let left: Vec<&[u8]> = sent.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    assert!(left.len() <= 1, "HTTP/1 servers expect one field");
    let left = left.first().copied().unwrap_or_default();
    assert!(!has(left, SECRET), "a cookie of ours goes on");
    for name in [COOKIE_NAME, SIGN_IN_COOKIE_PREFIX] {
        assert_eq!(session::read_cookie(&sent, name), Ok(None), "a server behind could read it");
    }
    let others = |fields: &mut dyn Iterator<Item = &[u8]>| -> Vec<Vec<u8>> {
        let pairs = fields.flat_map(|field| field.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
        pairs.filter(|pair| !pair.is_empty() && !is_ours(pair)).map(<[u8]>::to_vec).collect()
    };
    let expected = others(&mut fields.iter().map(HeaderValue::as_bytes));
    assert_eq!(others(&mut std::iter::once(left)), expected, "a foreign cookie is lost or changed");
}

/// A field in which every pair whose name begins as ours do holds the secret.
fn with_secret(field: &[u8]) -> Vec<u8> {
    let pairs = field.split(|byte| *byte == b';').map(|pair| {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        if is_ours(pair.trim_ascii()) { [name, b"=", SECRET].concat() } else { pair.to_vec() }
    });
    pairs.collect::<Vec<_>>().join(&b';')
}

/// Returns whether the name of a pair begins as ours do, however it is written.
fn is_ours(pair: &[u8]) -> bool {
    pair.to_ascii_lowercase().starts_with(b"__host-keygate")
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// The fields of a request as they are sent upstream.
fn forwarded(request: Request<()>) -> HeaderMap {
    let head = request.into_parts().0;
    let received = ValidatedHead::validate(head, &CredentialFields::NONE).expect("cookies are no flaw");
    let UpstreamRequest { request, added, .. } =
        with_context(|context| rewrite_request(received, BODY_LENGTH, context));
    let mut headers = request.into_parts().0.headers;
    added.write_to(&mut headers);
    headers
}

/// Every accepted return path is a path of the same origin, for a browser that parses it once or twice.
pub fn return_path(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Some(path) = dashboard::return_path(ORIGIN, &text) else { return };
    assert!(path.starts_with('/') && !path.starts_with("//"), "it is no path: {path:?}");
    assert!(path.bytes().all(|byte| byte.is_ascii_graphic()), "it cannot be in a header: {path:?}");
    let origin = Url::parse(ORIGIN).expect("an origin");
    for page in ["/", "/settings/sign-in?a=b", "/settings/callback/corp"] {
        let target = origin.join(page).and_then(|page| page.join(&path)).expect("a browser can go there");
        assert_eq!(target.origin(), origin.origin(), "{text:?} leads elsewhere: {path:?}");
        assert!(target.username().is_empty() && target.password().is_none());
    }
    // Encoded, it may have become too long.
    let again = dashboard::return_path(ORIGIN, &path);
    assert!(again.is_none_or(|again| again == path), "it changes when read again");
}
