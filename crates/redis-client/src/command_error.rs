//! Errors of commands, classified by the question that callers ask: may the command have run?

use redis::{ErrorKind, ParsingError, RedisError, ServerErrorKind};

use super::settings::Address;

/// A command without a usable reply.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The link is down; the command was not sent.
    #[error("the Redis server cannot be reached")]
    Unreachable,
    /// Too many commands are in flight on the link already; the command was not sent.
    #[error("too many commands are waiting for the Redis server")]
    Overloaded,
    /// The connection broke, or no reply came for long. The command may have run, and may still run.
    #[error("the reply of the Redis server was lost")]
    Lost(#[source] Option<RedisError>),
    /// The server replied with an error; the command did not run.
    #[error("the Redis server refused the command")]
    Refused(#[source] RedisError),
    /// The server sent a reply that the command cannot have.
    #[error("unexpected reply from the Redis server")]
    UnexpectedReply,
}

impl From<ParsingError> for CommandError {
    fn from(_: ParsingError) -> Self {
        Self::UnexpectedReply
    }
}

/// Another node to send a command to.
pub(super) enum Redirect {
    /// `MOVED`: the hash slot is on this node now.
    Moved(Address),
    /// `ASK`: the hash slot is being migrated, and this key is on the new node already.
    Ask(Address),
    /// `TRYAGAIN`: the keys of the command are on both nodes of a migration.
    TryAgain,
}

impl CommandError {
    /// Returns whether the command certainly had no effect.
    pub fn did_not_run(&self) -> bool {
        matches!(self, Self::Unreachable | Self::Overloaded | Self::Refused(_))
    }

    /// Returns whether the server does not have the script that `EVALSHA` named.
    pub fn is_no_script(&self) -> bool {
        matches!(self, Self::Refused(error) if is_no_script(error))
    }

    /// Returns whether the command has to be sent again: to another node, or as the text of its script.
    pub fn asks_for_another_attempt(&self) -> bool {
        self.is_no_script() || self.redirect().is_some()
    }

    /// The redirection in this error, if it is one.
    pub(super) fn redirect(&self) -> Option<Redirect> {
        let Self::Refused(error) = self else { return None };
        if error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain) {
            return Some(Redirect::TryAgain);
        }
        let (node, _) = error.redirect_node()?;
        let (host, port) = node.rsplit_once(':')?;
        // A node that does not know its own host sends none, or a question mark.
        let host = if host == "?" { "" } else { host.trim_matches(['[', ']']) };
        let address = Address { host: host.to_owned(), port: port.parse().ok()? };
        let moved = error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
        Some(if moved { Redirect::Moved(address) } else { Redirect::Ask(address) })
    }
}

/// Returns whether the server does not have the script that `EVALSHA` named.
pub fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Returns whether the server cannot serve this client any more: a replica, still loading, or a replica
/// without its primary.
pub(super) fn is_wrong_server(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, MasterDown, ReadOnly};
    matches!(error.kind(), ErrorKind::Server(BusyLoading | MasterDown | ReadOnly))
}

/// Returns whether the server accepts no writes at present: too few replicas, or no disk to save to.
pub(super) fn rejects_writes(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOREPLICAS" | "MISCONF"))
}

/// Returns whether the server's memory is full. It still accepts what withdraws something, so the link stays up.
pub(super) fn is_out_of_memory(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}

/// Returns whether the error is part of normal routing (redirection, script not loaded yet).
pub(super) fn is_routing(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, NoScript, TryAgain};
    matches!(error.kind(), ErrorKind::Server(Ask | Moved | NoScript | TryAgain))
}

/// Returns whether the Cluster may have another topology than the known one.
pub(super) fn suggests_new_topology(error: &RedisError) -> bool {
    use ServerErrorKind::{ClusterDown, Moved};
    matches!(error.kind(), ErrorKind::Server(ClusterDown | Moved))
}
