//! Discovery: the endpoints behind the configured sources, while they change.
//!
//! - A name has an endpoint for each of its addresses. It is looked up again when its TTL has passed ([`lookup`]); a
//!   watched file of sources is read every second ([`source_file`]).
//! - A name that does not resolve stops nothing: its last known addresses stay in use, also when DNS says that there are
//!   none. Before the first answer it has one endpoint without an address, to which connecting fails at once. The log has each
//!   change once, the metrics count every look-up.
//! - Addresses of both families: see [`families`].
//! - All of this runs in one task on a thread of its own. What it finds is handed to the caller, who gives it to the workers:
//!   a request costs nothing for it.

mod source;
mod settings;
mod lookup;
mod families;
mod source_file;
mod known;
mod task;

use std::cell::Cell;
use std::io;
use std::sync::mpsc;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc as commands;

use crate::metrics::DiscoveryMetrics;
use crate::upstream::settings::Endpoint;

use task::{Command, Task};

pub use settings::{Discovered, Settings, Sources};
pub use source::{Source, SourceError};

/// Handle on the task of discovery, which ends when this is dropped.
#[derive(Debug)]
pub struct Discovery {
    commands: commands::UnboundedSender<Command>,
    /// Number of calls of [`Discovery::follow`]: what was found before the last is out of date.
    epoch: Cell<u64>,
}

/// The task of discovery has ended, which only a panic can bring about.
#[derive(Debug, thiserror::Error)]
#[error("the thread that looks up endpoints has ended; restart the gateway")]
pub struct DiscoveryEnded;

impl Discovery {
    /// Starts the task on a thread of its own. It calls `publish` there when the endpoints of the followed settings change.
    ///
    /// # Errors
    /// The thread or its runtime could not be started.
    pub fn start(metrics: DiscoveryMetrics, publish: impl Fn(Discovered) + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = commands::unbounded_channel();
        let (started, has_started) = mpsc::sync_channel(1);
        std::thread::Builder::new().name("discovery".into()).spawn(move || {
            match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                Ok(runtime) => {
                    started.send(Ok(())).ok();
                    runtime.block_on(Task::new(metrics, Box::new(publish)).run(receiver));
                    // A look-up by the system may take longer than the shutdown may.
                    runtime.shutdown_background();
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        has_started.recv().map_err(io::Error::other)??;
        Ok(Self { commands: sender, epoch: Cell::new(0) })
    }

    /// Finds the endpoints of settings: all names are looked up that are not known yet. Blocks until then, for some seconds
    /// when name servers do not answer. Nothing is followed by this.
    ///
    /// # Errors
    /// [`DiscoveryEnded`]; a name that does not resolve is no error.
    pub fn resolve(&self, settings: &Settings) -> Result<Vec<Endpoint>, DiscoveryEnded> {
        let (reply, received) = mpsc::sync_channel(1);
        self.commands.send(Command::Resolve { settings: settings.clone(), reply }).map_err(|_| DiscoveryEnded)?;
        received.recv().map_err(|_| DiscoveryEnded)
    }

    /// Follows these settings, and no others, from now on. `applied` are the endpoints in use: a change from them is
    /// published.
    pub fn follow(&self, settings: &Settings, applied: &[Endpoint]) {
        self.epoch.set(self.epoch.get() + 1);
        let (settings, applied, epoch) = (settings.clone(), applied.to_vec(), self.epoch.get());
        if self.commands.send(Command::Follow { settings, applied, epoch }).is_err() {
            tracing::error!("{DiscoveryEnded}");
        }
    }

    /// Returns whether endpoints were found by the settings that are followed now.
    pub fn is_current(&self, discovered: &Discovered) -> bool {
        discovered.epoch == self.epoch.get()
    }
}
