//! One command on its way to a server, with what has to go around it.

use redis::cmd;

use super::resp::PackedCommand;
use super::settings::Durability;

/// A command and its delivery options.
#[derive(Clone, Copy)]
pub(super) struct CommandRequest<'a> {
    pub(super) command: &'a PackedCommand,
    /// Preceded by `ASKING`: to a node that has the key already, though not yet its hash slot.
    pub(super) asking: bool,
    /// Followed by `WAIT`. It must be on the same connection: replicas confirm the writes of their connection only.
    pub(super) durability: Option<Durability>,
}

impl<'a> CommandRequest<'a> {
    /// A command without options.
    pub(super) fn new(command: &'a PackedCommand) -> Self {
        Self { command, asking: false, durability: None }
    }

    /// Returns whether it is the command alone.
    pub(super) fn is_plain(&self) -> bool {
        !self.asking && self.durability.is_none()
    }

    /// The command with those around it.
    pub(super) fn commands(&self) -> Vec<PackedCommand> {
        let asking = self.asking.then(|| cmd("ASKING").into());
        let wait = self.durability.map(|durability| {
            // WAIT with 0 would block without a limit.
            let milliseconds = u64::try_from(durability.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
            let mut wait = cmd("WAIT");
            wait.arg(durability.replicas).arg(milliseconds);
            wait.into()
        });
        asking.into_iter().chain([self.command.clone()]).chain(wait).collect()
    }
}
