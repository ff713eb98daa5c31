//! Lines of a file: records as JSON, and back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::{BucketLine, PolicyLine, QuotaLine, check_name, hex, hex_all, parse_actors, parse_all};
use super::invalid_record::InvalidRecord;
use super::user_line::UserLine;
use super::{Counts, Summary};
use crate::{ActorName, FederationRule, Key, KeyEvent, KeyExport, Org, SpentExport, StateRecord};
use crate::{is_session_quota_digest, session_quota_digest};
use domain::budget::{MAX_UNITS, OwnBudget};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::policy::KeyPolicy;
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::ManagementToken;
use domain::names;
use domain::plan_name::PlanName;
use domain::quota::Quota;

/// Time by which the clock of another machine may be ahead: a later start would keep a budget from beginning anew.
const MAX_AHEAD: Duration = Duration::from_secs(24 * 3600);
/// Former digests of a key in its own line; more of them follow in lines of their own.
const DIGESTS_PER_LINE: usize = 1000;

/// A line after the first.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Org(OrgLine),
    User(UserLine),
    Key(Box<KeyLine>),
    Digests(DigestsLine),
    Rule(Box<FederationRule>),
    Token(Box<ManagementToken>),
    Spent(SpentExport),
    End(Summary),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrgLine {
    id: OrgId,
    tag: OrgTag,
    name: String,
    #[serde(with = "clock::rfc3339")]
    created: Micros,
    suspended: bool,
    concurrent: Option<u32>,
    /// Left out when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<PlanName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<OwnBudget>,
    /// Left out when it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<PolicyLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyLine {
    id: KeyId,
    org: OrgId,
    user: UserId,
    name: String,
    imported: bool,
    session_quota_key: bool,
    #[serde(with = "clock::rfc3339")]
    created: Micros,
    /// This and the other actors are left out when they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_by: Option<ActorName>,
    #[serde(with = "clock::rfc3339::option")]
    rotated: Option<Micros>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rotated_by: Option<ActorName>,
    #[serde(with = "clock::rfc3339::option")]
    previous_until: Option<Micros>,
    #[serde(with = "clock::rfc3339::option")]
    revoked: Option<Micros>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked_by: Option<ActorName>,
    quota: Option<QuotaLine>,
    /// Left out when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<PlanName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<OwnBudget>,
    /// Left out when it narrows nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<Box<KeyPolicy>>,
    #[serde(with = "clock::rfc3339::option")]
    last_used: Option<Micros>,
    uses: u64,
    sha256: String,
    previous: Option<String>,
    replaced: Vec<String>,
    bucket: BucketLine,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DigestsLine {
    key: KeyId,
    replaced: Vec<String>,
}

/// Parses a record from its line, and validates it.
///
/// # Errors
/// [`InvalidRecord`].
pub fn parse_record(line: &[u8]) -> Result<StateRecord, InvalidRecord> {
    serde_json::from_slice::<Line>(line)?.into_record()
}

/// The lines of a record, without their ends.
pub(super) fn lines(record: &StateRecord) -> Vec<Line> {
    match record {
        StateRecord::Org(org) => vec![Line::Org(org.into())],
        StateRecord::User(user) => vec![Line::User((&**user).into())],
        StateRecord::Key(key) => {
            let (own, others) = key.replaced.split_at(key.replaced.len().min(DIGESTS_PER_LINE));
            let line = Line::Key(Box::new(key_line(key, own)));
            [line].into_iter().chain(digest_lines(key.key.id, others)).collect()
        }
        StateRecord::Digests(key, digests) => digest_lines(*key, digests).collect(),
        StateRecord::Rule(rule) => vec![Line::Rule(rule.clone())],
        StateRecord::Token(token) => vec![Line::Token(token.clone())],
        StateRecord::Spent(spent) => vec![Line::Spent(*spent)],
    }
}

/// The fields of a record's first line, by their names.
pub(crate) fn fields(record: &StateRecord) -> Map<String, Value> {
    let line = lines(record).swap_remove(0);
    let line = serde_json::to_value(line).expect("records are structs of texts and numbers");
    let Value::Object(line) = line else { unreachable!("a line is an object of its kind") };
    match line.into_iter().next() {
        Some((_, Value::Object(fields))) => fields,
        _ => unreachable!("a record is an object"),
    }
}

fn digest_lines(key: KeyId, digests: &[KeyDigest]) -> impl Iterator<Item = Line> {
    digests.chunks(DIGESTS_PER_LINE).map(move |part| Line::Digests(DigestsLine { key, replaced: hex_all(part) }))
}

impl Line {
    pub(super) fn into_record(self) -> Result<StateRecord, InvalidRecord> {
        Ok(match self {
            Self::Org(org) => StateRecord::Org(org.into_org()?),
            Self::User(user) => StateRecord::User(Box::new(user.into_export()?)),
            Self::Key(key) => StateRecord::Key(Box::new(key.into_export()?)),
            Self::Digests(digests) => digests.into_record()?,
            Self::Rule(rule) => rule.validate().map(|()| StateRecord::Rule(rule))?,
            Self::Token(token) => check_token(&token).map(|()| StateRecord::Token(token))?,
            Self::Spent(spent) => check_spent(&spent).map(|()| StateRecord::Spent(spent))?,
            Self::End(_) => return Err(InvalidRecord::End),
        })
    }
}

/// Counts a record.
pub(super) fn count(counts: &mut Counts, record: &StateRecord) {
    match record {
        StateRecord::Org(_) => counts.orgs += 1,
        StateRecord::User(_) => counts.users += 1,
        StateRecord::Key(key) => {
            counts.keys += 1;
            counts.digests += key.digests().count() as u64;
        }
        StateRecord::Digests(_, digests) => counts.digests += digests.len() as u64,
        StateRecord::Rule(_) => counts.rules += 1,
        StateRecord::Token(_) => counts.tokens += 1,
        StateRecord::Spent(_) => counts.spent += 1,
    }
}

impl From<&Org> for OrgLine {
    fn from(org: &Org) -> Self {
        let Org { id, tag, name, created, suspended, concurrent, plan, budget, policy } = org.clone();
        let policy = (!policy.is_empty()).then(|| PolicyLine::from(policy));
        Self { id, tag, name, created, suspended, concurrent, plan, budget, policy }
    }
}

impl OrgLine {
    fn into_org(self) -> Result<Org, InvalidRecord> {
        let Self { id, tag, name, created, suspended, concurrent, plan, budget, policy } = self;
        check_name(&name, names::validate_org_name(&name))?;
        if let Some(concurrent) = concurrent.filter(|concurrent| !Org::CONCURRENT.contains(concurrent)) {
            return Err(InvalidRecord::Concurrent(concurrent));
        }
        let policy = policy.map(PolicyLine::into_policy).transpose()?.unwrap_or_default();
        Ok(Org { id, tag, name, created, suspended, concurrent, plan, budget, policy })
    }
}

impl DigestsLine {
    /// No key has had the digest of web sessions: a session quota key is never rotated.
    fn into_record(self) -> Result<StateRecord, InvalidRecord> {
        let replaced = parse_all(&self.replaced)?;
        if replaced.iter().any(is_session_quota_digest) {
            return Err(InvalidRecord::SessionQuotaDigest);
        }
        Ok(StateRecord::Digests(self.key, replaced))
    }
}

fn key_line(export: &KeyExport, replaced: &[KeyDigest]) -> KeyLine {
    let KeyExport { key, digest, previous, bucket, quota, .. } = export;
    let Key { id, org, user, name, imported, session_quota_key, created, rotated, previous_until, .. } = key.clone();
    let own = key.quota.map(|Quota { requests, per, burst, .. }| QuotaLine { requests, per_s: per.as_secs(), burst });
    KeyLine {
        id,
        org,
        user,
        name,
        imported,
        session_quota_key,
        created,
        rotated,
        previous_until,
        revoked: key.revoked,
        quota: own,
        plan: key.plan.clone(),
        budget: key.budget,
        policy: key.policy.clone(),
        last_used: key.last_used,
        uses: key.uses,
        sha256: hex(digest),
        previous: previous.as_ref().map(hex),
        replaced: hex_all(replaced),
        // A strict quota by what it lets in, as the arithmetic of buckets sees it.
        bucket: BucketLine {
            level: bucket.level,
            at: bucket.at,
            requests: quota.inflow(),
            per_us: quota.per_micros(),
            burst: quota.burst,
        },
        created_by: export.actor(KeyEvent::Created).cloned(),
        rotated_by: export.actor(KeyEvent::Rotated).cloned(),
        revoked_by: export.actor(KeyEvent::Revoked).cloned(),
    }
}

impl KeyLine {
    fn into_export(self) -> Result<KeyExport, InvalidRecord> {
        check_name(&self.name, names::validate_name(&self.name))?;
        let (bucket, quota) = self.bucket.parse()?;
        let digest = KeyDigest::from_hex(&self.sha256)?;
        let previous = self.previous.as_deref().map(KeyDigest::from_hex).transpose()?;
        let replaced = parse_all(&self.replaced)?;
        let own = self.quota.map(|QuotaLine { requests, per_s, burst }| {
            Quota { requests, per: Duration::from_secs(per_s), burst, strict: false }.validate()
        });
        let of_sessions = [&digest].into_iter().chain(&previous).chain(&replaced).any(is_session_quota_digest);
        let expected = self.session_quota_key && digest == session_quota_digest(self.user);
        if of_sessions != expected || self.session_quota_key != expected {
            return Err(InvalidRecord::SessionQuotaDigest);
        }
        let mut all: Vec<&[u8; 32]> =
            [&digest].into_iter().chain(&previous).chain(&replaced).map(KeyDigest::as_bytes).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        if all.len() < count {
            return Err(InvalidRecord::DigestTwice);
        }
        let policy = self.policy.map(|policy| *policy).unwrap_or_default();
        policy.validate()?;
        let policy = policy.boxed();
        let key = Key {
            id: self.id,
            org: self.org,
            user: self.user,
            name: self.name,
            imported: self.imported,
            session_quota_key: self.session_quota_key,
            created: self.created,
            rotated: self.rotated,
            previous_until: self.previous_until,
            revoked: self.revoked,
            quota: own.transpose()?,
            plan: self.plan,
            budget: self.budget,
            policy,
            last_used: self.last_used,
            uses: self.uses,
        };
        let by = [self.created_by, self.rotated_by, self.revoked_by];
        let actors = parse_actors(&key, by)?;
        Ok(KeyExport { key, digest, previous, replaced, bucket, quota, actors })
    }
}

/// Checks a token, as its creation does.
fn check_token(token: &ManagementToken) -> Result<(), InvalidRecord> {
    check_name(&token.name, names::validate_name(&token.name))?;
    token.validate()?;
    if token.admin.is_some() && token.org.is_none() {
        return Err(InvalidRecord::AdminWithoutOrg);
    }
    let creator = ActorName::new(token.created_by.as_str());
    if creator.is_valid() { Ok(()) } else { Err(InvalidRecord::Creator(token.created_by.clone())) }
}

fn check_spent(spent: &SpentExport) -> Result<(), InvalidRecord> {
    let SpentExport { start, units, .. } = *spent;
    let is_valid = start <= clock::now().after(MAX_AHEAD) && start.0.is_multiple_of(1_000_000) && units <= MAX_UNITS;
    if is_valid { Ok(()) } else { Err(InvalidRecord::Spent) }
}
