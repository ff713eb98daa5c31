//! Version of the layout of all records in Redis. One version is read: a gateway refuses to start on records of another
//! one.
//!
//! The version is written with every organization, in the transaction that lists it. So a Redis without organizations
//! has any version, and one whose organizations are listed and whose version is missing was written by a build before
//! the first release. A gateway that finds no server at its start serves without the check: records of another layout
//! are errors then, one by one.

use std::time::Duration;

use redis::cmd;
use tokio::time::timeout;

use super::record_names::RecordNames;
use redis_client::{CommandError, RedisClient};

/// The version that is written, and the only one that is read.
pub(super) const VERSION: &str = "1";
/// Field of the record that has it.
pub(super) const FIELD: &str = "version";

/// Time to wait for the version.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Records of another version.
#[derive(Debug, thiserror::Error)]
#[error(
    "the records under this prefix have {found} of their layout, and this keygate reads version {VERSION}; export them \
     with the keygate that wrote them (`keygate state export`), and import that file here under another \
     `state.redis.prefix`"
)]
pub struct OtherVersion {
    found: String,
}

/// Refuses records of another version. While the server does not answer, nothing is known.
pub(super) async fn check_at_start(client: &RedisClient, prefix: &str) -> Result<(), OtherVersion> {
    match timeout(TIMEOUT, check(client, &RecordNames::new(prefix))).await {
        Ok(Ok(checked)) => checked,
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

async fn check(client: &RedisClient, names: &RecordNames) -> Result<Result<(), OtherVersion>, CommandError> {
    // The list first: a gateway writes the version before it.
    if !client.query::<bool>(cmd("EXISTS").arg(names.orgs())).await? {
        return Ok(Ok(()));
    }
    let version: Option<String> = client.query(cmd("HGET").arg(names.format()).arg(FIELD)).await?;
    let found = match version {
        Some(version) if version == VERSION => return Ok(Ok(())),
        Some(other) => format!("version {other}"),
        None => "no version".to_owned(),
    };
    Ok(Err(OtherVersion { found }))
}
