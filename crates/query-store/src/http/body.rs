//! Request bodies: JSON of bounded size, with exactly the fields of a draft.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::Error as _;

use super::RequestBody;
use super::request_error::RequestError;
use crate::query::QueryDraft;

/// Time that a body may take. It arrives from the gateway at the pace of its client, and is at most a
/// megabyte by default.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Body of a request that creates or replaces a query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `sql` and `name`")]
struct QueryBody {
    sql: String,
    name: String,
}

/// Reads a draft from the body of a request.
pub(super) async fn read_draft(request: Request<impl RequestBody>, limit: u64) -> Result<QueryDraft, RequestError> {
    if !is_json(request.headers()) {
        return Err(RequestError::MediaType);
    }
    let bytes = tokio::time::timeout(BODY_TIMEOUT, read_bytes(request.into_body(), limit))
        .await
        .map_err(|_| RequestError::Slow)??;
    let written = parse(&bytes).map_err(RequestError::Json)?;
    QueryDraft::new(written.name, written.sql).map_err(RequestError::Draft)
}

/// Parses an object. Serde would also accept an array of the values of the fields.
fn parse(bytes: &[u8]) -> serde_json::Result<QueryBody> {
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(serde_json::Error::custom("an array is no object with `sql` and `name`"));
    }
    serde_json::from_slice(bytes)
}

/// True for `application/json` with any parameters, in exactly one field, and not compressed.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (types.next(), types.next()) else { return false };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json") && !headers.contains_key(header::CONTENT_ENCODING)
}

async fn read_bytes(body: impl RequestBody, limit: u64) -> Result<Bytes, RequestError> {
    // A body that is announced as too large is not read at all.
    if body.size_hint().lower() > limit {
        return Err(RequestError::TooLarge { limit });
    }
    let limited = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX));
    match limited.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(RequestError::TooLarge { limit }),
        Err(error) => Err(RequestError::Broken(error)),
    }
}
