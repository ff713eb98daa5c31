//! Responses of the management API.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;

use state::ETag;

/// A response with a body of this media type. Caches do not store it.
pub(super) fn build(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Members of an answer that are no part of its tag: the counters of a key, and what is shown once.
const UNTAGGED: [&str; 4] = ["requests", "last_used", "key", "warning"];

/// A response with one record, with its entity tag (RFC 9110, section 8.8.3): the tag of the record, which `If-Match`
/// is about, and that of the answer, which has what is derived from other records, the configuration and the time.
pub(super) fn record(status: StatusCode, body: &impl Serialize, etag: Option<ETag>) -> Response<Bytes> {
    let mut response = json(status, body);
    if let Some(etag) = etag {
        let mut answer = serde_json::json!(body);
        if let Some(members) = answer.as_object_mut() {
            members.retain(|name, _| !UNTAGGED.contains(&name.as_str()));
        }
        let value = format!("\"{etag}.{}\"", ETag::of_answer(&answer));
        let value = HeaderValue::try_from(value).expect("base64url is visible ASCII");
        response.headers_mut().insert(ETAG, value);
    }
    response
}

/// The response of before to a client that has this record already: 304 (RFC 9110, section 13.1.2).
pub(super) fn unless_known(request: &HeaderMap, response: Response<Bytes>) -> Response<Bytes> {
    let Some(etag) = response.headers().get(ETAG) else { return response };
    let known = request.get_all(IF_NONE_MATCH).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
    // The weak comparison (section 8.8.3.2): a proxy in between may have weakened the tag.
    let is_known = known
        .map(<[u8]>::trim_ascii)
        .any(|known| known == b"*" || known.strip_prefix(b"W/").unwrap_or(known) == etag.as_bytes());
    if !is_known {
        return response;
    }
    let etag = etag.clone();
    let mut response = build(StatusCode::NOT_MODIFIED, "application/json", "");
    response.headers_mut().remove(CONTENT_TYPE);
    response.headers_mut().insert(ETAG, etag);
    response
}

/// A response with this value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Bytes> {
    build(status, "application/json", serde_json::to_vec(value).expect("results are structs with text keys"))
}
