//! Shared revocation log, which propagates revocations to all gateways: every change that ends the validity of
//! credentials is appended to it before the change is acknowledged. Each gateway reads on from where it was
//! (`revocation_reader`).
//!
//! - The log is one hash in one hash slot: entries by their numbers, and the last number. A change and its entry are
//!   therefore two writes. A gateway that dies between them has not acknowledged the change; the exchanges that it
//!   should have ended are found by the checks that every gateway makes each minute.
//! - An entry begins with a random token, so that entries with the same number in two histories of a server differ.

use std::time::Instant;

use super::commit_error::CommitError;
use super::federation::FederationRules;
use super::orgs::Orgs;
use super::session_index::SessionIndex;
use super::transactions::Transactions;
use crate::redis::identity::{HAS_ORGS, IdentityRecord};
use crate::redis::record_codec::new_version;
use crate::redis::record_names::{hex, token_digest};
use crate::redis::revocations::{KeptRevocations, Revocation, Subject};
use crate::{Change, ChangeError, KeyPatch, OrgPatch, RevocationEntry, RuleChange, UserPatch};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::policy::{Disabled, DisabledBy, Field};
use domain::key::{KeyDigest, KeyId};
use redis_client::CommandError;

/// Entries to keep. A gateway that falls behind by more checks every open exchange instead.
const CAPACITY: u64 = 10_000;

/// Writer of the log, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(super) struct LogWriter<'a>(pub(super) &'a Transactions);

