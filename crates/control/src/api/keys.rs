//! API keys.

use std::time::Duration;

use http::header::IF_NONE_MATCH;
use serde::Deserialize;
use serde_json::json;

use super::call::Call;
use super::{Answer, csv, input};
use crate::json_input::{self, WholeSeconds};
use crate::management;
use crate::management::{
    Key, KeyImport, Leak, Leaked, LimitUpdate, ManagementError, NewKey, NewKeyRequest, PolicyUpdate, Rotation,
    SecretSource,
};
use domain::budget::OwnBudget;
use domain::clock::Micros;
use domain::key::KeyId;
use domain::plan_name::PlanName;
use domain::secret::Secret;

/// Body of a creation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKeyBody {
    name: String,
    /// Id or email address of the owner; of a signed-in person, who may leave it out, that one.
    user: Option<String>,
    #[serde(default, deserialize_with = "json_input::object")]
    policy: PolicyUpdate,
    /// The key's plan, which the operator alone gives.
    plan: Option<PlanName>,
    /// Id of a key that was made offline. A creation has it with the digest: both or neither.
    id: Option<KeyId>,
    /// SHA-256 of the whole key, in hexadecimal.
    sha256: Option<String>,
}

/// Body of the import of a key with its limits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyImportBody {
    /// Id or email address of the owner.
    user: String,
    /// SHA-256 of the whole key, in hexadecimal.
    sha256: String,
    /// Id of a key that was made offline; absent for one of another system.
    id: Option<KeyId>,
    name: String,
    /// The key's own limits; absent or `null`: the configured ones.
    limits: Option<LimitUpdate>,
    plan: Option<PlanName>,
    quota: Option<OwnBudget>,
    #[serde(default, deserialize_with = "json_input::object")]
    policy: PolicyUpdate,
    /// The key is refused until it is enabled.
    #[serde(default)]
    disabled: bool,
}

/// Body of a rotation.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RotationBody {
    /// Time in which the old secret stays valid; absent: none.
    overlap_seconds: Option<WholeSeconds>,
    /// The member `rotated` of the key as the caller knows it; absent: any.
    #[serde(default, deserialize_with = "json_input::given_time")]
    expected_rotated: Option<Option<Micros>>,
    /// SHA-256 of a whole key that was made offline; absent: the secret is generated.
    sha256: Option<String>,
}

/// Body of disabling.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DisableBody {
    /// The key has leaked.
    #[serde(default)]
    leaked: bool,
}

/// Body of a report that a key or a management token has leaked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeakBody {
    /// The whole key, or the whole token.
    key: String,
    /// Kind of the place where it was found.
    #[serde(default)]
    source: String,
    /// Address of that place.
    #[serde(default)]
    url: String,
}

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let query = input::key_query(call.request)?;
    Ok(Answer::new(
        &management::list_keys(call.management(), call.actor, &call.org()?, &query, &call.page()?, call.now()).await?,
    ))
}

/// All keys of the list as one file.
pub(super) async fn list_as_csv(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let (org, query) = (call.org()?, input::key_query(call.request)?);
    let keys = management::list_all_keys(call.management(), call.actor, &org, &query, call.now()).await?;
    Ok(Answer::other(csv::MEDIA_TYPE, csv::render_keys(&keys)).saved_as(&format!("keys-{org}.csv")))
}

pub(super) async fn create(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let NewKeyBody { name, user, policy, plan, id, sha256 } = json_input::body(call.request)?;
    require_generated(call, id.is_some() || sha256.is_some())?;
    let request = NewKeyRequest { user: &owner(call, user)?, name: &name, policy, plan };
    let source = SecretSource::from_operands(id, sha256.as_deref())?;
    let new = management::create_key(call.management(), call.actor, &call.org()?, request, source, call.now()).await?;
    Ok(with_secret(&new).created(format!("keys/{}", new.key.id)))
}

/// Creates the key with a digest, or shows the one that there is.
pub(super) async fn put(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let NewKeyBody { name, user, policy, plan, id, sha256: given } = json_input::body(call.request)?;
    if given.is_some() {
        return Err(ManagementError::InvalidBody("unknown field `sha256`: the path has it".into()));
    }
    let request = NewKeyRequest { user: &owner(call, user)?, name: &name, policy, plan };
    let (org, sha256) = (call.org()?, call.member()?);
    let put =
        management::put_key_by_digest(call.management(), call.actor, &org, &sha256, id, request, call.now()).await?;
    if put.created {
        return Ok(Answer::new(&put).with_tag(put.key.etag).created(format!("keys/{}", put.key.id)));
    }
    let must_be_new = call.request.headers.get(IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes().trim_ascii() == b"*");
    if must_be_new { Err(ManagementError::Exists) } else { Ok(answer(&put.key)) }
}

