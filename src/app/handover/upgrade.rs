//! Upgrade: starts a new process that takes over from this one, and waits for the end of it.
//!
//! The new process is a child of this one, so that it has its environment, its directory, its output and its limits,
//! and stays in its control group.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::old_process::HandoverServer;
use super::progress::Progress;
use control::admin::{UpgradeInProgress, UpgradeReport};
use platform::settings::WithUnit;

/// Time for a whole upgrade. A client of the admin socket waits a little longer.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts upgrades, one at a time.
pub(crate) struct Upgrades {
    server: Arc<HandoverServer>,
    /// The configuration file, as it was given.
    config: PathBuf,
    turn: Mutex<()>,
}

impl Upgrades {
    pub(crate) fn new(server: &Arc<HandoverServer>, config: &Path) -> Self {
        Self { server: Arc::clone(server), config: config.to_owned(), turn: Mutex::default() }
    }

    /// Starts a binary, and waits until it has taken over, or has failed.
    ///
    /// # Errors
    /// [`UpgradeInProgress`] when another upgrade is in progress.
    pub(crate) fn run(&self, binary: &Path) -> Result<UpgradeReport, UpgradeInProgress> {
        let _turn = self.turn.try_lock().ok_or(UpgradeInProgress)?;
        let progress = &self.server.progress;
        progress.reset();
        let end = match self.start(binary) {
            Ok(mut child) => {
                progress.step(format!("started {} (process {})", binary.display(), child.id()));
                supervise(progress, &mut child, UPGRADE_TIMEOUT)
            }
            Err(error) => Err(format!("{}: cannot be started: {error}", binary.display())),
        };
        let steps = progress.take_steps();
        Ok(UpgradeReport { steps, error: end.err() })
    }

    fn start(&self, binary: &Path) -> std::io::Result<Child> {
        let mut command = Command::new(binary);
        command.args(["serve", "--replace", "--config"]).arg(&self.config).stdin(Stdio::null());
        // A signal to the group of the old process, as from a terminal, is not meant for the new one.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        // They are addressed to this process by its id.
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        command.spawn()
    }
}

/// Waits for the end of the hand-over, and kills the child if it has not taken over.
fn supervise(progress: &Progress, child: &mut Child, timeout: Duration) -> Result<(), String> {
    let end = wait(progress, child, timeout);
    if end.is_err() {
        // It may have ended already.
        child.kill().ok();
        child.wait().ok();
    }
    end
}

/// Waits for the end of the hand-over, or of the child without one.
fn wait(progress: &Progress, child: &mut Child, timeout: Duration) -> Result<(), String> {
    let deadline = Instant::now() + timeout;
    loop {
        // Before the child: it may have ended because of the hand-over's end.
        let exited = child.try_wait().ok().flatten();
        match (progress.wait(), exited) {
            (Some(end), _) => return end,
            (None, Some(status)) => {
                return Err(format!("the new process ended ({status}) before it took over; its log says why"));
            }
            (None, None) if Instant::now() >= deadline => {
                return Err(format!("the new process did not take over within {}", WithUnit::Duration(timeout)));
            }
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn process_that_never_takes_over_is_killed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let error = supervise(&Progress::default(), &mut child, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error, "the new process did not take over within 1ms");
        assert_eq!(child.try_wait().unwrap().and_then(|status| status.signal()), Some(9));
    }

    #[test]
    fn process_that_has_taken_over_is_left_alone() {
        let progress = Progress::default();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        progress.end(Ok(()));
        assert_eq!(supervise(&progress, &mut child, Duration::ZERO), Ok(()));
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
