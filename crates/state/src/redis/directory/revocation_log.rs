//! Shared revocation log, which propagates revocations to all gateways: every change that ends the validity of
//! credentials is appended to it before the change is acknowledged. Each gateway reads on from where it was
//! (`revocation_reader`).
//!
//! - The log is one hash in one hash slot: entries by their numbers, and the last number. A change and its entry are
//!   therefore two writes. A gateway that dies between them has not acknowledged the change; the exchanges that it
//!   should have ended are found by the checks that every gateway makes each minute.
//! - An entry begins with a random token, so that entries with the same number in two histories of a server differ.

use super::commit_error::CommitError;
use super::orgs::Orgs;
use super::session_index::SessionIndex;
use super::transactions::Transactions;
use crate::redis::identity::IdentityRecord;
use crate::redis::record_codec::new_version;
use crate::redis::record_names::{hex, token_digest};
use crate::redis::revocations::Revocation;
use crate::{Change, ChangeError, KeyPatch, OrgPatch, RevocationEntry, UserPatch};
use domain::clock::Micros;
use domain::key::policy::Field;
use domain::key::{KeyDigest, KeyId};
use redis_client::CommandError;

/// Entries to keep. A gateway that falls behind by more checks every open exchange instead.
const CAPACITY: u64 = 10_000;

/// Writer of the log, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(super) struct LogWriter<'a>(pub(super) &'a Transactions);

impl LogWriter<'_> {
    /// Appends what a change has revoked, and counts the change. Returns the number of replicas that have both.
    pub(super) async fn append(self, change: &Change, locator: Option<String>) -> Result<u32, CommitError> {
        let entry = self.entry_of(change).await?;
        if entry.is_none() && !change.as_made().is_counted() {
            return Ok(u32::MAX);
        }
        let (mut transaction, log) = self.0.transaction_on::<CommitError>(self.0.shared.names.revocations());
        transaction.allow_oom();
        IdentityRecord(self.0).count_change(&mut transaction, log);
        if let Some(entry) = entry {
            let text = format!("{} {}{}", new_version()?, encode(&entry), locator.unwrap_or_default());
            transaction.append_to_log(log, CAPACITY, &text);
        }
        self.0.commit(transaction).await?.into_replicas()
    }

    /// The entry of a change; none when it revokes nothing.
    async fn entry_of(self, change: &Change) -> Result<Option<RevocationEntry>, CommitError> {
        Ok(Some(match change.as_made() {
            Change::RevokeKey { key, .. } => RevocationEntry::Key(*key),
            Change::RemoveUser { user, .. } => RevocationEntry::User(*user),
            // Without a locator: a suspension can be lifted, and is no revocation to keep.
            Change::UpdateUser { user, patch: UserPatch { suspended: Field::Set(_), .. }, .. } => {
                RevocationEntry::User(*user)
            }
            Change::UpdateOrg { org, patch: OrgPatch { suspended: Some(true), .. } } => RevocationEntry::Org(*org),
            Change::UpdateKey { key, patch: KeyPatch { policy: Some(_), .. } } => self.policy_entry(*key).await?,
            Change::EndSession { session } => RevocationEntry::Session(*session),
            Change::EndMembership { session, org } => RevocationEntry::Membership { session: *session, org: *org },
            Change::RotateKey { key, .. } => self.secrets_entry(*key).await?,
            _ => return Ok(None),
        }))
    }

    /// The locator by which other gateways find the record of an entry: a space and the tag of a user's organization,
    /// or the digest of a session. To be called before the change, which removes a session from the index.
    pub(super) async fn locator(self, change: &Change) -> Result<Option<String>, CommitError> {
        Ok(match change.as_made() {
            Change::RemoveUser { org, .. } => {
                Orgs(self.0).find_tag(*org).await?.map(|tag| format!(" {}", tag.as_str()))
            }
            Change::EndSession { session } | Change::EndMembership { session, .. } => {
                let digest = SessionIndex(self.0).find_digest(*session).await?;
                digest.map(|digest| format!(" {}", hex(digest.as_bytes())))
            }
            _ => None,
        })
    }

    /// The policy of a key: another change may have followed that one.
    async fn policy_entry(self, id: KeyId) -> Result<RevocationEntry, CommitError> {
        let stored = self.0.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        Ok(RevocationEntry::of_policy(id, stored.key.policy.as_deref()))
    }

    /// The last rotation of a key: another one may have followed that of the change.
    async fn secrets_entry(self, id: KeyId) -> Result<RevocationEntry, CommitError> {
        let stored = self.0.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        let until = stored.key.previous_until.filter(|until| Some(*until) > stored.key.rotated);
        let previous = stored.previous.ok_or(CommandError::UnexpectedReply)?;
        let previous = (previous, until.unwrap_or(RevocationEntry::ENDED));
        Ok(RevocationEntry::Secrets { key: id, current: stored.digest, previous })
    }
}

