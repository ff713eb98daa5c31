//! Revocations in the embedded state: changes that end the validity of credentials are logged once they are effective.

use std::sync::Arc;

use super::Embedded;
use super::directory::Directory;
use crate::{Change, CredentialStatus, RevocationEntry, RevocationLog, RevokedBy, Validity};
use domain::clock::Micros;
use domain::key::KeyId;

impl Directory {
    /// Makes a committed change effective, then logs what it revoked: a decision that is made without the change was begun
    /// before the entry, so its exchange is found by those who read the log.
    pub(super) fn apply_and_log(&self, change: Change) {
        let revoked = match change {
            Change::RevokeKey { key, .. } => Some(RevocationEntry::Key(key)),
            Change::RemoveUser { user, .. } => Some(RevocationEntry::User(user)),
            Change::SuspendOrg { org, suspended: true } => Some(RevocationEntry::Org(org)),
            Change::EndSession { session } => Some(RevocationEntry::Session(session)),
            Change::EndMembership { session, org } => Some(RevocationEntry::Membership { session, org }),
            _ => None,
        };
        let rotated = if let Change::RotateKey { key, .. } = change.as_made() { Some(*key) } else { None };
        self.apply(change);
        let entry = revoked.or_else(|| self.secrets_entry(rotated?));
        entry.into_iter().for_each(|entry| self.revocations.append(entry));
    }

    fn secrets_entry(&self, key: KeyId) -> Option<RevocationEntry> {
        self.key(key).map(|record| record.secrets_entry())
    }
}

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