pub(super) async fn import(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let KeyImportBody { user, sha256, id, name, limits, plan, quota, policy, disabled } =
        json_input::body(call.request)?;
    let org = &*call.org()?;
    let import =
        KeyImport { org, user: &user, sha256: &sha256, id, name: &name, limits, plan, quota, policy, disabled };
    let key = management::import_key(call.management(), call.actor, import, call.now()).await?;
    Ok(answer(&key).created(format!("keys/{}", key.id)))
}

pub(super) async fn find(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let digests = input::digests(call.request)?;
    let found = management::find_keys_by_digest(call.management(), call.actor, &digests, call.now()).await?;
    Ok(Answer::new(&json!({ "found": found })))
}

pub(super) async fn show(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(answer(&management::show_key(call.management(), call.actor, call.key()?, call.now()).await?))
}

pub(super) async fn update(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let key = call.key()?;
    let update = json_input::body(call.request)?;
    Ok(answer(&management::update_key(call.management(), call.actor, key, update, call.now()).await?))
}

pub(super) async fn rotate(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let key = call.key()?;
    let RotationBody { overlap_seconds, expected_rotated, sha256 } = json_input::optional_body(call.request)?;
    require_generated(call, sha256.is_some())?;
    let overlap = overlap_seconds.map(|seconds| Duration::from_secs(seconds.0));
    let rotation = Rotation::new(overlap).with_digest(sha256.as_deref())?;
    let rotation = expected_rotated.map_or(rotation, |rotated| rotation.after(rotated));
    Ok(with_secret(&management::rotate_key(call.management(), call.actor, key, rotation, call.now()).await?))
}

pub(super) async fn revoke(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(answer(&management::revoke_key(call.management(), call.actor, call.key()?, call.now()).await?))
}

pub(super) async fn disable(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let key = call.key()?;
    let DisableBody { leaked } = json_input::optional_body(call.request)?;
    // Only the operator enables such a key again, which is not a member's to decide for an administrator.
    if leaked && call.actor.signed_in().is_some_and(|user| !user.is_admin()) {
        return Err(ManagementError::NotAllowed);
    }
    Ok(answer(&management::disable_key(call.management(), call.actor, key, leaked, call.now()).await?))
}

pub(super) async fn enable(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(answer(&management::enable_key(call.management(), call.actor, call.key()?, call.now()).await?))
}

pub(super) async fn explain(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(Answer::new(&management::explain_key(call.management(), call.actor, call.key()?, call.now()).await?))
}

/// Reports a key or a management token that was found where others can read it. The answer has it as it is then, if it
/// is known.
pub(super) async fn report_leak(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let LeakBody { key, source, url } = json_input::body(call.request)?;
    let leak = Leak { secret: &Secret::new(key), source: &source, url: &url };
    let found = management::report_leak(call.management(), call.actor, &leak, call.now()).await?;
    Ok(Answer::new(&match found {
        Some(Leaked::Token(token)) => json!({ "found": null, "found_token": token }),
        Some(Leaked::Key(key)) => json!({ "found": key }),
        None => json!({ "found": null }),
    }))
}

/// Refuses a secret that a person has made elsewhere, before it is read.
fn require_generated(call: &Call<'_>, is_given: bool) -> Result<(), ManagementError> {
    let is_refused = is_given && call.actor.signed_in().is_some();
    if is_refused { Err(ManagementError::NotAllowed) } else { Ok(()) }
}

/// The owner of a new key.
fn owner(call: &Call<'_>, given: Option<String>) -> Result<String, ManagementError> {
    let signed_in = || call.actor.signed_in().map(|user| user.user.id.to_string());
    given.or_else(signed_in).ok_or_else(|| ManagementError::InvalidBody("missing field `user`".into()))
}

fn answer(key: &Key) -> Answer {
    Answer::new(key).with_tag(key.etag)
}

/// A key with its secret, which is shown this once.
fn with_secret(new: &NewKey) -> Answer {
    Answer::new(new).with_tag(new.key.etag)
}
