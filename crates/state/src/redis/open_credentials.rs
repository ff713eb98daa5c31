//! Revocations in the Redis state, as the workers see them: the log of the process, and checks of single credentials.

use std::sync::Arc;

use super::Redis;
use super::directory::Sessions;
use super::unavailable::read;
use crate::{CredentialStatus, RevocationLog, RevokedBy, Unavailable, Validity};
use domain::clock::Micros;
use domain::identity::Principal;

impl Redis {
    /// The log of revocations.
    pub fn revocations(&self) -> &Arc<RevocationLog> {
        &self.revocations
    }

    /// Checks whether the credential of an admitted request is still valid. See
    /// [`crate::State::check_credential`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn check_credential(
        &self,
        principal: &Principal,
        validity: &Validity,
        now: Micros,
    ) -> Result<CredentialStatus, Unavailable> {
        let status = read(self.decider.check_secret(principal.key_id, &validity.credential.digest, now)).await?;
        let (Some(session), CredentialStatus::Valid(_)) = (validity.credential.session, status) else {
            return Ok(status);
        };
        Ok(match read(Sessions(&self.transactions).find(session, now)).await? {
            Some(session) if validity.is_of_member(&session) => CredentialStatus::Valid(session.valid_until()),
            _ => CredentialStatus::Revoked(RevokedBy::Session),
        })
    }
}
