//! The index of key digests: which key has, or had, a digest.

use redis::cmd;

use super::directory::parse_id;
use super::record_names::RecordNames;
use domain::key::{KeyDigest, KeyId};
use redis_client::{CommandError, RedisClient};

/// The key that has, or had, a digest, or has claimed it; its record may not exist.
pub(super) async fn find_key(
    client: &RedisClient,
    names: &RecordNames,
    digest: &KeyDigest,
) -> Result<Option<KeyId>, CommandError> {
    let id: Option<String> = client.query(cmd("HGET").arg(names.digest(digest)).arg("key")).await?;
    id.map(parse_id).transpose()
}
