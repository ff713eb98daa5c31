//! Decodes records from Redis: hashes of texts, with one packed field `live` for the part that scripts change.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

use redis::{FromRedisValue as _, Value};

use crate::bucket::Bucket;
use crate::redis::packed::{unpack, unpack_signed, unsigned};
use crate::spending::Spending;
use crate::{Key, KeyActors, KeyExport, Org, OrgPolicy, Session, User};
use domain::clock::Micros;
use domain::identity::{OrgId, Permission, Voucher};
use domain::key::KeyDigest;
use domain::key::policy::KeyPolicy;
use domain::quota::Quota;
use redis_client::CommandError;

/// Version of a record: 8 random characters, replaced on every change of anything but the live part. Being random, a
/// version never comes back with another content, not even when data was lost and written again.
pub(crate) type Version = [u8; 8];

/// Stands for the version of a user's record that does not exist.
pub(crate) const NO_RECORD: Version = [0; 8];

/// Beginning of the name of the field of a session's record that says that a membership was ended; the organization's
/// id follows. A field of its own, and not less in `record`: so an end can be written again without knowing the rest.
const ENDED_MEMBERSHIP: &str = "ended:";

/// Name of the field that says that the membership of a session in an organization was ended.
pub(crate) fn ended_membership(org: OrgId) -> String {
    format!("{ENDED_MEMBERSHIP}{org}")
}

/// Fields of a hash.
pub(crate) struct Fields(HashMap<String, Vec<u8>>);

/// Record of an organization.
pub(crate) struct StoredOrg {
    pub(crate) org: Org,
    pub(crate) version: Version,
    /// Number of its suspensions.
    pub(crate) suspensions: u64,
}

/// Record of a user.
pub(crate) struct StoredUser {
    pub(crate) user: User,
    pub(crate) version: Version,
    /// Number of its suspensions.
    pub(crate) suspensions: u64,
}

/// The records that a decision is made from, as of one moment.
pub struct StoredRecords {
    pub(crate) key: StoredKey,
    pub(crate) org: StoredOrg,
    /// The key's user; none when Redis has no record of it.
    pub(crate) user: Option<StoredUser>,
}

/// Record of a key.
pub(crate) struct StoredKey {
    pub(crate) key: Key,
    pub(crate) digest: KeyDigest,
    /// The digest before the last rotation, if that had an overlap.
    pub(crate) previous: Option<KeyDigest>,
    pub(crate) live: Live,
    /// Number of times that it was disabled.
    pub(crate) disablings: u64,
    /// Number of its rotations.
    pub(crate) rotations: u64,
    /// Spending of the key, where it is the subject of a budget.
    pub(crate) spent: Spending,
}

impl StoredKey {
    /// The whole key but for its actors, which are not in its record; `replaced` are the digests that its last two
    /// replaced.
    pub(crate) fn export(self, replaced: Vec<KeyDigest>) -> KeyExport {
        let Self { key, digest, previous, live, .. } = self;
        let Live { bucket, quota, .. } = live;
        KeyExport { key, digest, previous, replaced, bucket, quota, actors: KeyActors::default() }
    }
}

/// Live part of a key: the part that decisions change.
pub(crate) struct Live {
    pub(crate) version: Version,
    pub(crate) bucket: Bucket,
    /// The quota that the bucket is measured in, as the scripts compute with it: a strict one by its inflow.
    pub(crate) quota: Quota,
}

/// Decodes the field `spent` of the subject of a budget.
pub(crate) fn decode_spending(packed: Option<&[u8]>) -> Result<Spending, CommandError> {
    let Some(packed) = packed else { return Ok(Spending::default()) };
    let [start, units] = unpack(packed).ok_or(CommandError::UnexpectedReply)?;
    Ok(Spending { start: Micros(start), reserved: units, ..Spending::default() })
}

impl Fields {
    /// Decodes the reply to `HGETALL`; `None` when there is no such hash.
    pub(crate) fn decode(reply: Value) -> Result<Option<Self>, CommandError> {
        let fields = HashMap::<String, Vec<u8>>::from_redis_value(reply).map_err(|_| CommandError::UnexpectedReply)?;
        Ok((!fields.is_empty()).then_some(Self(fields)))
    }

