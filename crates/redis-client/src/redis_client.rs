//! The client: sends commands and scripts to the server that has their hash slot.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::{Arg, Cmd, FromRedisValue, Value};
use tokio::time::sleep;

use super::command_error::{CommandError, Redirect};
use super::dial::ConnectError;
use super::fault::Fault;
use super::hash_slots::hash_slot;
use super::link::ServerLink;
use super::link_pool::LinkPool;
use super::request::CommandRequest;
use super::script::Script;
use super::sent_command::SentCommand;
use super::settings::Durability;
use super::shared::ClientShared;
use super::topology::follow_topology;
use domain::clock::Micros;

/// Redirections that one command follows. More means that the nodes of the Cluster disagree.
const MAX_REDIRECTS: usize = 4;
/// Interval of looking whether all of a Cluster is connected, at the start.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Pause before a command is repeated whose keys are on both nodes of a slot migration.
const TRY_AGAIN_PAUSE: Duration = Duration::from_millis(5);

/// The reply to a request, with the number of replicas that have its writes.
type Delivered = Result<(Value, u32), CommandError>;

/// Connections of one thread to all servers. Clones share them.
#[derive(Clone)]
pub struct RedisClient(Arc<LinkPool>);

impl RedisClient {
    /// Starts to connect, on the current runtime.
    pub fn start(shared: &Arc<ClientShared>) -> Self {
        Self::start_pool(shared, false)
    }

    /// The same, for commands that wait for replicas: they block all that is behind them on a connection.
    pub fn start_for_waits(shared: &Arc<ClientShared>) -> Self {
        Self::start_pool(shared, true)
    }

    /// State that the clients of all threads share.
    pub fn shared(&self) -> &Arc<ClientShared> {
        &self.0.shared
    }

    fn start_pool(shared: &Arc<ClientShared>, may_block: bool) -> Self {
        let pool = Arc::new(LinkPool::new(Arc::clone(shared), may_block));
        pool.spawn(follow_topology(Arc::downgrade(&pool), Arc::clone(shared)));
        Self(pool)
    }

