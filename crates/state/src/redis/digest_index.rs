//! The index of key digests: which key has, or had, a digest.

use redis::{FromRedisValue as _, cmd};

use super::record_names::RecordNames;
use domain::key::{KeyDigest, KeyId};
use redis_client::{CommandError, RedisClient, hash_slot};

/// The key that has, or had, a digest, or has claimed it; its record may not exist.
pub(super) async fn find_key(
    client: &RedisClient,
    names: &RecordNames,
    digest: &KeyDigest,
) -> Result<Option<KeyId>, CommandError> {
    let name = names.digest(digest);
    let mut query = cmd("HGET");
    query.arg(&name).arg("key");
    let id = client.send(hash_slot(&name), &query).await?;
    let id = Option::<String>::from_redis_value(id).map_err(|_| CommandError::UnexpectedReply)?;
    id.map(|id| id.parse().map_err(|_| CommandError::UnexpectedReply)).transpose()
}
