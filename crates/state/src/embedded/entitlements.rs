//! Parts of a key that come from elsewhere: the digests of its secrets, and the entitlements of its user.

use std::sync::Arc;

use crate::{User, Validity};
use domain::clock::Micros;
use domain::identity::{AuthMethod, Permission, Principal, PrincipalHeaders, UserId};
use domain::key::{KeyDigest, KeyId};

use super::key_terms::KeyTerms;
use super::org_record::OrgRecord;

/// Digests of the secrets that authenticate a key. Older digests lead to the key's record too, so that their use is
/// recognized and refused as expired.
pub(super) struct Secrets {
    pub(super) current: KeyDigest,
    /// All earlier digests.
    pub(super) replaced: Vec<KeyDigest>,
    /// Digest before the last rotation, and the time until which it is valid; none when there was no overlap.
    pub(super) previous: Option<(KeyDigest, Micros)>,
    pub(super) rotated: Option<Micros>,
    /// End of the overlap as the rotation asked for it, for display.
    pub(super) previous_until: Option<Micros>,
}

/// Entitlements of a user, which all keys of the user share.
pub(super) struct UserEntitlements {
    pub(super) user: UserId,
    pub(super) org: Arc<OrgRecord>,
    pub(super) permissions: Box<[Permission]>,
    /// Header values that all keys of the user share.
    headers: PrincipalHeaders,
    pub(super) removed: bool,
    pub(super) suspended: bool,
    pub(super) withdrawn: bool,
}

impl Secrets {
    /// The secrets of a new key.
    pub(super) fn new(current: KeyDigest) -> Self {
        Self { current, replaced: Vec::new(), previous: None, rotated: None, previous_until: None }
    }

    /// Returns true when there ever was another digest than the current one.
    pub(super) fn are_rotated(&self) -> bool {
        self.rotated.is_some() || self.previous.is_some() || self.previous_until.is_some() || !self.replaced.is_empty()
    }

    /// The time until which a secret with this digest is valid; the epoch when it is not.
    pub(super) fn valid_until(&self, digest: &KeyDigest) -> Micros {
        if self.current == *digest {
            return Validity::FOREVER;
        }
        let previous = self.previous.filter(|(previous, _)| previous == digest);
        previous.map_or(Micros(0), |(_, until)| until)
    }

    /// Replaces the current digest, which stays valid until `until`.
    pub(super) fn rotate(&mut self, digest: KeyDigest, at: Micros, until: Micros) {
        let replaced = std::mem::replace(&mut self.current, digest);
        self.replaced.push(replaced);
        // Without an overlap there is no previous digest: a decision may carry a time before the rotation, and must not
        // accept it then either.
        self.previous = (until > at).then_some((replaced, until));
        self.rotated = Some(at);
        self.previous_until = Some(until);
    }
}

impl UserEntitlements {
    pub(super) fn new(user: &User, org: Arc<OrgRecord>) -> Self {
        let permissions = user.permissions_in_force();
        let headers = PrincipalHeaders::new(user.id, org.id, permissions);
        let removed = user.removed.is_some();
        let suspended = user.suspended.is_some();
        let withdrawn = user.withdrawn.is_some();
        Self { user: user.id, org, permissions: permissions.into(), headers, removed, suspended, withdrawn }
    }

    /// The principal of requests with this key of the user, which has these terms; without a key, of requests of the
    /// user's sessions.
    pub(super) fn principal(&self, key: Option<KeyId>, terms: Option<&KeyTerms>) -> Principal {
        let headers = match terms {
            Some(terms) => {
                let permissions = terms.policy.effective_permissions(&self.permissions);
                PrincipalHeaders::new(self.user, self.org.id, &permissions)
            }
            None => self.headers.clone(),
        };
        let method = if key.is_some() { AuthMethod::ApiKey } else { AuthMethod::Session };
        Principal { key_id: key, user_id: self.user, org_id: self.org.id, method, headers }
    }
}