/// An entry as text: its kind, then what it names.
fn encode(entry: &RevocationEntry) -> String {
    match entry {
        RevocationEntry::Key(key) => format!("key {}", key.as_str()),
        RevocationEntry::Policy { key, disabled, expires } => {
            format!("policy {} {} {}", key.as_str(), u8::from(*disabled), expires.0)
        }
        RevocationEntry::User(user) => format!("user {user}"),
        RevocationEntry::Org(org) => format!("org {org}"),
        RevocationEntry::Session(session) => format!("session {session}"),
        RevocationEntry::Membership { session, org } => format!("membership {session} {org}"),
        RevocationEntry::Secrets { key, current, previous: (previous, until) } => {
            let [current, previous] = [current, previous].map(|digest| hex(digest.as_bytes()));
            format!("secrets {} {current} {previous} {}", key.as_str(), until.0)
        }
        RevocationEntry::Gap => "gap".to_owned(),
    }
}

/// Decodes the text of an entry, with its token. A text that is not understood is a gap: whatever it says, it is found
/// by checking every open exchange.
pub(crate) fn decode(text: &[u8]) -> RevocationEntry {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let words: Vec<&str> = text.split(' ').skip(1).collect();
    decode_words(&words).unwrap_or(RevocationEntry::Gap)
}

fn decode_words(words: &[&str]) -> Option<RevocationEntry> {
    Some(match words {
        ["key", key] => RevocationEntry::Key(key.parse().ok()?),
        ["policy", key, disabled, expires] => RevocationEntry::Policy {
            key: key.parse().ok()?,
            disabled: disabled.parse::<u8>().ok()? != 0,
            expires: Micros(expires.parse().ok()?),
        },
        ["user", user, ..] => RevocationEntry::User(user.parse().ok()?),
        ["org", org] => RevocationEntry::Org(org.parse().ok()?),
        ["session", session, ..] => RevocationEntry::Session(session.parse().ok()?),
        ["membership", session, org, ..] => {
            RevocationEntry::Membership { session: session.parse().ok()?, org: org.parse().ok()? }
        }
        ["secrets", key, current, previous, until] => {
            let digest = |hex: &str| KeyDigest::from_hex(hex).ok();
            let previous = (digest(previous)?, Micros(until.parse().ok()?));
            RevocationEntry::Secrets { key: key.parse().ok()?, current: digest(current)?, previous }
        }
        _ => return None,
    })
}

/// Decodes the text of an entry as a revocation to keep; none for entries that are no final refusals. It was made at
/// about this time.
pub(crate) fn decode_final(text: &[u8], now: Micros) -> Option<Revocation> {
    let words: Vec<&str> = std::str::from_utf8(text).ok()?.split(' ').skip(1).collect();
    Some(match *words {
        ["key", key] => Revocation::Key { key: key.parse().ok()?, at: now },
        ["user", user, tag] => {
            Revocation::User { tag: tag.parse().ok()?, user: user.parse().ok()?, email: None, at: now }
        }
        ["session", _, digest] => Revocation::Session(token_digest(digest)?),
        ["membership", _, org, digest] => Revocation::Membership(token_digest(digest)?, org.parse().ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::identity::{OrgId, SessionId, UserId};
    use domain::key::OrgTag;

    #[test]
    fn entries_are_decoded_as_they_were_encoded() {
        let key = KeyId::generate(OrgTag::generate().unwrap()).unwrap();
        let [current, previous] = [&b"1"[..], b"2"].map(KeyDigest::of);
        for entry in [
            RevocationEntry::Key(key),
            RevocationEntry::Policy { key, disabled: true, expires: Micros(7) },
            RevocationEntry::User(UserId::generate()),
            RevocationEntry::Org(OrgId::generate()),
            RevocationEntry::Session(SessionId::generate()),
            RevocationEntry::Membership { session: SessionId::generate(), org: OrgId::generate() },
            RevocationEntry::Secrets { key, current, previous: (previous, Micros(7)) },
        ] {
            let text = format!("aaaaaaaa {}", encode(&entry));
            assert_eq!(decode(text.as_bytes()), entry, "{text}");
        }
    }

    #[test]
    fn final_refusals_are_decoded_with_all_that_finds_their_records() {
        let user = UserId::generate();
        let digest = "ab".repeat(32);
        let user = decode_final(format!("aaaaaaaa user {user} abc").as_bytes(), Micros(7));
        assert!(matches!(user, Some(Revocation::User { at: Micros(7), .. })), "{user:?}");
        let session = format!("aaaaaaaa session {} {digest}", SessionId::generate());
        assert!(matches!(decode_final(session.as_bytes(), Micros(7)), Some(Revocation::Session(_))));
        assert_eq!(decode(session.as_bytes()), decode(&session.as_bytes()[..session.len() - 65]));
        let membership = format!("aaaaaaaa membership {} {} {digest}", SessionId::generate(), OrgId::generate());
        assert!(matches!(decode_final(membership.as_bytes(), Micros(7)), Some(Revocation::Membership(..))));
        let org = format!("aaaaaaaa org {}", OrgId::generate());
        let suspended = format!("aaaaaaaa user {}", UserId::generate());
        for suspension in [org, suspended] {
            assert!(decode_final(suspension.as_bytes(), Micros(7)).is_none(), "a suspension can be lifted");
        }
    }

    #[test]
    fn unknown_entry_is_a_gap() {
        for text in
            ["", "aaaaaaaa", "aaaaaaaa key", "aaaaaaaa key x", "aaaaaaaa tenant 7", "aaaaaaaa key abcDEF123 more"]
        {
            assert_eq!(decode(text.as_bytes()), RevocationEntry::Gap, "{text}");
        }
    }
}
