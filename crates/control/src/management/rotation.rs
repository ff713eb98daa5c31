//! Key rotation: a new secret under the same id.
//!
//! - A rotation names the last rotation that its sender knows of. When there was another one since, nothing is changed:
//!   a rotation that is sent twice, or by two people at once, would end the secret that the first one left valid.

use std::time::Duration;

use super::audited_change::{Target, apply_change};
use super::authorization::{Access, authorize, require_digests_allowed};
use super::key_actor::key_actors;
use super::key_creation::digest_taken;
use super::operands::check_digest;
use super::owned_key::{find_key, new_key};
use super::{Actor, ApiKey, KeyActor, Management, ManagementError, NewKey};
use domain::clock::Micros;
use domain::key::{KeyDigest, KeyId, PlainKey};
use domain::management_token::TokenScope;
use state::{Change, KeyEvent, LastRotation};

/// The longest time that two secrets of a key may be valid.
const MAX_OVERLAP: Duration = Duration::from_secs(366 * 24 * 3600);

/// Rotation that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Time for which the replaced secret stays valid, at most 366 days; none: it is refused at once.
    overlap: Option<Duration>,
    /// The rotation that has to be the key's last one.
    last: LastRotation,
    /// Digest of a secret that was made elsewhere; none: a secret is generated here.
    digest: Option<KeyDigest>,
}

impl Rotation {
    /// A rotation with this overlap, whatever the last one was.
    pub fn new(overlap: Option<Duration>) -> Self {
        Self { overlap, last: LastRotation::Any, digest: None }
    }

    /// The same, if the last one was at this time; `None`: if there was none.
    #[must_use]
    pub fn after(self, rotated: Option<Micros>) -> Self {
        Self { last: rotated.into(), ..self }
    }

    /// The same, to a secret that was made elsewhere: the SHA-256 of the whole key, in hexadecimal. Without one, the
    /// secret is generated here.
    ///
    /// # Errors
    /// As [`check_digest`].
    pub fn with_digest(self, sha256: Option<&str>) -> Result<Self, ManagementError> {
        Ok(Self { digest: sha256.map(check_digest).transpose()?, ..self })
    }
}

impl Rotation {
    /// The digest of the new secret of a key, and the key in the clear when it is generated here.
    fn secret(self, id: KeyId) -> Result<(KeyDigest, Option<ApiKey>), ManagementError> {
        if let Some(digest) = self.digest {
            return Ok((digest, None));
        }
        let plain = PlainKey::generate(id)?;
        Ok((plain.digest(), Some(ApiKey::from(&plain))))
    }
}

/// Gives a key a new secret; the old one stays valid for the overlap. A secret that is still valid from an earlier
/// rotation is refused at once. The new one is generated here and returned once, or given by its digest.
///
/// # Errors
/// [`ManagementError::OverlapTooLong`], [`ManagementError::NoKey`], [`ManagementError::Revoked`],
/// [`ManagementError::Rotated`]; with a digest [`ManagementError::DigestTaken`]; for signed-in users
/// [`ManagementError::KeyCreationLimited`], and with a digest [`ManagementError::NotAllowed`].
pub async fn rotate_key(
    management: &Management,
    actor: &Actor,
    id: KeyId,
    rotation: Rotation,
    now: Micros,
) -> Result<NewKey, ManagementError> {
    let by = authorize(management, actor, Access::Key(id, TokenScope::KeysRotate), now).await?;
    if rotation.digest.is_some() {
        require_digests_allowed(actor)?;
    }
    let overlap = rotation.overlap.unwrap_or_default();
    if overlap > MAX_OVERLAP {
        return Err(ManagementError::OverlapTooLong);
    }
    // All that the result shows is read before the change: no failure after it may lose the new secret.
    let mut owned = find_key(management, actor, id).await?;
    let (digest, api_key) = rotation.secret(id)?;
    let previous_until = now.after(overlap);
    let change = Change::RotateKey { key: id, digest, at: now, previous_until, last: rotation.last };
    let changed = apply_change(management, "key.rotate", Target::of_key(&owned.key), change, by).await;
    if let Err(ManagementError::Rotated { key, at, .. }) = changed {
        // For the text of the error alone.
        let actors = key_actors(management, actor, owned.key.org, &[id]).await.unwrap_or_default();
        let by = actors.iter().find_map(|actors| actors.find(KeyEvent::Rotated, at)).map(KeyActor::label);
        return Err(ManagementError::Rotated { key, by, at });
    }
    if let Err(ManagementError::Taken("digest")) = changed {
        return Err(digest_taken(management, &digest, id.tag()).await);
    }
    owned.key.rotated = Some(now);
    owned.key.previous_until = Some(previous_until);
    owned.actors.record(KeyEvent::Rotated, now, KeyActor::of(actor));
    new_key(management, changed, api_key, &owned, now)
}
