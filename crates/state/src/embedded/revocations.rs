//! Revocations in the embedded state, as the workers see them: the log, and checks of single credentials.

use std::sync::Arc;

use super::Embedded;
use crate::{CredentialStatus, RevocationLog, RevokedBy, Validity};
use domain::clock::Micros;

impl Embedded {
    /// The log of revocations.
    pub fn revocations(&self) -> &Arc<RevocationLog> {
        &self.directory.revocations
    }

    /// Checks whether the credential of an admitted request is still valid. See
    /// [`crate::State::check_credential`].
    pub fn check_credential(&self, validity: &Validity, now: Micros) -> CredentialStatus {
        let record = self.directory.by_digest(&validity.credential.digest);
        let status = record.map_or(CredentialStatus::Revoked(RevokedBy::Key), |record| {
            record.check_credential(&validity.credential.digest, now)
        });
        match (validity.credential.session, status) {
            (Some(session), CredentialStatus::Valid(_)) => match self.session_by_id(session, now) {
                Some(session) if validity.is_of_member(&session) => CredentialStatus::Valid(session.valid_until()),
                _ => CredentialStatus::Revoked(RevokedBy::Session),
            },
            (_, status) => status,
        }
    }
}
