//! Views of a key record beside decisions: for management, revocations, exports and hand-overs.

use super::key_record::KeyRecord;
use super::key_slots::Permit;
use super::key_state::Usage;
use crate::{Key, KeyActors, KeyExport, RevocationEntry};
use domain::clock::Micros;
use domain::key::KeyDigest;

impl KeyRecord {
    /// The rotation that was just made, as an entry of the revocation log.
    pub(super) fn secrets_entry(&self) -> RevocationEntry {
        let state = self.state();
        let Some(secrets) = &state.secrets else { unreachable!("the key was rotated just now") };
        let replaced = secrets.replaced.last().map(|replaced| (*replaced, RevocationEntry::ENDED));
        let Some(previous) = secrets.previous.or(replaced) else { unreachable!("a rotation replaces a secret") };
        RevocationEntry::Secrets { key: self.id(), current: secrets.current, previous }
    }

    /// The policy in force, as an entry of the revocation log.
    pub(super) fn policy_entry(&self) -> RevocationEntry {
        RevocationEntry::of_policy(self.id(), self.state().policy().as_deref())
    }

    /// The record as management sees it.
    pub(super) fn view(&self) -> Key {
        let state = self.state();
        let secrets = state.secrets.as_deref();
        Key {
            id: self.id(),
            org: state.entitlements.org.id,
            user: state.entitlements.user,
            name: self.name.as_ref().to_owned(),
            imported: self.imported,
            session_quota_key: self.session_quota_key,
            created: self.position.created,
            rotated: secrets.and_then(|secrets| secrets.rotated),
            previous_until: secrets.and_then(|secrets| secrets.previous_until),
            revoked: state.revoked.get(),
            quota: state.own_quota(),
            policy: state.policy(),
            last_used: state.last_used.get(),
            uses: state.uses,
        }
    }

    /// All digests that the key has or had.
    pub(super) fn digests(&self) -> Vec<KeyDigest> {
        match self.state().secrets.as_deref() {
            Some(secrets) => secrets.replaced.iter().copied().chain([secrets.current]).collect(),
            None => vec![self.digest],
        }
    }

    /// The whole key but for its actors, which the file alone has.
    pub(super) fn export(&self) -> KeyExport {
        let key = self.view();
        let digests = self.digests();
        let state = self.state();
        let (digest, previous) = state
            .secrets
            .as_deref()
            .map_or((self.digest, None), |secrets| (secrets.current, secrets.previous.map(|(previous, _)| previous)));
        let replaced = digests.into_iter().filter(|other| *other != digest && Some(*other) != previous).collect();
        let bucket = state.bucket;
        let quota = state.quota();
        KeyExport { key, digest, previous, replaced, bucket, quota, actors: KeyActors::default() }
    }

    /// Holds the slots of a request that the predecessor still serves, also beyond their limits.
    pub(super) fn hold_slots(&self) -> Permit {
        let state = self.state();
        Permit::hold(state.terms.as_deref(), &state.entitlements.org)
    }

    /// The usage of this moment, merged with that of an export: more uses, a later last use, and an emptier bucket.
    pub(super) fn merged_usage(&self, export: &KeyExport, now: Micros) -> Usage {
        self.state().merged_usage(export, now)
    }
}
