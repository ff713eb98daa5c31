//! One server process, reached over whichever link is connected to it, outside of the link's deadline and breaker.
//!
//! For background work that has to reach this very server, and has to know in which replication history it ran.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::clock;
use redis::{FromRedisValue as _, RedisError, Value, cmd};
use tokio::time::timeout;

use super::command_error::CommandError;
use super::connection::all_replies;
use super::hash_slots::{SlotRange, parse_slots};
use super::live_links::LiveLink;
use super::resp::PackedCommand;
use super::server_info::{Replication, ServerInfo, Unsuitable};
use super::settings::Address;
use super::shared::ClientShared;

/// Time-out of a round trip. Nothing waits for it but the background work itself, and a server that has just come back
/// may be slow: as long as its reply is useful.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A server process.
pub struct Server {
    run_id: Arc<str>,
    shared: Arc<ClientShared>,
    /// Failed round trips: each is followed by one over another link, if there is another.
    failures: AtomicUsize,
}

/// A server as it described itself.
pub struct ServerStatus {
    pub replication: Replication,
    /// Hash slots that it serves; `None` for all of them, without a Cluster.
    owned: Option<Vec<SlotRange>>,
}

impl ServerStatus {
    /// Returns whether commands for a hash slot may be sent to this server.
    pub fn serves(&self, slot: u16) -> bool {
        let serves = |range: &SlotRange| (range.first..=range.last).contains(&slot);
        self.owned.as_ref().is_none_or(|owned| owned.iter().any(serves))
    }

    /// Returns whether keys of different hash slots can be in one command.
    pub fn is_single(&self) -> bool {
        self.owned.is_none()
    }
}

impl Server {
    /// The server with this run id, as far as the links of the process reach it.
    pub fn new(run_id: Arc<str>, shared: Arc<ClientShared>) -> Self {
        Self { run_id, shared, failures: AtomicUsize::new(0) }
    }

    /// Asks the server for its replication history, and on a Cluster for its hash slots.
    ///
    /// # Errors
    /// [`CommandError`] when it does not answer, or no link leads there any more.
    pub async fn status(&self) -> Result<ServerStatus, CommandError> {
        let links = self.shared.live_links().links_to(&self.run_id);
        let mut commands = vec![info()];
        if self.shared.is_cluster() {
            commands.push(cmd("CLUSTER").arg("SLOTS").clone().into());
        }
        let mut replies = self.send(&links, &commands).await?.into_iter();
        let replication = parse_info(replies.next())?;
        let Some(slots) = replies.next() else { return Ok(ServerStatus { replication, owned: None }) };
        let slots = slots.extract_error().map_err(CommandError::Refused)?;
        // All addresses by which this process reaches the server: commands go by the one in the slot map.
        let addresses: HashSet<&Address> = links.iter().map(|link| &link.address).collect();
        let asked = links.first().map(|link| &link.address).ok_or(CommandError::Unreachable)?;
        let mut owned = parse_slots(&slots, asked).ok_or(CommandError::UnexpectedReply)?;
        owned.retain(|range| addresses.contains(&range.primary));
        Ok(ServerStatus { replication, owned: Some(owned) })
    }

    /// Asks the server for its eviction policy, which may be changed while it runs, and for its clock. The inner result
    /// says whether the policy is suitable; beside it are the microseconds by which the server's clock is ahead of that
    /// of this process.
    ///
    /// # Errors
    /// [`CommandError`] when it does not answer, or no link leads there any more.
    pub(crate) async fn check_settings(&self) -> Result<(Result<(), Unsuitable>, i64), CommandError> {
        let links = self.shared.live_links().links_to(&self.run_id);
        let info = cmd("INFO").arg("server").arg("memory").clone().into();
        let asked = clock::now();
        let info = read_info(self.send(&links, &[info]).await?.into_iter().next())?;
        let between = asked.0.midpoint(clock::now().0);
        let ahead = info.clock().map_or(0, |theirs| theirs.cast_signed().saturating_sub(between.cast_signed()));
        Ok((info.check_eviction(), ahead))
    }

    /// Runs commands in one round trip, and returns the reply of each with the state of replication afterwards. The
    /// history was the same from before the first command until after the last one.
    ///
    /// # Errors
    /// [`CommandError`] when replies are missing, or the history has changed: some commands may have run.
    pub async fn run_all(
        &self,
        commands: impl IntoIterator<Item = impl Into<PackedCommand>>,
    ) -> Result<(Vec<Result<Value, RedisError>>, Replication), CommandError> {
        let commands = commands.into_iter().map(Into::into);
        let commands: Vec<PackedCommand> = std::iter::once(info()).chain(commands).chain([info()]).collect();
        let links = self.shared.live_links().links_to(&self.run_id);
        let mut replies = self.send(&links, &commands).await?.into_iter();
        let before = parse_info(replies.next())?;
        let after = parse_info(replies.next_back())?;
        if before.history != after.history {
            return Err(CommandError::UnexpectedReply);
        }
        Ok((replies.map(Value::extract_error).collect(), after))
    }

    async fn send(&self, links: &[LiveLink], commands: &[PackedCommand]) -> Result<Vec<Value>, CommandError> {
        let preferred = links.iter().filter(|link| !link.may_block).count();
        let candidates = if preferred > 0 { &links[..preferred] } else { links };
        let failures = self.failures.load(Ordering::Relaxed);
        let link = candidates.get(failures % candidates.len().max(1)).ok_or(CommandError::Unreachable)?;
        let replies = timeout(TIMEOUT, all_replies(link.connection.send_all(commands))).await;
        let replies = replies.map_err(|_| CommandError::Lost(None));
        let replies = replies.and_then(|replies| replies.map_err(|error| CommandError::Lost(Some(error))));
        if replies.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        replies
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.shared.live_links().links_to(&self.run_id).first() {
            Some(link) => link.address.fmt(f),
            None => f.write_str(&self.run_id),
        }
    }
}

fn info() -> PackedCommand {
    let mut info = cmd("INFO");
    info.arg("server").arg("replication").arg("persistence");
    info.into()
}

fn parse_info(reply: Option<Value>) -> Result<Replication, CommandError> {
    Ok(read_info(reply)?.replication())
}

fn read_info(reply: Option<Value>) -> Result<ServerInfo, CommandError> {
    let reply = reply.ok_or(CommandError::UnexpectedReply)?.extract_error().map_err(CommandError::Refused)?;
    Ok(ServerInfo::parse(&String::from_redis_value(reply)?))
}
