//! A client for one Redis server, for Sentinel, and for Cluster. It knows nothing of the records that it carries.
//!
//! - No command waits for a server that is away: it fails at once while its link is down.
//! - A command is sent again only when it certainly did not run (`MOVED`, `ASK`, `NOSCRIPT`, `TRYAGAIN`).
//! - Each thread has its own [`RedisClient`] with its own links: no command hops between threads.
//! - On a Cluster every node has its own link and its own breaker: a node that is away takes only its hash slots along.
//! - Every connected link is in a list of the process (`live_links`), by which background work reaches each server that
//!   may serve commands.
//!
//! Layers, top-down: `redis_client`, `server` > `topology` > `link_pool` > `hash_slots` > `reconnect` >
//! `sent_command` > `link` > `connect` > `sentinel` > `dial` > `shared` > `live_links` > `connection` > `resp`.

mod redis_client;
mod server;
mod replication_watch;
mod topology;
mod link_pool;
mod hash_slots;
mod reconnect;
mod sent_command;
mod link;
mod request;
mod connect;
mod sentinel;
mod inspect;
mod dial;
mod server_info;
mod shared;
mod live_links;
mod connection;
mod resp;
mod command_error;
mod fault;
mod script;
mod settings;
mod url;
#[cfg(test)]
mod tests;

pub use command_error::{CommandError, is_no_script};
pub use dial::ConnectError;
pub use fault::Fault;
pub use hash_slots::hash_slot;
pub use inspect::describe_servers;
pub use inspect::{InspectedServer, ServerDescription};
pub use redis_client::RedisClient;
pub use replication_watch::watch_replication;
pub use resp::PackedCommand;
pub use script::Script;
pub use sent_command::SentCommand;
pub use server::Server;
pub use server_info::{MAX_CLOCK_DIFFERENCE, Replication, ReplicationStatus, Unsuitable};
pub use settings::ConnectionSettings;
pub use settings::{Address, CurrentLogin, Durability, Login, Servers};
pub use shared::ClientShared;
pub use url::{InvalidUrl, Url};

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
