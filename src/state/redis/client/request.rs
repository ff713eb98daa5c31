//! One command on its way to a server, with what has to go around it.

use redis::{Cmd, Pipeline, cmd};

use super::settings::Durability;

/// A command and its delivery options.
#[derive(Clone, Copy)]
pub(super) struct CommandRequest<'a> {
    pub(super) command: &'a Cmd,
    /// Preceded by `ASKING`: to a node that has the key already, though not yet its hash slot.
    pub(super) asking: bool,
    /// Followed by `WAIT`. It must be on the same connection: replicas confirm the writes of their connection only.
    pub(super) durability: Option<Durability>,
}

impl<'a> CommandRequest<'a> {
    /// A command without options.
    pub(super) fn new(command: &'a Cmd) -> Self {
        Self { command, asking: false, durability: None }
    }

    /// Returns whether it is the command alone, which needs no pipeline.
    pub(super) fn is_plain(&self) -> bool {
        !self.asking && self.durability.is_none()
    }

    pub(super) fn pipeline(&self) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(3);
        if self.asking {
            pipeline.add_command(cmd("ASKING"));
        }
        pipeline.add_command(self.command.clone());
        if let Some(durability) = self.durability {
            // WAIT with 0 would block without a limit.
            let milliseconds = u64::try_from(durability.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
            pipeline.cmd("WAIT").arg(durability.replicas).arg(milliseconds);
        }
        pipeline
    }
}
