//! Idempotency keys (IETF draft idempotency-key-header): a call that is sent again gets the result of the first one.
//!
//! - A key counts for a token, a method and a path, for a day. The record of a call is stored in the transaction of its
//!   change, so that one that failed before is not remembered, and one that was committed is, also when the process
//!   died before it answered.
//! - Secrets are not stored: the result has `null` in their place, and the program rotates the key, or sends a digest.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{IF_MATCH, LOCATION};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::call::Call;
use super::error::ApiError;
use super::routes::Endpoint;
use super::{ManagementApi, input, response};
use crate::management::{Conditions, IdempotentCall, ManagementError, Program};
use crate::request::ControlRequest;
use domain::management_token::TokenId;
use state::{ETag, IdempotencyPlace, IdempotencyRecord};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Characters of a key at most.
const MAX_KEY: usize = 255;

/// Calls with idempotency keys that are being made by this process. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct InProgress(Arc<Mutex<HashSet<[u8; 32]>>>);

/// A call that is being made. Dropping it ends that.
struct Begun {
    calls: InProgress,
    id: [u8; 32],
}

impl InProgress {
    /// Begins a call; none when an equal one is being made.
    fn begin(&self, id: [u8; 32]) -> Option<Begun> {
        self.0.lock().insert(id).then(|| Begun { calls: self.clone(), id })
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.calls.0.lock().remove(&self.id);
    }
}

/// The conditions of a call, by its fields `If-Match`, which is for changes, and `Idempotency-Key`.
pub(super) fn conditions(request: &ControlRequest, token: TokenId) -> Result<Conditions, ApiError> {
    let if_match = if request.method.is_safe() { None } else { if_match(request)? };
    Ok(Conditions { if_match, call: idempotent_call(request, token)? })
}

/// The entity tag of `If-Match`; none without the field, and for `*`. The comparison is the strong one (RFC 9110,
/// section 13.1.1): no record has a weak tag, or one of another form.
fn if_match(request: &ControlRequest) -> Result<Option<ETag>, ApiError> {
    let mut fields = request.headers.get_all(IF_MATCH).into_iter();
    let Some(only) = fields.next() else { return Ok(None) };
    let text = only.to_str().map_err(|_| ApiError::IfMatch)?.trim();
    if fields.next().is_some() || text.contains(',') {
        return Err(ApiError::IfMatch);
    }
    if text == "*" {
        return Ok(None);
    }
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    // The part of the record: what an answer has besides is not what a change changes.
    let tag = quoted.map(|tag| tag.split_once('.').map_or(tag, |(record, _)| record));
    // One of another form is a tag that no record has: whether there is the record is looked up first, as for others.
    let tag = tag.and_then(|tag| tag.parse().ok());
    Ok(Some(tag.unwrap_or(ETag::OF_NO_RECORD)))
}

fn idempotent_call(request: &ControlRequest, token: TokenId) -> Result<Option<IdempotentCall>, ApiError> {
    let mut fields = request.headers.get_all(&IDEMPOTENCY_KEY).into_iter();
    let Some(only) = fields.next() else { return Ok(None) };
    let key = only.as_bytes().trim_ascii();
    // A string of Structured Fields (RFC 9651, section 3.3.3) is quoted; clients send it with and without.
    let key = key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\"")).unwrap_or(key);
    let is_valid = (1..=MAX_KEY).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    if !is_valid || fields.next().is_some() || request.method != Method::POST {
        return Err(ApiError::IdempotencyKey);
    }
    let id = Sha256::new()
        .chain_update(token.as_str())
        .chain_update([0])
        .chain_update(request.method.as_str())
        .chain_update([0])
        .chain_update(&request.path)
        .chain_update([0])
        .chain_update(key)
        .finalize();
    Ok(Some(IdempotentCall { id: id.into(), body: Sha256::digest(&request.body).into() }))
}

impl ManagementApi {
    /// Performs a call, or, when it was made before, answers with its result.
    pub(super) async fn perform_once(
        &self,
        request: &ControlRequest,
        program: Program,
        endpoint: Endpoint,
        values: &[&str],
    ) -> Result<Response<Bytes>, ApiError> {
        let management = &*self.services.management;
        let Some(call) = program.conditions.call.clone() else {
            return Call::new(management, request, program).perform(endpoint, values).await;
        };
        let _begun = self.services.in_progress.begin(call.id).ok_or(ApiError::InProgress)?;
        let made = match self.place(endpoint, values).await? {
            Some(place) => management.idempotency_record(place, &call, request.now).await?,
            None => None,
        };
        let performing = Call::new(management, request, program);
        if let Some(record) = made {
            return self.replay(&performing, &call, &record, endpoint).await;
        }
        let performed = performing.perform(endpoint, values).await;
        if let Err(ApiError::Management(error)) = &performed
            && let ManagementError::Repeated(record) = &**error
        {
            // Made by another gateway meanwhile.
            return self.replay(&performing, &call, record, endpoint).await;
        }
        performed
    }

    /// The place of the record of a call; none of one about an organization that does not exist.
    async fn place(&self, endpoint: Endpoint, values: &[&str]) -> Result<Option<IdempotencyPlace>, ApiError> {
        let first = values.first().copied().unwrap_or_default();
        Ok(match endpoint {
            Endpoint::CreateOrg => Some(IdempotencyPlace::Installation),
            Endpoint::CreateToken => Some(IdempotencyPlace::Tokens),
            Endpoint::CreateUser | Endpoint::CreateKey | Endpoint::ImportKey | Endpoint::CreateRule => {
                self.services.management.idempotency_place(&input::reference(first)?).await?
            }
            _ => Some(IdempotencyPlace::Org(input::key(first)?.tag())),
        })
    }

    /// The result of a call that was made before.
    async fn replay(
        &self,
        performing: &Call<'_>,
        call: &IdempotentCall,
        record: &IdempotencyRecord,
        endpoint: Endpoint,
    ) -> Result<Response<Bytes>, ApiError> {
        if record.body != call.body {
            return Err(ApiError::KeyReused);
        }
        let replay = performing.replay(record).await?;
        let status = StatusCode::from_u16(replay.status).expect("the status of a response that was sent");
        let mut body = replay.body.unwrap_or_default();
        let secret = match endpoint {
            Endpoint::CreateKey | Endpoint::RotateKey => Some("key"),
            Endpoint::CreateToken => Some("token"),
            _ => None,
        };
        if let (Some(secret), Some(object)) = (secret, body.as_object_mut()) {
            object.insert(secret.to_owned(), Value::Null);
        }
        let mut response = response::record(status, &body, replay.etag);
        let headers = response.headers_mut();
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        if status == StatusCode::CREATED {
            let location = format!("/v1/{}", replay.path);
            headers.insert(LOCATION, HeaderValue::try_from(location).expect("ids are visible ASCII"));
        }
        Ok(response)
    }
}
