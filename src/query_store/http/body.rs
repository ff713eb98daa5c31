//! The body of a request that writes: JSON, of bounded size, with exactly the fields of a draft.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::Error as _;

use super::BodyError;
use super::refusal::Refusal;
use crate::query_store::query::QueryDraft;

/// How long a body may take. It comes from the gateway at its client's pace, and is at most a megabyte by default.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a client sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `sql` and `name`")]
struct Written {
    sql: String,
    name: String,
}

/// Reads a draft.
pub(super) async fn draft<B>(request: Request<B>, limit: u64) -> Result<QueryDraft, Refusal>
where
    B: Body<Error: Into<BodyError>>,
{
    if !is_json(request.headers()) {
        return Err(Refusal::MediaType);
    }
    let bytes = tokio::time::timeout(PATIENCE, read(request.into_body(), limit)).await.map_err(|_| Refusal::Slow)??;
    let written = parse(&bytes).map_err(Refusal::Json)?;
    QueryDraft::new(written.name, written.sql).map_err(Refusal::Draft)
}

/// An object; the library would take an array of the fields' values as well.
fn parse(bytes: &[u8]) -> serde_json::Result<Written> {
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(serde_json::Error::custom("an array is no object with `sql` and `name`"));
    }
    serde_json::from_slice(bytes)
}

/// `application/json` with any parameters, said once, and not compressed.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (types.next(), types.next()) else { return false };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json") && !headers.contains_key(header::CONTENT_ENCODING)
}

async fn read<B>(body: B, limit: u64) -> Result<Bytes, Refusal>
where
    B: Body<Error: Into<BodyError>>,
{
    // What is announced as too large is not read at all.
    if body.size_hint().lower() > limit {
        return Err(Refusal::TooLarge { limit });
    }
    let limited = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX));
    match limited.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::TooLarge { limit }),
        Err(error) => Err(Refusal::Broken(error)),
    }
}
