//! What a key has from elsewhere: the secrets it is recognized by, and what its user passes on to it.

use std::sync::Arc;

use crate::clock::Micros;
use crate::identity::{AuthMethod, Permission, Principal, PrincipalHeaders, UserId};
use crate::key::{KeyDigest, KeyId};

use super::permit::OrgRecord;

/// What a key is recognized by. Digests that are neither still lead to the record, so that their use is known.
pub(super) struct Secrets {
    pub(super) current: KeyDigest,
    /// The digest before the last rotation and until when it is valid; none when the overlap was empty.
    pub(super) previous: Option<(KeyDigest, Micros)>,
    pub(super) rotated: Option<Micros>,
    /// As the rotation had it, for display.
    pub(super) previous_until: Option<Micros>,
}

/// What a user passes on to its keys.
#[derive(Clone)]
pub(super) struct Grant {
    pub(super) permissions: Arc<[Permission]>,
    /// The header values that the user's keys share.
    headers: PrincipalHeaders,
    pub(super) removed: bool,
}

impl Secrets {
    /// A key's first secret.
    pub(super) fn first(current: KeyDigest) -> Self {
        Self { current, previous: None, rotated: None, previous_until: None }
    }

    /// Whether a key with this digest is valid at this time.
    pub(super) fn accept(&self, digest: &KeyDigest, now: Micros) -> bool {
        self.current == *digest || self.previous.is_some_and(|(previous, until)| previous == *digest && now < until)
    }

    /// Replaces the current digest, keeping it valid until `until`. An overlap that is over when it begins is none,
    /// whatever time a decision comes with.
    pub(super) fn rotate(&mut self, digest: KeyDigest, at: Micros, until: Micros) {
        let replaced = std::mem::replace(&mut self.current, digest);
        self.previous = (until > at).then_some((replaced, until));
        self.rotated = Some(at);
        self.previous_until = Some(until);
    }
}

impl Grant {
    pub(super) fn new(user: UserId, org: &OrgRecord, permissions: &[Permission], removed: bool) -> Self {
        Self {
            permissions: permissions.into(),
            headers: PrincipalHeaders::new(user, org.id, None, permissions),
            removed,
        }
    }

    /// Who a request with this key of the user acts as; without a key, a request of one of the user's sessions.
    pub(super) fn principal(&self, key: Option<KeyId>, user: UserId, org: &OrgRecord) -> Arc<Principal> {
        let value = |key: KeyId| http::HeaderValue::from_str(key.as_str()).expect("a key id is letters and digits");
        let headers = PrincipalHeaders { key_id: key.map(value), ..self.headers.clone() };
        let method = if key.is_some() { AuthMethod::ApiKey } else { AuthMethod::Session };
        Arc::new(Principal { key_id: key, user_id: user, org_id: org.id, method, headers })
    }
}
