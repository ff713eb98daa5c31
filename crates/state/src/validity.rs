//! Validity of the credential that a request was admitted with, for as long as its exchange is open.

use super::{RevocationEntry, Session, session_quota_digest};
use domain::clock::Micros;
use domain::identity::{Principal, SessionId};
use domain::key::KeyDigest;

/// Credential of an admitted request, and the time until which it is valid.
///
/// - A revocation is applied as an entry of the revocation log ([`Validity::apply`]). Applying an entry twice has the
///   effect of applying it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub(crate) credential: CredentialId,
    /// Time from which the credential is no longer valid, as known now. Later uses of a session put it off.
    pub(crate) until: Micros,
}

/// Identity of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CredentialId {
    /// SHA-256 of the presented secret; for a session, the digest of its user's session quota key.
    pub(crate) digest: KeyDigest,
    /// The session that was presented; none for a key.
    pub(crate) session: Option<SessionId>,
}

/// Reason why a credential is no longer valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokedBy {
    /// The key was revoked.
    Key,
    /// The time of the secret is over: that of the overlap of a rotation that replaced it, or that of its key.
    Secret,
    /// The user was removed, or suspended.
    User,
    /// The organization was suspended.
    Org,
    /// The session was ended, or has expired.
    Session,
}

/// Effect of an entry of the revocation log on a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryEffect {
    /// The credential is valid as before, or until another time.
    StillValid,
    /// It is no longer valid.
    Revoked(RevokedBy),
    /// The entry does not say: the credential has to be checked against the directory.
    Unclear,
}

/// Result of checking a credential against the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialStatus {
    /// It is valid, until this time as known now.
    Valid(Micros),
    /// It is no longer valid.
    Revoked(RevokedBy),
}

impl Validity {
    /// End of a validity without an end.
    pub const FOREVER: Micros = RevocationEntry::FOREVER;

    /// Validity of a secret of a key, or of a session quota key.
    pub fn new(digest: KeyDigest, until: Micros) -> Self {
        Self { credential: CredentialId { digest, session: None }, until }
    }

    /// Validity of a session, until the session ends.
    #[must_use]
    pub fn of_session(self, session: SessionId, until: Micros) -> Self {
        let credential = CredentialId { session: Some(session), ..self.credential };
        Self { credential, until: self.until.min(until) }
    }

    /// Time from which the credential is no longer valid, as known now.
    pub fn until(&self) -> Micros {
        self.until
    }

    /// Puts off the end of the validity, or brings it forward.
    pub fn set_until(&mut self, until: Micros) {
        self.until = until;
    }

    /// Returns whether the end may be put off by uses that this gateway does not see: then the directory has to be
    /// asked whether it has come.
    pub fn may_be_extended(&self) -> bool {
        self.credential.session.is_some()
    }

    /// Returns whether the session that was presented still has the membership that the request acted by.
    pub(crate) fn is_of_member(&self, session: &Session) -> bool {
        session.memberships.iter().any(|membership| session_quota_digest(membership.user) == self.credential.digest)
    }

    /// Identity of the credential.
    pub fn credential(&self) -> CredentialId {
        self.credential
    }

    /// Reason that stands for the end of the validity by time.
    pub fn expiry_reason(&self) -> RevokedBy {
        if self.credential.session.is_some() { RevokedBy::Session } else { RevokedBy::Secret }
    }

