//! Check of a secret that was admitted before: by the records alone, without a token and a slot.

use super::decider::Decider;
use crate::redis::digest_index::find_key;
use crate::{CredentialStatus, RevokedBy};
use domain::clock::{self, Micros};
use domain::key::{KeyDigest, KeyId};
use domain::refusal::Refusal;
use redis_client::CommandError;

impl Decider {
    /// Checks whether a secret of a key is still valid; without a key, whether the user of this
    /// session quota digest is.
    pub(crate) async fn check_secret(
        &self,
        key: Option<KeyId>,
        digest: &KeyDigest,
        now: Micros,
    ) -> Result<CredentialStatus, CommandError> {
        let id = match key {
            Some(id) => Some(id),
            None => find_key(&self.client, &self.shared.names, digest).await?,
        };
        let records = match id {
            Some(id) => self.read_records(id).await?,
            None => None,
        };
        let Some(records) = records else { return Ok(CredentialStatus::Revoked(RevokedBy::Key)) };
        // Into the cache, where the revocations that this gateway keeps are applied: the server may lack them.
        let cached = self.shared.cache.insert(digest, self.shared.cached_key(digest, &records, clock::steady()));
        // Neither other permissions nor a withdrawal nor other networks end what is open.
        Ok(match cached.refusal_of_credential_at(now) {
            None if cached.is_of_suspended_org() => CredentialStatus::Revoked(RevokedBy::Org),
            None => CredentialStatus::Valid(cached.valid_until()),
            Some(Refusal::Expired | Refusal::KeyExpired) => CredentialStatus::Revoked(RevokedBy::Secret),
            Some(Refusal::UserRemoved | Refusal::UserSuspended) => CredentialStatus::Revoked(RevokedBy::User),
            Some(_) => CredentialStatus::Revoked(RevokedBy::Key),
        })
    }
}
