//! Tasks of discovery: one for each upstream, all on one thread.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

use super::settings::Discovered;
use super::task::{Command, Task};
use platform::metrics::DiscoveryFamilies;

/// Look-ups that run at the same time, of all upstreams. More would be a burst at the name servers.
const MAX_LOOKUPS: usize = 64;

/// Command to the thread.
#[derive(Debug)]
pub(super) enum TasksCommand {
    /// Pass a command to the task of an upstream, which is started when there is none.
    Send { upstream: Arc<str>, command: Command },
    /// End the tasks of all upstreams but these.
    Retain(Vec<Arc<str>>),
}

/// Tasks by the names of their upstreams.
pub(super) struct Tasks {
    by_name: HashMap<Arc<str>, UnboundedSender<Command>>,
    /// Permits of look-ups.
    lookups: Rc<Semaphore>,
    metrics: DiscoveryFamilies,
    publish: Rc<dyn Fn(Discovered)>,
}

impl Tasks {
    pub(super) fn new(metrics: DiscoveryFamilies, publish: Rc<dyn Fn(Discovered)>) -> Self {
        Self { by_name: HashMap::new(), lookups: Rc::new(Semaphore::new(MAX_LOOKUPS)), metrics, publish }
    }

    /// Runs until there is no handle any more.
    pub(super) async fn run(mut self, mut commands: UnboundedReceiver<TasksCommand>) {
        while let Some(command) = commands.recv().await {
            match command {
                TasksCommand::Send { upstream, command } => self.send(upstream, command),
                TasksCommand::Retain(names) => self.retain(&names),
            }
        }
    }

    fn retain(&mut self, names: &[Arc<str>]) {
        // A task ends when its sender is dropped.
        let removed = self.by_name.extract_if(|name, _| !names.contains(name));
        removed.for_each(|(name, _)| self.metrics.remove(&name));
    }

    fn send(&mut self, upstream: Arc<str>, command: Command) {
        let task = self.by_name.entry(upstream).or_insert_with_key(|upstream| {
            let (sender, receiver) = unbounded_channel();
            let task = Task::new(
                Arc::clone(upstream),
                Rc::clone(&self.lookups),
                self.metrics.upstream(upstream),
                Rc::clone(&self.publish),
            );
            spawn_local(task.run(receiver));
            sender
        });
        if task.send(command).is_err() {
            tracing::error!("a task that looks up endpoints has ended; restart the gateway");
        }
    }
}