    /// Applies an entry of the revocation log to the credential of this principal. A rotation with an overlap sets the
    /// end of the secret that it replaced.
    pub fn apply(&mut self, principal: &Principal, entry: &RevocationEntry) -> EntryEffect {
        let (reason, is_concerned) = match entry {
            RevocationEntry::Key(key) => (RevokedBy::Key, principal.key_id == Some(*key)),
            RevocationEntry::User(user) => (RevokedBy::User, principal.user_id == *user),
            RevocationEntry::Org(org) => (RevokedBy::Org, principal.org_id == *org),
            RevocationEntry::Session(session) => (RevokedBy::Session, self.credential.session == Some(*session)),
            RevocationEntry::Membership { session, org } => {
                (RevokedBy::Session, self.credential.session == Some(*session) && principal.org_id == *org)
            }
            RevocationEntry::Policy { key, .. } if principal.key_id != Some(*key) => return EntryEffect::StillValid,
            RevocationEntry::Policy { disabled: true, .. } => (RevokedBy::Key, true),
            RevocationEntry::Policy { expires, .. } => return self.apply_expiry(*expires),
            RevocationEntry::Secrets { key, .. } if principal.key_id != Some(*key) => return EntryEffect::StillValid,
            RevocationEntry::Secrets { current, previous, .. } => return self.apply_rotation(current, *previous),
            // A gap says nothing about a single credential: all are checked.
            RevocationEntry::Gap => return EntryEffect::StillValid,
        };
        if is_concerned { EntryEffect::Revoked(reason) } else { EntryEffect::StillValid }
    }

    /// Applies another expiry of the key. Where it is a later one, the secret itself may end before it.
    fn apply_expiry(&mut self, expires: Micros) -> EntryEffect {
        let is_put_off = self.until < expires && self.until != Self::FOREVER;
        self.until = self.until.min(expires);
        if is_put_off { EntryEffect::Unclear } else { EntryEffect::StillValid }
    }

