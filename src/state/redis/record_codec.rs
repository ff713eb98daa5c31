//! The records as Redis has them: hashes of texts, and their live parts, packed.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

use redis::{FromRedisValue as _, Value};

use super::client::CommandError;
use crate::clock::Micros;
use crate::identity::Permission;
use crate::key::KeyDigest;
use crate::quota::Quota;
use crate::state::bucket::Bucket;
use crate::state::{Key, Org, Session, User};

/// Which version of a record: 8 characters at random, new with every change of anything but the live part. Being
/// random, a version never comes back with another content, also not when the data was lost and made again.
pub(super) type Version = [u8; 8];

/// The fields of a hash.
pub(super) struct Fields(HashMap<String, Vec<u8>>);

/// An organization's record.
pub(super) struct StoredOrg {
    pub(super) org: Org,
    pub(super) version: Version,
}

/// A key's record.
pub(super) struct StoredKey {
    pub(super) key: Key,
    pub(super) digest: KeyDigest,
    /// The digest before the last rotation, when there was an overlap.
    pub(super) previous: Option<KeyDigest>,
    /// What its user may do.
    pub(super) permissions: Vec<Permission>,
    /// Its user was removed.
    pub(super) user_removed: bool,
    pub(super) live: Live,
}

/// A key's live part: what decisions change.
pub(super) struct Live {
    pub(super) version: Version,
    pub(super) bucket: Bucket,
    /// The `per` that the bucket's level is measured in, in microseconds.
    pub(super) per_us: u64,
}

impl Fields {
    /// From the answer to `HGETALL`; none when there is no such hash.
    pub(super) fn read(answer: Value) -> Result<Option<Self>, CommandError> {
        let fields = HashMap::<String, Vec<u8>>::from_redis_value(answer).map_err(|_| CommandError::UnexpectedReply)?;
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

    pub(super) fn org(&self) -> Result<StoredOrg, CommandError> {
        let org = Org {
            id: self.required("id")?,
            tag: self.required("tag")?,
            name: self.required("name")?,
            created: Micros(self.required("created")?),
            suspended: self.flag("suspended")?,
            concurrent: self.optional("concurrent")?,
        };
        Ok(StoredOrg { org, version: *self.live()?.first_chunk().ok_or(CommandError::UnexpectedReply)? })
    }

    pub(super) fn user(&self) -> Result<User, CommandError> {
        Ok(User {
            id: self.required("id")?,
            org: self.required("org")?,
            email: self.required("email")?,
            permissions: self.permissions()?,
            created: Micros(self.required("created")?),
            removed: self.time("removed")?,
        })
    }

    pub(super) fn key(&self) -> Result<StoredKey, CommandError> {
        let (live, last_used, uses) = live(self.live()?)?;
        let key = Key {
            id: self.required("id")?,
            org: self.required("org")?,
            user: self.required("user")?,
            name: self.required("name")?,
            imported: self.flag("imported")?,
            session_quota_key: self.optional::<u8>("seat")?.unwrap_or_default() != 0,
            created: Micros(self.required("created")?),
            rotated: self.time("rotated")?,
            previous_until: self.time("previous_until")?,
            revoked: self.time("revoked")?,
            quota: self.quota()?,
            last_used,
            uses,
        };
        Ok(StoredKey {
            key,
            digest: self.digest("digest")?.ok_or(CommandError::UnexpectedReply)?,
            previous: self.digest("previous")?,
            permissions: self.permissions()?,
            user_removed: self.time("removed")?.is_some(),
            live,
        })
    }

    pub(super) fn session(&self) -> Result<Session, CommandError> {
        let record = self.0.get("record").ok_or(CommandError::UnexpectedReply)?;
        let session: Session = serde_json::from_slice(record).map_err(|_| CommandError::UnexpectedReply)?;
        Ok(Session { chosen: self.required("chosen")?, seen: Micros(self.required("seen")?), ..session })
    }

    fn quota(&self) -> Result<Option<Quota>, CommandError> {
        let Some(requests) = self.optional("requests")? else { return Ok(None) };
        let quota = Quota { requests, per: Duration::from_secs(self.required("per")?), burst: self.required("burst")? };
        quota.checked().map(Some).map_err(|_| CommandError::UnexpectedReply)
    }
}

/// A key's live part, when it was last used, and how often.
fn live(packed: &[u8]) -> Result<(Live, Option<Micros>, u64), CommandError> {
    let (version, numbers) = packed.split_first_chunk().ok_or(CommandError::UnexpectedReply)?;
    let [level, at, per_us, uses, used] = unpack(numbers).ok_or(CommandError::UnexpectedReply)?;
    let live = Live { version: *version, bucket: Bucket { level, at: Micros(at) }, per_us };
    Ok((live, Some(Micros(used)).filter(|used| used.0 > 0), uses))
}

/// Integers that were packed as little-endian doubles, which are exact below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the scripts give integers from 0 to 2^53")]
pub(super) fn unpack<const N: usize>(packed: &[u8]) -> Option<[u64; N]> {
    let (chunks, rest) = packed.as_chunks::<8>();
    let chunks: &[[u8; 8]; N] = chunks.try_into().ok()?;
    rest.is_empty().then(|| chunks.map(|chunk| f64::from_le_bytes(chunk) as u64))
}

/// Appends an integer as a little-endian double.
#[allow(clippy::cast_precision_loss, reason = "exact below 2^53, and what is beyond is as good as forever")]
pub(super) fn pack(packed: &mut Vec<u8>, number: u64) {
    packed.extend_from_slice(&(number as f64).to_le_bytes());
}
