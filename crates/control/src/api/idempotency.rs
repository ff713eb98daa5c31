//! Idempotency keys (IETF draft idempotency-key-header): a call that is sent again gets the result of the first one.
//!
//! - A key counts for a caller, a method and a path, for a day. The record of a call is stored in the transaction of
//!   its change, so that one that failed before is not remembered, and one that was committed is, also when the process
//!   died before it answered.
//! - Secrets are not stored: the result has `null` in their place, and the caller rotates the key, or sends a digest.

use std::collections::HashSet;
use std::sync::Arc;

use http::header::IF_MATCH;
use http::{HeaderName, Method};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::call::{Call, Operation, Subject};
use super::{Answer, Api};
use crate::management;
use crate::management::{Actor, Conditions, IdempotentCall, ManagementError};
use crate::request::ControlRequest;
use state::{ETag, IdempotencyPlace, IdempotencyRecord};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
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
pub(super) fn conditions(
    subject: Subject,
    request: &ControlRequest,
    actor: &Actor,
) -> Result<Conditions, ManagementError> {
    let if_match = if request.method.is_safe() { None } else { if_match(request)? };
    if if_match.is_some() && subject == Subject::None {
        return Err(ManagementError::IfMatch);
    }
    Ok(Conditions { if_match, call: idempotent_call(request, actor)? })
}

/// The entity tag of `If-Match`; none without the field, and for `*`. The comparison is the strong one (RFC 9110,
/// section 13.1.1): no record has a weak tag, or one of another form.
fn if_match(request: &ControlRequest) -> Result<Option<ETag>, ManagementError> {
    let mut fields = request.headers.get_all(IF_MATCH).into_iter();
    let Some(only) = fields.next() else { return Ok(None) };
    let text = only.to_str().map_err(|_| ManagementError::IfMatch)?.trim();
    if fields.next().is_some() || text.contains(',') {
        return Err(ManagementError::IfMatch);
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

fn idempotent_call(request: &ControlRequest, actor: &Actor) -> Result<Option<IdempotentCall>, ManagementError> {
    let mut fields = request.headers.get_all(&IDEMPOTENCY_KEY).into_iter();
    let Some(only) = fields.next() else { return Ok(None) };
    let key = only.as_bytes().trim_ascii();
    // A string of Structured Fields (RFC 9651, section 3.3.3) is quoted; clients send it with and without.
    let key = key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\"")).unwrap_or(key);
    let is_valid = (1..=MAX_KEY).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    if !is_valid || fields.next().is_some() || request.method != Method::POST {
        return Err(ManagementError::IdempotencyKey);
    }
    let id = Sha256::new()
        .chain_update(actor.caller())
        .chain_update([0])
        .chain_update(request.method.as_str())
        .chain_update([0])
        .chain_update(&request.path)
        .chain_update([0])
        .chain_update(key)
        .finalize();
    // A call on another condition is another call.
    let condition = request.headers.get(IF_MATCH).map(|tag| [&[0], tag.as_bytes()].concat()).unwrap_or_default();
    let body = Sha256::new().chain_update(&request.body).chain_update(condition).finalize();
    Ok(Some(IdempotentCall { id: id.into(), body: body.into() }))
}

impl Api {
    /// Performs a call, or, when it was made before, answers with its result.
    pub(super) async fn perform_once(&self, call: &Call<'_>, operation: Operation) -> Result<Answer, ManagementError> {
        let Some(once) = &call.actor.conditions().call else { return operation(call).await };
        let _begun = self.in_progress.begin(once.id).ok_or(ManagementError::InProgress)?;
        let made = match self.place(call).await? {
            Some(place) => management::idempotency_record(&self.management, place, once, call.now()).await?,
            None => None,
        };
        if let Some(record) = made {
            return self.replay(call, once, &record).await;
        }
        match operation(call).await {
            // Made by another gateway meanwhile.
            Err(ManagementError::Repeated(record)) => self.replay(call, once, &record).await,
            performed => performed,
        }
    }

    /// The place of the record of a call; none of one about an organization that does not exist.
    async fn place(&self, call: &Call<'_>) -> Result<Option<IdempotencyPlace>, ManagementError> {
        match call.subject {
            Subject::Installation => Ok(Some(IdempotencyPlace::Installation)),
            Subject::Org => management::idempotency_place(&self.management, &call.org()?).await,
            Subject::Key => Ok(Some(IdempotencyPlace::Org(call.key()?.tag()))),
            Subject::Tokens => Ok(Some(IdempotencyPlace::Tokens)),
            Subject::None => Err(ManagementError::IdempotencyKey),
        }
    }

    /// The result of a call that was made before.
    async fn replay(
        &self,
        call: &Call<'_>,
        once: &IdempotentCall,
        record: &IdempotencyRecord,
    ) -> Result<Answer, ManagementError> {
        if record.body != once.body {
            return Err(ManagementError::KeyReused);
        }
        Ok(Answer::replayed(management::replay(&self.management, call.actor, record, call.now()).await?, call.secret))
    }
}
