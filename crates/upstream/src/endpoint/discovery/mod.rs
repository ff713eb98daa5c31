//! Discovery: the endpoints behind the configured sources, while they change.
//!
//! - A name has an endpoint for each of its addresses. It is looked up again when its TTL has passed ([`lookup`]); a
//!   watched file of sources is read every second ([`source_file`]).
//! - A name that does not resolve stops nothing: its last known addresses stay in use, also when DNS says that there
//!   are none. Before the first answer it has one endpoint without an address, to which connecting fails at once. The
//!   log has each change once, the metrics count every look-up.
//! - Addresses of both families: see [`families`]; parts of the requests by SRV records: see [`weights`].
//! - Each upstream has a task of its own ([`task`]), all of them on one thread ([`tasks`]). What it finds is handed to
//!   the caller, who gives it to the workers: a request costs nothing for it.

mod source;
mod settings;
mod lookup;
mod families;
mod weights;
mod source_file;
mod known;
mod task;
mod tasks;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc as commands;

use crate::settings::Settings as Upstream;
use platform::metrics::DiscoveryFamilies;

use task::Command;
use tasks::{Tasks, TasksCommand};

pub use settings::{Discovered, Settings, Sources};
pub use source::{Source, SourceError};

/// Handle on the thread of discovery, which ends when this is dropped.
#[derive(Debug)]
pub struct Discovery {
    commands: commands::UnboundedSender<TasksCommand>,
    /// Number of calls of [`Discovery::follow`]: what was found before the last is out of date.
    epoch: Cell<u64>,
}

/// The thread of discovery has ended, which only a panic can bring about.
#[derive(Debug, thiserror::Error)]
#[error("the thread that looks up endpoints has ended; restart the gateway")]
pub struct DiscoveryEnded;

impl Discovery {
    /// Starts the thread. It calls `publish` there when endpoints of an upstream that is followed change.
    ///
    /// # Errors
    /// The thread or its runtime could not be started.
    pub fn start(metrics: DiscoveryFamilies, publish: impl Fn(Discovered) + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = commands::unbounded_channel();
        let (started, has_started) = mpsc::sync_channel(1);
        std::thread::Builder::new().name("discovery".into()).spawn(move || {
            match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                Ok(runtime) => {
                    started.send(Ok(())).ok();
                    runtime.block_on(Tasks::new(metrics, Rc::new(publish)).run(receiver));
                    // A look-up by the system may take longer than the shutdown may.
                    runtime.shutdown_background();
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        has_started.recv().map_err(io::Error::other)??;
        Ok(Self { commands: sender, epoch: Cell::new(0) })
    }

    /// Finds the endpoints of upstreams, and sets them: all names are looked up that are not known yet. Blocks until
    /// then, for some seconds when name servers do not answer. Nothing is followed by this.
    ///
    /// # Errors
    /// [`DiscoveryEnded`]; a name that does not resolve is no error.
    pub fn resolve<'a>(
        &self,
        upstreams: impl IntoIterator<Item = (&'a mut Upstream, &'a Settings)>,
    ) -> Result<(), DiscoveryEnded> {
        let mut replies = Vec::new();
        for (upstream, settings) in upstreams {
            let (reply, received) = mpsc::sync_channel(1);
            self.send(upstream, Command::Resolve { settings: settings.clone(), reply })?;
            replies.push((upstream, received));
        }
        // All look-ups run by now, at the same time.
        for (upstream, received) in replies {
            upstream.endpoints = received.recv().map_err(|_| DiscoveryEnded)?;
        }
        Ok(())
    }

    /// Follows these upstreams, and no others, from now on. Their endpoints are those in use: a change from them is
    /// published.
    pub fn follow<'a>(&self, upstreams: impl IntoIterator<Item = (&'a Upstream, &'a Settings)>) {
        self.epoch.set(self.epoch.get() + 1);
        let mut names = Vec::new();
        for (upstream, settings) in upstreams {
            names.push(Arc::clone(&upstream.name));
            let settings = settings.clone();
            let applied = upstream.endpoints.clone();
            let epoch = self.epoch.get();
            if self.send(upstream, Command::Follow { settings, applied, epoch }).is_err() {
                tracing::error!("{DiscoveryEnded}");
            }
        }
        // Fails only after the thread has ended, which was logged.
        self.commands.send(TasksCommand::Retain(names)).ok();
    }

    fn send(&self, upstream: &Upstream, command: Command) -> Result<(), DiscoveryEnded> {
        let command = TasksCommand::Send { upstream: Arc::clone(&upstream.name), command };
        self.commands.send(command).map_err(|_| DiscoveryEnded)
    }

    /// Returns whether endpoints were found by the settings that are followed now.
    pub fn is_current(&self, discovered: &Discovered) -> bool {
        discovered.epoch == self.epoch.get()
    }
}
