//! Fault of a server, as commands meet it: one word for metrics, alerts and readiness.

use std::sync::atomic::{AtomicU8, Ordering};

use redis::RedisError;

use super::command_error::CommandError;
use super::dial::ConnectError;

/// Fault of a server: the reason why it does not do what it is told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// No connection, or one that broke.
    Unreachable,
    /// The answer came too late, or not yet.
    Late,
    /// Too many commands wait for it.
    Overloaded,
    /// Fewer replicas than `min-replicas-to-write`.
    NoReplicas,
    /// A replica, or a primary that was demoted.
    ReadOnly,
    /// It cannot save to its disk.
    Misconf,
    /// It reads its data from disk.
    Loading,
    /// No node of the Cluster serves the hash slot.
    ClusterDown,
    /// The login or its permissions.
    NoPermission,
    /// Its memory is full (`maxmemory`).
    OutOfMemory,
    /// Another error.
    Refused,
}

use Fault::{
    ClusterDown, Late, Loading, Misconf, NoPermission, NoReplicas, OutOfMemory, Overloaded, ReadOnly, Refused,
    Unreachable,
};

impl Fault {
    /// All faults.
    pub const ALL: [Self; 11] = [
        Unreachable,
        Late,
        Overloaded,
        NoReplicas,
        ReadOnly,
        Misconf,
        Loading,
        ClusterDown,
        NoPermission,
        OutOfMemory,
        Refused,
    ];

    /// Label in metrics: Redis' code of the error, where it has one.
    pub fn label(self) -> &'static str {
        match self {
            Unreachable => "unreachable",
            Late => "late",
            Overloaded => "overloaded",
            NoReplicas => "noreplicas",
            ReadOnly => "readonly",
            Misconf => "misconf",
            Loading => "loading",
            ClusterDown => "clusterdown",
            NoPermission => "noperm",
            OutOfMemory => "oom",
            Refused => "refused",
        }
    }

    /// The fault that an error of the server, or of the connection, tells of.
    pub(super) fn of_reply(error: &RedisError) -> Self {
        match error.code() {
            Some("NOREPLICAS") => NoReplicas,
            Some("READONLY" | "MASTERDOWN") => ReadOnly,
            Some("MISCONF") => Misconf,
            Some("LOADING") => Loading,
            Some("CLUSTERDOWN") => ClusterDown,
            Some("NOPERM" | "NOAUTH" | "WRONGPASS") => NoPermission,
            Some("OOM") => OutOfMemory,
            _ if error.is_io_error() || error.is_connection_dropped() => Unreachable,
            // A command within a script: "ERR The user executing the script can't run this command …".
            _ if error.detail().is_some_and(|text| text.contains("The user executing the script")) => NoPermission,
            _ => Refused,
        }
    }
}

impl From<&CommandError> for Fault {
    fn from(error: &CommandError) -> Self {
        match error {
            CommandError::Unreachable | CommandError::Lost(_) => Unreachable,
            CommandError::Overloaded => Overloaded,
            CommandError::Refused(error) => Self::of_reply(error),
            CommandError::UnexpectedReply => Refused,
        }
    }
}

impl From<&ConnectError> for Fault {
    fn from(error: &ConnectError) -> Self {
        match error {
            ConnectError::Refused(error) => Self::of_reply(error),
            ConnectError::Replica => ReadOnly,
            ConnectError::Loading => Loading,
            ConnectError::Slow(_) => Late,
            ConnectError::Unsuitable(_) => Refused,
            ConnectError::Io { .. }
            | ConnectError::Silent(_)
            | ConnectError::Host(_)
            | ConnectError::NoSentinel
            | ConnectError::UnknownService(_) => Unreachable,
        }
    }
}

/// The fault for which a link is down, as the last attempt to use it has met it.
#[derive(Debug, Default)]
pub(super) struct LastFault(AtomicU8);

impl LastFault {
    pub(super) fn set(&self, fault: Fault) {
        self.0.store(fault as u8, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Fault {
        Fault::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, Value, parse_redis_value};

    use super::*;

    fn of_reply(line: &str) -> Fault {
        let reply = parse_redis_value(format!("-{line}\r\n").as_bytes()).and_then(Value::extract_error);
        Fault::of_reply(&reply.unwrap_err())
    }

    #[test]
    fn replies_of_servers_are_told_apart() {
        for (line, fault) in [
            ("NOREPLICAS Not enough good replicas to write.", NoReplicas),
            ("READONLY You can't write against a read only replica.", ReadOnly),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ReadOnly),
            ("MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.", Misconf),
            ("LOADING Redis is loading the dataset in memory", Loading),
            ("CLUSTERDOWN Hash slot not served", ClusterDown),
            ("NOPERM this user has no permissions to run the 'evalsha' command", NoPermission),
            (
                "ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:1.",
                NoPermission,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", OutOfMemory),
            ("BUSY Redis is busy running a script.", Refused),
        ] {
            assert_eq!(of_reply(line), fault, "{line}");
        }
        assert_eq!(Fault::of_reply(&(ErrorKind::Io, "broken pipe").into()), Unreachable);
    }

    #[test]
    fn faults_have_labels_of_their_own_in_the_order_of_their_numbers() {
        let labels: std::collections::BTreeSet<_> = Fault::ALL.map(Fault::label).into();
        assert_eq!(labels.len(), Fault::ALL.len());
        for (at, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, at);
        }
    }
}
