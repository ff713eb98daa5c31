//! The process at the other end of a hand-over, as the kernel knows it (`SO_PEERCRED`): what it says of
//! itself is not believed.

use std::fmt;

use rustix::process::{Pid, Signal};

/// The process that takes over. Without an id it is in another PID namespace, and no signal reaches it from here.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerProcess(Option<Pid>);

impl PeerProcess {
    pub(super) fn new(id: Option<u32>) -> Self {
        Self(id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// Its id, when it is in this PID namespace.
    pub(super) fn id(self) -> Option<u32> {
        self.0.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok())
    }

    /// Kills it. Returns false when it cannot be: it is in another PID namespace, or of another user.
    pub(super) fn kill(self) -> bool {
        let killed = self.0.map(|pid| rustix::process::kill_process(pid, Signal::KILL));
        // One that does not exist has ended.
        matches!(killed, Some(Ok(()) | Err(rustix::io::Errno::SRCH)))
    }
}

impl fmt::Display for PeerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id() {
            Some(id) => write!(f, "process {id}"),
            None => f.write_str("a process of another PID namespace"),
        }
    }
}