impl LogWriter<'_> {
    /// Appends what a change has revoked, or taken back, which this gateway keeps from now on; and counts the change.
    /// The state had so many `changes` before. Returns the number of replicas that have both.
    pub(super) async fn append(self, change: &Change, locator: Option<&str>, changes: u64) -> Result<u32, CommitError> {
        let entry = self.entry(change, locator).await?;
        if entry.is_none() && !change.as_made().is_counted() {
            return Ok(u32::MAX);
        }
        let (mut transaction, log) = self.0.transaction_on::<CommitError>(self.0.shared.names.revocations());
        transaction.allow_oom();
        IdentityRecord(self.0).count_change(&mut transaction, log);
        if let Change::CreateOrg(_) = change.as_made() {
            transaction.hset_field(log, HAS_ORGS, "1");
        }
        if let Some(entry) = entry {
            let text = format!("{} {entry}", new_version()?);
            keep(text.as_bytes(), &self.0.shared.revocations, clock::now());
            transaction.append_to_log(log, CAPACITY, &text);
        }
        let replicas = self.0.commit(transaction).await?.into_replicas()?;
        self.0.shared.identity.note_changes(changes + 1, Instant::now());
        Ok(replicas)
    }

    /// The entry of a change, as text; none when it has none.
    async fn entry(self, change: &Change, locator: Option<&str>) -> Result<Option<String>, CommitError> {
        let entry = match change.as_made() {
            Change::RevokeKey { key, .. } => RevocationEntry::Key(*key),
            Change::RemoveUser { user, .. } => RevocationEntry::User(*user),
            Change::UpdateUser { patch: UserPatch { suspended: Field::Keep, .. }, .. } => return Ok(None),
            Change::UpdateUser { org, user, .. } => return self.suspension_of_user(*org, *user).await.map(Some),
            Change::UpdateOrg { org, patch: OrgPatch { suspended: Some(_), .. } } => {
                return self.suspension_of_org(*org).await.map(Some);
            }
            Change::UpdateKey { key, patch: KeyPatch { policy: Some(_), .. } } => {
                return self.policy_entry(*key).await.map(Some);
            }
            Change::RotateKey { key, .. } => return self.secrets_entry(*key).await.map(Some),
            Change::EndSession { session } => RevocationEntry::Session(*session),
            Change::EndMembership { session, org } => RevocationEntry::Membership { session: *session, org: *org },
            Change::RevokeToken { token, at } => return Ok(Some(format!("token {token} {}", at.0))),
            Change::FederationRule(RuleChange::Remove { .. }) => {
                return Ok(locator.map(|locator| format!("rule{locator}")));
            }
            _ => return Ok(None),
        };
        Ok(Some(encode(&entry) + locator.unwrap_or_default()))
    }

    /// The locator by which other gateways find the record of an entry: a space and the tag of a user's organization,
    /// the digest of a session, or tag, name and creation of a federation rule. To be called before the change, which
    /// removes a session from the index, and a rule.
    pub(super) async fn locator(self, change: &Change) -> Result<Option<String>, CommitError> {
        Ok(match change.as_made() {
            Change::FederationRule(RuleChange::Remove { org, name }) => {
                let rule = FederationRules(self.0).find(*org, name).await?;
                let tag = Orgs(self.0).find_tag(*org).await?;
                rule.zip(tag).map(|(rule, tag)| format!(" {} {name} {}", tag.as_str(), rule.created.0))
            }
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

    /// The suspension of a user, or its end: another change may have followed that one, here as below.
    async fn suspension_of_user(self, org: OrgId, user: UserId) -> Result<String, CommitError> {
        let tag = Orgs(self.0).require_tag(org).await?;
        let fields = self.0.read_fields(&self.0.shared.names.user(tag, user)).await?;
        let stored = fields.map(|fields| fields.user()).transpose()?.ok_or(ChangeError::NoUser(user))?;
        Ok(match stored.user.suspended {
            Some(at) => format!("user {user} suspended {} {} {}", tag.as_str(), stored.suspensions, at.0),
            None => format!("user {user} resumed"),
        })
    }

    /// The suspension of an organization, or its end.
    async fn suspension_of_org(self, org: OrgId) -> Result<String, CommitError> {
        let tag = Orgs(self.0).require_tag(org).await?;
        let fields = self.0.read_fields(&self.0.shared.names.org(tag)).await?;
        let stored = fields.map(|fields| fields.org()).transpose()?.ok_or(ChangeError::NoOrg(org))?;
        let done = if stored.org.suspended { "suspended" } else { "resumed" };
        Ok(format!("org {org} {done} {} {}", tag.as_str(), stored.suspensions))
    }

    /// The policy of a key.
    async fn policy_entry(self, id: KeyId) -> Result<String, CommitError> {
        let stored = self.0.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        let policy = stored.key.policy.as_deref();
        let disabled = policy.and_then(|policy| policy.disabled);
        let mark = disabled.map(|Disabled { at, by }| format!(" {} {} {}", stored.disablings, at.0, by.as_str()));
        Ok(encode(&RevocationEntry::of_policy(id, policy)) + &mark.unwrap_or_default())
    }

    /// The last rotation of a key.
    async fn secrets_entry(self, id: KeyId) -> Result<String, CommitError> {
        let stored = self.0.read_key(id).await?.ok_or(ChangeError::NoKey(id))?;
        let until = stored.key.previous_until.filter(|until| Some(*until) > stored.key.rotated);
        let previous = stored.previous.ok_or(CommandError::UnexpectedReply)?;
        let previous = (previous, until.unwrap_or(RevocationEntry::ENDED));
        let entry = encode(&RevocationEntry::Secrets { key: id, current: stored.digest, previous });
        Ok(format!("{entry} {} {}", stored.rotations, stored.key.rotated.unwrap_or_default().0))
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

/// Decodes the text of an entry, with its token; none of one that ends no open exchange. A text that is not understood
/// is a gap: whatever it says, it is found by checking every open exchange.
pub(crate) fn decode(text: &[u8]) -> Option<RevocationEntry> {
    match words(text)[..] {
        ["user", _, "resumed"] | ["org", _, "resumed", ..] | ["token" | "rule", ..] => None,
        ref words => Some(decode_words(words).unwrap_or(RevocationEntry::Gap)),
    }
}

/// The words of an entry, without its token.
fn words(text: &[u8]) -> Vec<&str> {
    std::str::from_utf8(text).unwrap_or_default().split(' ').skip(1).collect()
}

fn decode_words(words: &[&str]) -> Option<RevocationEntry> {
    Some(match words {
        ["key", key] => RevocationEntry::Key(key.parse().ok()?),
        ["policy", key, disabled, expires, ..] => RevocationEntry::Policy {
            key: key.parse().ok()?,
            disabled: disabled.parse::<u8>().ok()? != 0,
            expires: Micros(expires.parse().ok()?),
        },
        ["user", user, ..] => RevocationEntry::User(user.parse().ok()?),
        ["org", org, ..] => RevocationEntry::Org(org.parse().ok()?),
        ["session", session, ..] => RevocationEntry::Session(session.parse().ok()?),
        ["membership", session, org, ..] => {
            RevocationEntry::Membership { session: session.parse().ok()?, org: org.parse().ok()? }
        }
        ["secrets", key, current, previous, until, ..] => {
            let digest = |hex: &str| KeyDigest::from_hex(hex).ok();
            let previous = (digest(previous)?, Micros(until.parse().ok()?));
            RevocationEntry::Secrets { key: key.parse().ok()?, current: digest(current)?, previous }
        }
        _ => return None,
    })
}

/// Keeps what an entry withdraws, made at about this time, or what it takes back no longer.
pub(crate) fn keep(text: &[u8], kept: &KeptRevocations, now: Micros) {
    let words = words(text);
    if let Some(subject) = decode_released(&words) {
        kept.release(subject);
    }
    // The new secret of a rotation has to be found as well.
    decode_digest(&words).into_iter().chain(decode_kept(&words, now)).for_each(|revocation| kept.add(revocation));
}

/// The subject of what an entry takes back.
fn decode_released(words: &[&str]) -> Option<Subject> {
    Some(match words {
        ["policy", key, "0", _] => Subject::Disabled(key.parse().ok()?),
        ["user", user, "resumed"] => Subject::SuspendedUser(user.parse().ok()?),
        ["org", _, "resumed", tag, _] => Subject::SuspendedOrg(tag.parse().ok()?),
        _ => return None,
    })
}

/// The digest of the new secret of a rotation.
fn decode_digest(words: &[&str]) -> Option<Revocation> {
    let ["secrets", key, digest, _, _, _, at] = words else { return None };
    let digest = KeyDigest::from_hex(digest).ok()?;
    Some(Revocation::Digest { digest, key: key.parse().ok()?, at: time(at)? })
}

/// A revocation to keep; none of an entry that is no withdrawal.
fn decode_kept(words: &[&str], now: Micros) -> Option<Revocation> {
    Some(match *words {
        ["key", key] => Revocation::Key { key: key.parse().ok()?, at: now },
        ["user", user, tag] if tag != "resumed" => {
            Revocation::User { tag: tag.parse().ok()?, user: user.parse().ok()?, email: None, at: now }
        }
        ["session", _, digest] => Revocation::Session(token_digest(digest)?),
        ["membership", _, org, digest] => Revocation::Membership(token_digest(digest)?, org.parse().ok()?),
        ["token", token, at] => Revocation::Token { token: token.parse().ok()?, at: time(at)? },
        ["rule", tag, name, created] => {
            Revocation::Rule { tag: tag.parse().ok()?, name: name.to_owned(), created: time(created)? }
        }
        ["policy", key, "1", _, number, at, by] => {
            let disabled = Disabled { at: time(at)?, by: DisabledBy::from_name(by)? };
            Revocation::Disabled { key: key.parse().ok()?, number: number.parse().ok()?, disabled }
        }
        ["user", user, "suspended", tag, number, at] => Revocation::SuspendedUser {
            tag: tag.parse().ok()?,
            user: user.parse().ok()?,
            number: number.parse().ok()?,
            at: time(at)?,
        },
        ["org", _, "suspended", tag, number] => {
            Revocation::SuspendedOrg { tag: tag.parse().ok()?, number: number.parse().ok()? }
        }
        ["secrets", key, current, previous, until, number, at] => {
            let at = time(at)?;
            let digests = [KeyDigest::from_hex(current).ok()?, KeyDigest::from_hex(previous).ok()?];
            let times = [at, time(until)?.max(at)];
            Revocation::Rotation { key: key.parse().ok()?, number: number.parse().ok()?, digests, times }
        }
        _ => return None,
    })
}

fn time(micros: &str) -> Option<Micros> {
    micros.parse().ok().map(Micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::record_names::RecordNames;
    use domain::identity::SessionId;
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
            assert_eq!(decode(text.as_bytes()), Some(entry), "{text}");
        }
    }

    #[test]
    fn final_refusals_are_decoded_with_all_that_finds_their_records() {
        let user = UserId::generate();
        let digest = "ab".repeat(32);
        let decode_final = |text: &str| decode_kept(&words(text.as_bytes()), Micros(7));
        let user = decode_final(&format!("aaaaaaaa user {user} abc"));
        assert!(matches!(user, Some(Revocation::User { at: Micros(7), .. })), "{user:?}");
        let session = format!("aaaaaaaa session {} {digest}", SessionId::generate());
        assert!(matches!(decode_final(&session), Some(Revocation::Session(_))));
        assert_eq!(decode(session.as_bytes()), decode(&session.as_bytes()[..session.len() - 65]));
        let membership = format!("aaaaaaaa membership {} {} {digest}", SessionId::generate(), OrgId::generate());
        assert!(matches!(decode_final(&membership), Some(Revocation::Membership(..))));
    }

    #[test]
    fn what_is_taken_back_is_kept_no_longer_and_ends_no_exchange() {
        let tag = OrgTag::generate().unwrap();
        let key = KeyId::generate(tag).unwrap();
        let (user, org) = (UserId::generate(), OrgId::generate());
        let policy = |disabled, mark| format!("policy {} {disabled} 9{mark}", key.as_str());
        for (withdrawn, taken_back, entry) in [
            (policy(1, " 1 7 leak"), policy(0, ""), Some(RevocationEntry::of_policy(key, None))),
            (format!("user {user} suspended {tag} 1 7"), format!("user {user} resumed"), None),
            (format!("org {org} suspended {tag} 1"), format!("org {org} resumed {tag} 1"), None),
        ] {
            let kept = KeptRevocations::new(RecordNames::new("p"));
            let count = |kept: &KeptRevocations| kept.unconfirmed("a", |_| true).len();
            let [withdrawn, taken_back] = [withdrawn, taken_back].map(|text| format!("aaaaaaaa {text}"));
            keep(withdrawn.as_bytes(), &kept, Micros(7));
            assert!(count(&kept) == 1 && decode(withdrawn.as_bytes()) != Some(RevocationEntry::Gap), "{withdrawn}");
            keep(taken_back.as_bytes(), &kept, Micros(7));
            assert_eq!(count(&kept), 0, "{taken_back}");
            let decoded = decode(taken_back.as_bytes());
            assert!(entry.is_some() == decoded.is_some() && decoded != Some(RevocationEntry::Gap), "{taken_back}");
        }
    }

    #[test]
    fn unknown_entry_is_a_gap() {
        for text in
            ["", "aaaaaaaa", "aaaaaaaa key", "aaaaaaaa key x", "aaaaaaaa tenant 7", "aaaaaaaa key abcDEF123 more"]
        {
            assert_eq!(decode(text.as_bytes()), Some(RevocationEntry::Gap), "{text}");
        }
    }
}