    /// Applies a rotation of the key from one secret to another.
    fn apply_rotation(&mut self, current: &KeyDigest, (previous, until): (KeyDigest, Micros)) -> EntryEffect {
        let digest = self.credential.digest;
        if *current == digest {
            EntryEffect::StillValid
        } else if previous == digest && until != RevocationEntry::ENDED {
            self.until = until;
            EntryEffect::StillValid
        } else if previous == digest || self.until != Self::FOREVER {
            // This rotation has ended it; or an earlier one has replaced it, and set its end.
            EntryEffect::Revoked(RevokedBy::Secret)
        } else {
            // Older than this rotation, or that of a later one, with which the request came before this entry was read.
            EntryEffect::Unclear
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::identity::{AuthMethod, OrgId, PrincipalHeaders, UserId};
    use domain::key::{KeyId, OrgTag};

    fn principal(key_id: Option<KeyId>) -> Principal {
        let user_id = UserId::generate();
        let org_id = OrgId::generate();
        let headers = PrincipalHeaders::new(user_id, org_id, &[]);
        Principal { key_id, user_id, org_id, method: AuthMethod::ApiKey, headers }
    }

    fn apply(mut validity: Validity, principal: &Principal, entry: &RevocationEntry) -> Option<RevokedBy> {
        match validity.apply(principal, entry) {
            EntryEffect::Revoked(reason) => Some(reason),
            EntryEffect::StillValid => None,
            EntryEffect::Unclear => panic!("unclear: {entry:?}"),
        }
    }

    fn key() -> KeyId {
        KeyId::generate(OrgTag::generate().unwrap()).unwrap()
    }

    #[test]
    fn entry_revokes_the_credentials_that_it_names_and_no_others() {
        let id = key();
        let session = SessionId::generate();
        let by_key = principal(Some(id));
        let by_session = principal(None);
        let of_key = Validity::new(KeyDigest::of(b"secret"), Validity::FOREVER);
        let of_session = Validity::new(KeyDigest::of(b"user"), Validity::FOREVER).of_session(session, Micros(7));
        assert_eq!(
            (of_session.until(), of_session.may_be_extended(), of_key.may_be_extended()),
            (Micros(7), true, false)
        );
        let cases = [
            (RevocationEntry::Key(id), Some(RevokedBy::Key), None),
            (RevocationEntry::Key(key()), None, None),
            (RevocationEntry::User(by_key.user_id), Some(RevokedBy::User), None),
            (RevocationEntry::User(by_session.user_id), None, Some(RevokedBy::User)),
            (RevocationEntry::Org(by_session.org_id), None, Some(RevokedBy::Org)),
            (RevocationEntry::Session(session), None, Some(RevokedBy::Session)),
            (RevocationEntry::Session(SessionId::generate()), None, None),
            (RevocationEntry::Membership { session, org: by_session.org_id }, None, Some(RevokedBy::Session)),
            (RevocationEntry::Membership { session, org: OrgId::generate() }, None, None),
            (RevocationEntry::Membership { session: SessionId::generate(), org: by_session.org_id }, None, None),
            (RevocationEntry::Gap, None, None),
        ];
        for (entry, key_end, session_end) in cases {
            assert_eq!(apply(of_key, &by_key, &entry), key_end, "{entry:?}");
            assert_eq!(apply(of_session, &by_session, &entry), session_end, "{entry:?}");
        }
    }

    #[test]
    fn rotation_ends_replaced_secrets_and_bounds_the_previous_one() {
        const FOREVER: Micros = Validity::FOREVER;
        let id = key();
        let [old, previous, current] = [&b"1"[..], b"2", b"3"].map(KeyDigest::of);
        let principal = principal(Some(id));
        let entry = |until| RevocationEntry::Secrets { key: id, current, previous: (previous, until) };
        let apply = |digest, until, entry: &RevocationEntry| {
            let mut validity = Validity::new(digest, until);
            let first = validity.apply(&principal, entry);
            assert_eq!(validity.apply(&principal, entry), first, "the second time changes nothing");
            (first, validity.until)
        };
        let revoked = EntryEffect::Revoked(RevokedBy::Secret);
        let valid = EntryEffect::StillValid;
        let with_overlap = entry(Micros(9));
        assert_eq!(apply(current, FOREVER, &with_overlap), (valid, FOREVER));
        assert_eq!(apply(previous, FOREVER, &with_overlap), (valid, Micros(9)));
        assert_eq!(apply(old, Micros(20), &with_overlap).0, revoked, "an earlier rotation set its end");
        assert_eq!(apply(previous, FOREVER, &entry(RevocationEntry::ENDED)).0, revoked);
        let of_another_key = RevocationEntry::Secrets { key: key(), current, previous: (previous, Micros(9)) };
        assert_eq!(apply(old, FOREVER, &of_another_key), (valid, FOREVER));
    }

    #[test]
    fn policy_ends_a_disabled_key_and_moves_its_expiry() {
        const FOREVER: Micros = Validity::FOREVER;
        let id = key();
        let policy = |disabled, expires| RevocationEntry::Policy { key: id, disabled, expires };
        let apply = |until, entry: &RevocationEntry, key| {
            let mut validity = Validity::new(KeyDigest::of(b"secret"), until);
            (validity.apply(&principal(Some(key)), entry), validity.until)
        };
        let (valid, unclear) = (EntryEffect::StillValid, EntryEffect::Unclear);
        assert_eq!(apply(FOREVER, &policy(true, FOREVER), id).0, EntryEffect::Revoked(RevokedBy::Key));
        assert_eq!(apply(FOREVER, &policy(true, FOREVER), key()), (valid, FOREVER), "another key");
        assert_eq!(apply(FOREVER, &policy(false, FOREVER), id), (valid, FOREVER));
        assert_eq!(apply(FOREVER, &policy(false, Micros(9)), id), (valid, Micros(9)));
        assert_eq!(apply(Micros(20), &policy(false, Micros(9)), id), (valid, Micros(9)));
        assert_eq!(apply(Micros(9), &policy(false, Micros(20)), id), (unclear, Micros(9)), "the secret may end at 9");
        assert_eq!(apply(Micros(9), &policy(false, FOREVER), id), (unclear, Micros(9)));
    }

    /// Of two rotations in a row, the first entry may be read when requests with the newest secret are open.
    #[test]
    fn rotation_does_not_end_the_secret_of_a_later_one() {
        let id = key();
        let [first, second, third] = [&b"1"[..], b"2", b"3"].map(KeyDigest::of);
        let mut newest = Validity::new(third, Validity::FOREVER);
        for (current, previous) in [(second, first), (third, second)] {
            let entry = RevocationEntry::Secrets { key: id, current, previous: (previous, RevocationEntry::ENDED) };
            let effect = newest.apply(&principal(Some(id)), &entry);
            let expected = if current == third { EntryEffect::StillValid } else { EntryEffect::Unclear };
            assert_eq!((effect, newest.until), (expected, Validity::FOREVER));
        }
    }
}