    fn optional<T: FromStr>(&self, name: &str) -> Result<Option<T>, CommandError> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let text = std::str::from_utf8(value).map_err(|_| CommandError::UnexpectedReply)?;
        text.parse().map(Some).map_err(|_| CommandError::UnexpectedReply)
    }

    fn required<T: FromStr>(&self, name: &str) -> Result<T, CommandError> {
        self.optional(name)?.ok_or(CommandError::UnexpectedReply)
    }

    fn time(&self, name: &str) -> Result<Option<Micros>, CommandError> {
        Ok(self.optional(name)?.map(Micros))
    }

    /// A number that counts; 0 without the field.
    fn number(&self, name: &str) -> Result<u64, CommandError> {
        Ok(self.optional(name)?.unwrap_or(0))
    }

    fn flag(&self, name: &str) -> Result<bool, CommandError> {
        Ok(self.required::<u8>(name)? != 0)
    }

    fn digest(&self, name: &str) -> Result<Option<KeyDigest>, CommandError> {
        let hex: Option<String> = self.optional(name)?;
        hex.map(|hex| KeyDigest::from_hex(&hex).map_err(|_| CommandError::UnexpectedReply)).transpose()
    }

    fn permissions(&self) -> Result<Vec<Permission>, CommandError> {
        let joined: String = self.required("permissions")?;
        let each = joined.split(',').filter(|permission| !permission.is_empty());
        each.map(|permission| permission.parse().map_err(|_| CommandError::UnexpectedReply)).collect()
    }

    fn live(&self) -> Result<&[u8], CommandError> {
        self.0.get("live").map(Vec::as_slice).ok_or(CommandError::UnexpectedReply)
    }

    pub(crate) fn org(&self) -> Result<StoredOrg, CommandError> {
        let org = Org {
            id: self.required("id")?,
            tag: self.required("tag")?,
            name: self.required("name")?,
            created: Micros(self.required("created")?),
            suspended: self.flag("suspended")?,
            concurrent: self.optional("concurrent")?,
            plan: self.optional("plan")?,
            budget: self.optional("budget")?,
            // The reply to a decision has none: decisions do not depend on it.
            policy: self.org_policy()?,
        };
        let version = *self.live()?.first_chunk().ok_or(CommandError::UnexpectedReply)?;
        Ok(StoredOrg { org, version, suspensions: self.number("suspensions")? })
    }

    fn org_policy(&self) -> Result<OrgPolicy, CommandError> {
        let json: Option<String> = self.optional("policy")?;
        OrgPolicy::from_record(json.as_deref()).map_err(|_| CommandError::UnexpectedReply)
    }

    pub(crate) fn user(&self) -> Result<StoredUser, CommandError> {
        let user = User {
            id: self.required("id")?,
            org: self.required("org")?,
            email: self.required("email")?,
            permissions: self.permissions()?,
            created: Micros(self.required("created")?),
            removed: self.time("removed")?,
            vouched_by: self.voucher()?,
            withdrawn: self.time("withdrawn")?,
            suspended: self.time("suspended")?,
            suspended_by_operator: self.0.contains_key("suspended_by"),
            responsible: self.optional("responsible")?,
            plan: self.optional("plan")?,
            budget: self.optional("budget")?,
        };
        let version = self.0.get("version").and_then(|version| version.first_chunk().copied());
        let version = version.ok_or(CommandError::UnexpectedReply)?;
        Ok(StoredUser { user, version, suspensions: self.number("suspensions")? })
    }

    fn voucher(&self) -> Result<Option<Voucher>, CommandError> {
        let Some(provider) = self.optional("provider")? else { return Ok(None) };
        Ok(Some(Voucher { provider, person: self.required("person")? }))
    }

    pub(crate) fn key(&self) -> Result<StoredKey, CommandError> {
        let (live, last_used, uses) = decode_live(self.live()?, self.metered()?)?;
        let key = Key {
            id: self.required("id")?,
            org: self.required("org")?,
            user: self.required("user")?,
            name: self.required("name")?,
            imported: self.flag("imported")?,
            session_quota_key: self.flag("session_quota_key")?,
            created: Micros(self.required("created")?),
            rotated: self.time("rotated")?,
            previous_until: self.time("previous_until")?,
            revoked: self.time("revoked")?,
            quota: self.quota()?,
            plan: self.optional("plan")?,
            budget: self.optional("budget")?,
            policy: self.key_policy()?,
            last_used,
            uses,
        };
        Ok(StoredKey {
            key,
            digest: self.digest("digest")?.ok_or(CommandError::UnexpectedReply)?,
            previous: self.digest("previous")?,
            live,
            disablings: self.number("disablings")?,
            rotations: self.number("rotations")?,
            spent: decode_spending(self.0.get("spent").map(Vec::as_slice))?,
        })
    }

    pub(crate) fn session(&self) -> Result<Session, CommandError> {
        let record = self.0.get("record").ok_or(CommandError::UnexpectedReply)?;
        let session: Session = serde_json::from_slice(record).map_err(|_| CommandError::UnexpectedReply)?;
        let chosen = self.required("chosen")?;
        let mut session = Session { chosen, seen: Micros(self.required("seen")?), ..session };
        for ended in self.0.keys().filter_map(|name| name.strip_prefix(ENDED_MEMBERSHIP)) {
            session.end_membership(ended.parse().map_err(|_| CommandError::UnexpectedReply)?);
        }
        Ok(session)
    }

    fn metered(&self) -> Result<Quota, CommandError> {
        let packed = self.0.get("metered").ok_or(CommandError::UnexpectedReply)?;
        let [inflow, per, capacity] = unpack::<3>(packed).ok_or(CommandError::UnexpectedReply)?;
        let number = |number: u64| u32::try_from(number).map_err(|_| CommandError::UnexpectedReply);
        let requests = number(inflow)?;
        let burst = number(capacity / per.max(1))?;
        Ok(Quota { requests, per: Duration::from_micros(per), burst, strict: false })
    }

    /// A policy that cannot be read in full is an error, so that no key is wider than its policy.
    fn key_policy(&self) -> Result<Option<Box<KeyPolicy>>, CommandError> {
        let Some(text) = self.0.get("policy") else { return Ok(None) };
        let policy: KeyPolicy = serde_json::from_slice(text).map_err(|_| CommandError::UnexpectedReply)?;
        Ok(policy.boxed())
    }

    fn quota(&self) -> Result<Option<Quota>, CommandError> {
        let Some(requests) = self.optional("requests")? else { return Ok(None) };
        let per = Duration::from_secs(self.required("per")?);
        let burst = self.required("burst")?;
        let quota = Quota { requests, per, burst, strict: false };
        quota.validate().map(Some).map_err(|_| CommandError::UnexpectedReply)
    }
}

/// Decodes the live part of a key: bucket and version, time of the last use, number of uses.
fn decode_live(packed: &[u8], quota: Quota) -> Result<(Live, Option<Micros>, u64), CommandError> {
    let (version, numbers) = packed.split_first_chunk().ok_or(CommandError::UnexpectedReply)?;
    let [level, rest @ ..] = unpack_signed::<5>(numbers).ok_or(CommandError::UnexpectedReply)?;
    let [at, _per, uses, used] = rest.map(unsigned);
    let live = Live { version: *version, bucket: Bucket { level, at: Micros(at) }, quota };
    Ok((live, Some(Micros(used)).filter(|used| used.0 > 0), uses))
}

/// A version that no record had before: 47 random bits as 8 letters and digits.
///
/// # Errors
/// The operating system provides no randomness.
pub(crate) fn new_version() -> Result<String, getrandom::Error> {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut random = getrandom::u64()?;
    let mut letter = || {
        let letter = LETTERS[usize::try_from(random % 62).unwrap_or_default()];
        random /= 62;
        char::from(letter)
    };
    Ok((0..8).map(|_| letter()).collect())
}
