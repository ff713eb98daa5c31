//! Answers of the API, and their responses.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::Value;

use crate::management::Replay;
use state::ETag;

/// Name of the field of an answer that was given before, to the same call.
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Members of an answer that are no part of its tag: the counters of a key, and what is shown once.
const UNTAGGED: [&str; 4] = ["requests", "last_used", "key", "warning"];

/// Answer to a call that was performed.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    content: Content,
    /// Entity tag of the record that it shows.
    etag: Option<ETag>,
    /// Path of the record that was created, below that of the mount.
    location: Option<String>,
    /// Name of the file that a browser saves it as.
    file_name: Option<String>,
    is_replay: bool,
    /// The session of the caller has ended.
    pub(crate) ends_session: bool,
}

#[derive(Debug)]
enum Content {
    None,
    /// In the order of the members of the record.
    Json(String),
    /// Of another media type.
    Other(&'static str, Vec<u8>),
}

impl Answer {
    /// 200 with a record or a list.
    pub(super) fn new(shown: &impl Serialize) -> Self {
        Self::json(serde_json::to_string(shown).expect("results have text keys"))
    }

    /// 200 with this JSON.
    pub(super) fn json(text: String) -> Self {
        Self::of(StatusCode::OK, Content::Json(text))
    }

    /// 200 with content of another media type than JSON.
    pub(super) fn other(media_type: &'static str, content: impl Into<Vec<u8>>) -> Self {
        Self::of(StatusCode::OK, Content::Other(media_type, content.into()))
    }

    /// 204 to a person who has signed out.
    pub(super) fn signed_out() -> Self {
        Self { ends_session: true, ..Self::of(StatusCode::NO_CONTENT, Content::None) }
    }

    /// The answer to a call that was made before. Secrets are not stored.
    pub(super) fn replayed(replay: Replay, secret: Option<&'static str>) -> Self {
        let status = StatusCode::from_u16(replay.status).expect("the status of an answer that was sent");
        let mut body = replay.body.unwrap_or_default();
        if let (Some(secret), Some(members)) = (secret, body.as_object_mut()) {
            members.insert(secret.to_owned(), Value::Null);
        }
        let location = (status == StatusCode::CREATED).then_some(replay.path);
        let content = Content::Json(body.to_string());
        Self { location, is_replay: true, ..Self::of(status, content) }.with_tag(replay.etag)
    }

    const fn of(status: StatusCode, content: Content) -> Self {
        let (etag, location, file_name) = (None, None, None);
        Self { status, content, etag, location, file_name, is_replay: false, ends_session: false }
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The same with the entity tag of the record.
    pub(super) fn with_tag(self, etag: Option<ETag>) -> Self {
        Self { etag, ..self }
    }

    /// The same, of a record that was created, with its path.
    pub(super) fn created(self, path: String) -> Self {
        Self { status: StatusCode::CREATED, location: Some(path), ..self }
    }

    /// The same, which a browser saves as a file (RFC 6266). Characters of its name that some system does not take are
    /// dashes.
    pub(super) fn saved_as(self, file_name: &str) -> Self {
        let is_taken = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        Self { file_name: Some(file_name.replace(|c| !is_taken(c), "-")), ..self }
    }

    /// The response, at a mount with this path.
    pub(super) fn into_response(self, base: &str) -> Response<Bytes> {
        let Self { status, content, etag, location, file_name, is_replay, .. } = self;
        let tag = etag.and_then(|etag| Some(entity_tag(etag, content.parse()?)));
        let mut response = content.into_response(status);
        let headers = response.headers_mut();
        if let Some(tag) = tag {
            headers.insert(ETAG, HeaderValue::try_from(tag).expect("base64url is visible ASCII"));
        }
        if let Some(path) = location {
            let location = HeaderValue::try_from(format!("{base}/{path}")).expect("paths and ids are visible ASCII");
            headers.insert(LOCATION, location);
        }
        if let Some(name) = file_name {
            let disposition = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
            headers.insert(CONTENT_DISPOSITION, disposition.expect("letters, digits, dots, dashes and underscores"));
        }
        if is_replay {
            headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}

impl Content {
    fn parse(&self) -> Option<Value> {
        if let Self::Json(text) = self { serde_json::from_str(text).ok() } else { None }
    }

    fn into_response(self, status: StatusCode) -> Response<Bytes> {
        match self {
            Self::Json(text) => build(status, "application/json", text),
            Self::Other(media_type, content) => build(status, media_type, content),
            Self::None => {
                let mut response = build(status, "application/json", "");
                response.headers_mut().remove(CONTENT_TYPE);
                response
            }
        }
    }
}

/// The entity tag of an answer (RFC 9110, section 8.8.3): that of the record, which `If-Match` is about, and that of
/// the answer, which has what is derived from other records, the configuration and the time.
fn entity_tag(etag: ETag, mut answer: Value) -> String {
    if let Some(members) = answer.as_object_mut() {
        members.retain(|name, _| !UNTAGGED.contains(&name.as_str()));
    }
    format!("\"{etag}.{}\"", ETag::of_answer(&answer))
}

/// A response with a body of this media type. Caches do not store it.
pub(crate) fn build(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_ends_no_header_field() {
        let answer = Answer::other("text/csv", "id").saved_as("keys-a\"b\r\nc/é..csv");
        let response = answer.into_response("/v1");
        assert_eq!(response.headers()[CONTENT_DISPOSITION], "attachment; filename=\"keys-a-b--c--..csv\"");
        assert_eq!(response.headers()[CONTENT_TYPE], "text/csv");
        assert_eq!(response.body(), "id");
    }
}