    /// Waits until a server is connected (on a Cluster, one for every hash slot), or until no server could be reached.
    ///
    /// # Errors
    /// [`ConnectError`] of one of the servers.
    pub async fn wait_connected(&self) -> Result<(), Arc<ConnectError>> {
        let mut result = Ok(());
        for link in self.0.all_links() {
            result = link.wait_connected().await;
            if result.is_ok() {
                break;
            }
        }
        result?;
        while self.is_cluster() && !self.0.slots.load().is_complete() {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns whether at least one server is connected.
    pub fn is_up(&self) -> bool {
        self.0.all_links().iter().any(|link| link.is_up())
    }

    /// Steady time since which the server of a hash slot is not connected, by this thread's link, or since which the
    /// slot is known to be that server's, if that is later; `None` while it is connected, or when it is not known.
    pub fn down_since(&self, slot: u16) -> Option<Micros> {
        self.0.slots.load().down_since(slot)
    }

    /// The fault that an error of a command to the server of a hash slot tells of: of a server that is not connected,
    /// the reason for that. Without a slot, that of a single server.
    pub fn fault(&self, slot: Option<u16>, error: &CommandError) -> Fault {
        if !matches!(error, CommandError::Unreachable) {
            return error.into();
        }
        match slot.map(|slot| self.0.slots.load().link(slot)) {
            Some(None) if self.is_cluster() => Fault::ClusterDown,
            Some(Some(link)) => link.last_fault.get(),
            _ => self.0.all_links().first().map_or(Fault::Unreachable, |link| link.last_fault.get()),
        }
    }

    /// Hash tags by which records reach each server, and whether there is one for every hash slot.
    pub fn hash_tags(&self) -> (Vec<(u16, String)>, bool) {
        let slots = self.0.slots.load();
        (slots.tags(), !self.is_cluster() || slots.covers_all())
    }

    /// Returns whether the servers form a Cluster.
    pub fn is_cluster(&self) -> bool {
        self.0.shared.is_cluster()
    }

    /// Runs a script on the server of its hash slot: by digest, and by its text if the server has not loaded it.
    ///
    /// # Errors
    /// [`CommandError::did_not_run`] says whether it may have run.
    pub async fn run(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Value, CommandError> {
        self.run_with(slot, script, keys, arguments, None).await.map(|(reply, _)| reply)
    }

    /// Sends a call of a script by its digest. An error of its reply may say that it has to be sent again
    /// ([`Self::run_again`]).
    ///
    /// # Errors
    /// The call was not sent.
    pub fn begin(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<SentCommand, CommandError> {
        let link = self.0.slots.load().link(slot).ok_or(CommandError::Unreachable)?;
        link.begin(&script.by_digest(keys, arguments))
    }

    /// Runs a call of a script whose first attempt, over this link, ended with this error: on the node that the error
    /// names, or by the text of the script.
    ///
    /// # Errors
    /// [`CommandError::did_not_run`] says whether it may have run.
    pub async fn run_again(
        &self,
        link: Arc<ServerLink>,
        error: CommandError,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Value, CommandError> {
        let by_digest = script.by_digest(keys, arguments);
        let by_text = script.by_text(keys, arguments);
        let (link, mut result) = self.follow(link, CommandRequest::new(&by_digest), Err(error)).await;
        if matches!(&result, Err(error) if error.is_no_script()) {
            let first = link.send(CommandRequest::new(&by_text)).await;
            result = self.follow(link, CommandRequest::new(&by_text), first).await.1;
        }
        result.map(|(reply, _)| reply)
    }

    /// Runs a script, and waits for replicas to have its writes. Returns the reply and the number of replicas.
    ///
    /// # Errors
    /// [`CommandError::did_not_run`] says whether it may have run.
    pub async fn run_durably(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        durability: Durability,
    ) -> Result<(Value, u32), CommandError> {
        let durability = Some(durability).filter(|durability| durability.replicas > 0);
        self.run_with(slot, script, keys, arguments, durability).await
    }

    async fn run_with(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        durability: Option<Durability>,
    ) -> Delivered {
        let by_digest = script.by_digest(keys, arguments);
        match self.deliver(slot, CommandRequest { command: &by_digest, asking: false, durability }).await {
            Err(error) if error.is_no_script() => {
                let by_text = script.by_text(keys, arguments);
                self.deliver(slot, CommandRequest { command: &by_text, asking: false, durability }).await
            }
            result => result,
        }
    }

    /// Sends a command to the server of the hash slot of its key, the word behind its name, and decodes the reply.
    ///
    /// # Errors
    /// [`CommandError::did_not_run`] says whether it may have run.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, CommandError> {
        let Some(Arg::Simple(key)) = command.args_iter().nth(1) else { unreachable!("a command has a key") };
        let slot = hash_slot(&String::from_utf8_lossy(key));
        let (reply, _) = self.deliver(slot, CommandRequest::new(&command.into())).await?;
        Ok(T::from_redis_value(reply)?)
    }

    /// The links to all primaries, each once.
    ///
    /// # Errors
    /// [`CommandError::Unreachable`] while hash slots of a Cluster have no primary that is connected.
    pub fn primaries(&self) -> Result<Vec<Arc<ServerLink>>, CommandError> {
        let slots = self.0.slots.load();
        if self.is_cluster() && !slots.is_complete() {
            return Err(CommandError::Unreachable);
        }
        let mut links: Vec<Arc<ServerLink>> = Vec::new();
        for link in slots.links() {
            if !links.iter().any(|other| Arc::ptr_eq(other, link)) {
                links.push(Arc::clone(link));
            }
        }
        Ok(links)
    }

    /// The hash slots of each primary.
    pub fn hash_slots_of_servers(&self) -> Vec<Vec<RangeInclusive<u16>>> {
        self.0.slots.load().by_server()
    }

    /// Sends a command to one server, whatever its hash slots are, and decodes the reply.
    ///
    /// # Errors
    /// [`CommandError::did_not_run`] says whether it may have run.
    pub async fn query_at<T: FromRedisValue>(&self, server: &ServerLink, command: &Cmd) -> Result<T, CommandError> {
        let (reply, _) = server.send(CommandRequest::new(&command.into())).await?;
        Ok(T::from_redis_value(reply)?)
    }

    /// Changes with every failover and every move of hash slots that was noticed.
    pub fn history(&self) -> (u64, u64) {
        let failovers = self.0.shared.failovers().load(Ordering::Acquire);
        (failovers, *self.0.shared.subscribe_topology().borrow())
    }

    /// Sends a request, and follows redirections.
    async fn deliver(&self, slot: u16, request: CommandRequest<'_>) -> Delivered {
        let link = self.0.slots.load().link(slot).ok_or(CommandError::Unreachable)?;
        let result = link.send(request).await;
        self.follow(link, request, result).await.1
    }

    /// Follows the redirections of a request that was sent over `link`. It is sent again only after errors that say
    /// that it did not run: while its records are on both nodes of a slot migration, for as long as the deadline.
    /// Returns the link that replied last, with its reply.
    async fn follow(
        &self,
        mut link: Arc<ServerLink>,
        mut request: CommandRequest<'_>,
        mut result: Delivered,
    ) -> (Arc<ServerLink>, Delivered) {
        let mut redirects = 0;
        let begun = Instant::now();
        while let Err(error) = &result {
            match error.redirect() {
                Some(Redirect::TryAgain) if begun.elapsed() < self.0.shared.settings.deadline => {
                    sleep(TRY_AGAIN_PAUSE).await;
                }
                Some(Redirect::Moved(address)) if redirects < MAX_REDIRECTS => {
                    (request.asking, redirects) = (false, redirects + 1);
                    link = self.0.link_at(&address, &link);
                }
                Some(Redirect::Ask(address)) if redirects < MAX_REDIRECTS => {
                    (request.asking, redirects) = (true, redirects + 1);
                    link = self.0.link_at(&address, &link);
                }
                _ => break,
            }
            result = link.send(request).await;
        }
        (link, result)
    }
}

impl fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let configured = &self.0.shared.settings.servers;
        f.debug_struct("RedisClient").field("configured", configured).finish_non_exhaustive()
    }
}
