//! Index of organizations by the looks of their names: no organization is created whose name looks like that of another one.
//!
//! - Organizations that an earlier version created, or whose looks are another with a newer version of Unicode, are added once,
//!   by the first gateway that creates an organization. Those that look the same already stay; one of them is in the index.

use redis::{FromRedisValue as _, cmd};

use super::records::Directory;
use crate::redis::record_names::orgs_slot;
use domain::names::{LOOK_VERSION, look};
use redis_client::CommandError;

/// Looks that one command adds.
const LOOKS_PER_COMMAND: usize = 500;

impl Directory {
    /// Adds the organizations that have no looks of this version yet. May be done by several gateways at the same time.
    pub(super) async fn update_look_index(&self) -> Result<(), CommandError> {
        let (looks, done) = (self.shared.names.looks(), self.shared.names.looks_indexed());
        let mut query = cmd("GET");
        query.arg(&done);
        let version = self.client.send(orgs_slot(), &query).await?;
        let version = Option::<String>::from_redis_value(version).map_err(|_| CommandError::UnexpectedReply)?;
        if version.as_deref() == Some(LOOK_VERSION) {
            return Ok(());
        }
        for part in self.list_orgs().await?.chunks(LOOKS_PER_COMMAND) {
            let mut write = cmd("HSET");
            write.arg(&looks);
            for org in part {
                write.arg(look(&org.name)).arg(org.id.to_string());
            }
            self.client.send(orgs_slot(), &write).await?;
        }
        let mut mark = cmd("SET");
        mark.arg(&done).arg(LOOK_VERSION);
        self.client.send(orgs_slot(), &mark).await.map(drop)
    }
}
