//! Why a command has no answer, and whether it may have run.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::state::Unavailable;
use crate::state::redis::settings::Address;

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub(in crate::state::redis) enum CommandError {
    /// The link is down: nothing was sent.
    #[error("the server cannot be reached")]
    Unreachable,
    /// Too many commands wait already: nothing was sent.
    #[error("too many commands wait for the server")]
    Overloaded,
    /// The connection broke, or no answer came for long: it may have run, and may still run.
    #[error("the answer was lost")]
    Lost(#[source] Option<RedisError>),
    /// It ran, and was settled without what it took, which Redis has forgotten.
    #[error("the answer came after a settlement")]
    Fenced,
    /// The server refused it: it did not run.
    #[error("the server refused the command")]
    Refused(#[source] RedisError),
    /// The server answered something that the script cannot give.
    #[error("the server's answer makes no sense")]
    UnexpectedReply,
}

/// Where else to send a command.
pub(super) enum Redirect {
    /// The slot is there now.
    Moved(Address),
    /// This key is there already, though its slot is not.
    Ask(Address),
    /// The slot is on its way.
    TryAgain,
}

impl CommandError {
    /// Whether the command certainly had no effect.
    pub(in crate::state::redis) fn did_not_run(&self) -> bool {
        matches!(self, Self::Unreachable | Self::Overloaded | Self::Refused(_))
    }

    pub(super) fn is_no_script(&self) -> bool {
        matches!(self, Self::Refused(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
    }
}

impl From<&CommandError> for Unavailable {
    fn from(failure: &CommandError) -> Self {
        match failure {
            CommandError::Unreachable | CommandError::Lost(_) | CommandError::Fenced => Self::Unreachable,
            CommandError::Overloaded => Self::Overloaded,
            CommandError::Refused(_) | CommandError::UnexpectedReply => Self::ErrorReply,
        }
    }
}

impl From<CommandError> for Unavailable {
    fn from(failure: CommandError) -> Self {
        Self::from(&failure)
    }
}

/// Whether a server is not the one to ask any more: a replica, one that loads its data, or one that lost its primary.
pub(super) fn is_unfit(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, MasterDown, ReadOnly};
    matches!(error.kind(), ErrorKind::Server(BusyLoading | MasterDown | ReadOnly))
}

/// Whether a server takes no writes at the moment, whatever they are: without replicas, memory or a disk to save to.
pub(super) fn takes_no_writes(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOREPLICAS" | "MISCONF" | "OOM"))
}

/// Whether it is part of finding where a command belongs.
pub(super) fn is_routine(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, NoScript, TryAgain};
    matches!(error.kind(), ErrorKind::Server(Ask | Moved | NoScript | TryAgain))
}

/// Whether the Cluster may look different from what we know.
pub(super) fn is_disorder(error: &RedisError) -> bool {
    use ServerErrorKind::{ClusterDown, Moved};
    matches!(error.kind(), ErrorKind::Server(ClusterDown | Moved))
}

/// Where else to send the command, when that is what the failure says.
pub(super) fn redirected(failure: &CommandError) -> Option<Redirect> {
    let CommandError::Refused(error) = failure else { return None };
    if error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain) {
        return Some(Redirect::TryAgain);
    }
    let (node, _) = error.redirect_node()?;
    let (host, port) = node.rsplit_once(':')?;
    // A node that does not know its own host says so by none, or by a question mark.
    let host = if host == "?" { "" } else { host.trim_matches(['[', ']']) };
    let address = Address { host: host.to_owned(), port: port.parse().ok()? };
    let moved = error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
    Some(if moved { Redirect::Moved(address) } else { Redirect::Ask(address) })
}
