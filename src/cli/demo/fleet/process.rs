//! Processes of a demo with two gateways. None of them outlives the command:
//!
//! - Dropping a process kills it and waits for its end: at every return, error and signal of the command.
//! - The kernel kills it when the command itself is killed: the process asks for that before it becomes its program
//!   ([`become_program`], `PR_SET_PDEATHSIG`).
//! - It is in a process group of its own, so that Ctrl-C on a terminal reaches the command alone.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

/// Time between two looks at a process that starts or ends.
const POLL: Duration = Duration::from_millis(10);
/// Lines of a log that an error quotes.
const QUOTED_LINES: usize = 3;

/// A process, which has its output in the file `log` of its directory.
pub(super) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program in a directory.
    pub(super) fn start(name: &str, dir: &Path, program: &Path, arguments: &[&OsStr]) -> anyhow::Result<Self> {
        let log = dir.join("log");
        let output = File::options().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("cannot open {}", log.display()))?;
        let mut command = Command::new(std::env::current_exe().context("the path of this program is unknown")?);
        command.args(["demo", "--child"]).arg(std::process::id().to_string()).arg(program).args(arguments);
        command.current_dir(dir).process_group(0).stdin(Stdio::null());
        command.stderr(output.try_clone()?).stdout(output);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// It has ended.
    pub(super) async fn until_ready(&mut self, mut is_ready: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
        while !is_ready().await {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} has ended at its start ({status}): {}", self.name, self.last_lines());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Terminates it (SIGTERM), and waits until it has ended by itself.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None => tokio::time::sleep(POLL).await,
            }
        };
        if !status.success() {
            bail!("{} has ended with {status}: {}", self.name, self.last_lines());
        }
        Ok(())
    }

    /// The end of its log.
    fn last_lines(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(QUOTED_LINES)..].join(" / ")
    }
}

impl Drop for Process {
    /// `kill -9`. Both fail when it has ended already.
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Becomes the program of a child of the demo: `PARENT PROGRAM ARGUMENTS…`. Returns only with an error.
pub(in crate::cli::demo) fn become_program(words: &[OsString]) -> anyhow::Error {
    let [parent, program, arguments @ ..] = words else { return anyhow::anyhow!("--child needs a program") };
    let parent = parent.to_str().and_then(|parent| Pid::from_raw(parent.parse().ok()?));
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return anyhow::Error::new(error).context("cannot have this process end with its parent");
    }
    // It may have ended before the kernel knew.
    if parent.is_none() || getppid() != parent {
        return anyhow::anyhow!("the demo that started this process has ended");
    }
    let error = Command::new(program).args(arguments).exec();
    anyhow::Error::new(error).context(format!("cannot run {}", Path::new(program).display()))
}
