//! Task of discovery for one upstream: looks names up when they are due, reads the watched file, and publishes changed
//! endpoints.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use prometheus::IntGauge;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::MissedTickBehavior;

use super::families::MAX_ADDRESSES;
use super::known::{Change, Known};
use super::lookup::{Answer, LookupError, look_up};
use super::settings::{Discovered, Settings, Sources};
use super::source::Source;
use super::source_file::SourceFile;
use crate::settings::{Address, Endpoint};
use platform::metrics::DiscoveryMetrics;

/// Time between two readings of the watched file: a change is used within two of them.
const FILE_INTERVAL: Duration = Duration::from_secs(1);

/// Command to the task.
#[derive(Debug)]
pub(super) enum Command {
    /// Find the endpoints of settings, and reply with them.
    Resolve { settings: Settings, reply: SyncSender<Vec<Endpoint>> },
    /// Follow settings; `applied` are the endpoints in use. What is found has the epoch.
    Follow { settings: Settings, applied: Vec<Endpoint>, epoch: u64 },
}

/// Look-up that runs.
type Lookup = LocalBoxFuture<'static, (Source, Result<Answer, LookupError>)>;

/// State of the task.
pub(super) struct Task {
    /// Name of the upstream.
    upstream: Arc<str>,
    followed: Option<Followed>,
    /// Requests whose sources are not all looked up yet.
    requests: Vec<Request>,
    /// Files of the followed settings and of the requests.
    files: Vec<SourceFile>,
    known: Known,
    lookups: FuturesUnordered<Lookup>,
    /// Permits of look-ups, of all tasks.
    permits: Rc<Semaphore>,
    metrics: DiscoveryMetrics,
    publish: Rc<dyn Fn(Discovered)>,
}

/// Settings that are followed.
struct Followed {
    settings: Settings,
    sources: Vec<Source>,
    /// Endpoints that were published last.
    published: Vec<Endpoint>,
    epoch: u64,
    /// Number of endpoints with an address, in the metrics.
    count: IntGauge,
}

struct Request {
    sources: Vec<Source>,
    servers: Vec<SocketAddr>,
    reply: SyncSender<Vec<Endpoint>>,
}

impl Task {
    /// Task that follows nothing yet. `permits` bound the look-ups of all tasks.
    pub(super) fn new(
        upstream: Arc<str>,
        permits: Rc<Semaphore>,
        metrics: DiscoveryMetrics,
        publish: Rc<dyn Fn(Discovered)>,
    ) -> Self {
        let known = Known::default();
        let lookups = FuturesUnordered::new();
        Self {
            upstream,
            followed: None,
            requests: Vec::new(),
            files: Vec::new(),
            known,
            lookups,
            permits,
            metrics,
            publish,
        }
    }

    /// Runs until there is no handle any more.
    pub(super) async fn run(mut self, mut commands: UnboundedReceiver<Command>) {
        let mut file_check = tokio::time::interval(FILE_INTERVAL);
        // Two readings of a file with no time between them would not show that it is being written.
        file_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.begin_lookups();
            self.reply();
            self.publish();
            let due = self.next_due();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.perform(command),
                    None => return,
                },
                Some((source, found)) = self.lookups.next(), if !self.lookups.is_empty() => self.record(&source, found),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {}
                _ = file_check.tick(), if self.followed.as_ref().is_some_and(Followed::has_file) => self.check_file(),
            }
        }
    }

    fn perform(&mut self, command: Command) {
        match command {
            Command::Resolve { settings, reply } => {
                let sources = self.sources(&settings.sources);
                self.requests.push(Request { sources, servers: settings.servers, reply });
            }
            Command::Follow { settings, applied, epoch } => self.follow(settings, applied, epoch),
        }
    }

    fn follow(&mut self, settings: Settings, applied: Vec<Endpoint>, epoch: u64) {
        let sources = self.sources(&settings.sources);
        // Addresses from other name servers are looked up again at once; they stay in use until these answer.
        if self.followed.as_ref().is_some_and(|followed| followed.settings.servers != settings.servers) {
            self.known.expire(Instant::now());
        }
        self.files.retain(|file| file.is_of(&settings.sources));
        self.followed =
            Some(Followed { settings, sources, published: applied, epoch, count: self.metrics.endpoints() });
        let wanted: HashSet<Source> = self.wanted().map(|(source, _)| source.clone()).collect();
        self.known.retain(|source| wanted.contains(source));
    }

    /// Sources of settings. A file is read when it is not watched yet.
    fn sources(&mut self, sources: &Sources) -> Vec<Source> {
        let (path, server_name) = match sources {
            Sources::Listed(sources) => return sources.clone(),
            Sources::File { path, server_name } => (path, server_name.as_ref()),
        };
        if !self.files.iter().any(|file| file.is_of(sources)) {
            self.files.push(SourceFile::open(path, server_name));
        }
        let file = self.files.iter().find(|file| file.is_of(sources)).expect("it was opened");
        file.sources_or_placeholder()
    }

    fn check_file(&mut self) {
        let Some(followed) = &mut self.followed else { return };
        let file = self.files.iter_mut().find(|file| file.is_of(&followed.settings.sources));
        if let Some(file) = file
            && file.poll()
        {
            followed.sources = file.sources_or_placeholder();
        }
    }

    /// Sources that are to be looked up, each with the name servers to ask.
    fn wanted(&self) -> impl Iterator<Item = (&Source, &[SocketAddr])> {
        let followed = self.followed.iter().map(|followed| (&followed.sources, &*followed.settings.servers));
        let requested = self.requests.iter().map(|request| (&request.sources, &*request.servers));
        followed.chain(requested).flat_map(|(sources, servers)| sources.iter().map(move |source| (source, servers)))
    }

    fn begin_lookups(&mut self) {
        let now = Instant::now();
        let mut known = std::mem::take(&mut self.known);
        for (source, servers) in self.wanted() {
            if let Some(last) = known.begin(source, now) {
                let permits = Rc::clone(&self.permits);
                let lookup = look_up(source.clone(), servers.to_vec(), last);
                let lookup = async move {
                    let _permit = permits.acquire().await;
                    lookup.await
                };
                self.lookups.push(lookup.boxed_local());
            }
        }
        self.known = known;
    }

    /// Time of the next look-up.
    fn next_due(&self) -> Option<Instant> {
        self.known.next_due(self.wanted().map(|(source, _)| source))
    }

    /// Takes, counts and logs the result of a look-up.
    fn record(&mut self, source: &Source, found: Result<Answer, LookupError>) {
        let (answer, error) = match found {
            Ok(answer) => (Some(answer), None),
            Err(error) => (None, Some(error)),
        };
        let omitted = answer.as_ref().map_or(0, |answer| answer.trial.omitted);
        let counter = if answer.is_some() { &self.metrics.resolved } else { &self.metrics.failed };
        counter.inc();
        let name = source.name();
        let upstream = &*self.upstream;
        match (self.known.record(source, answer, Instant::now()), error) {
            (Change::Addresses { added, removed }, _) => {
                tracing::info!(upstream, name, ?added, ?removed, "the addresses of an upstream name have changed");
                if omitted > 0 {
                    tracing::warn!(
                        upstream,
                        name,
                        used = MAX_ADDRESSES,
                        omitted,
                        "an upstream name has too many addresses; the first ones in order are used"
                    );
                }
            }
            (Change::Weights, _) => tracing::info!(upstream, name, "the weights of an upstream service have changed"),
            (Change::Recovered, _) => tracing::info!(upstream, name, "an upstream name can be resolved again"),
            (Change::Failing, Some(error)) => {
                tracing::warn!(upstream, name, %error,
                    "cannot resolve an upstream name; its last known addresses stay in use, if it had any");
            }
            (Change::None | Change::Failing, _) => {}
        }
    }

    /// Replies to the requests whose sources were all looked up.
    fn reply(&mut self) {
        let known = &self.known;
        self.requests.retain(|request| {
            let is_settled = known.is_settled(&request.sources);
            if is_settled {
                // Sending fails when the caller is gone, and then the reply with it.
                request.reply.send(known.endpoints(&request.sources)).ok();
            }
            !is_settled
        });
    }

    /// Publishes the endpoints of the followed settings when they have changed. Names that were never looked up are
    /// waited for, so that a changed file does not take endpoints away before there are others.
    fn publish(&mut self) {
        let Some(followed) = &mut self.followed else { return };
        if !self.known.is_settled(&followed.sources) {
            return;
        }
        let endpoints = self.known.endpoints(&followed.sources);
        let resolved = endpoints.iter().filter(|endpoint| endpoint.address != Address::Unresolved).count();
        followed.count.set(i64::try_from(resolved).unwrap_or(i64::MAX));
        if endpoints != followed.published {
            followed.published.clone_from(&endpoints);
            (self.publish)(Discovered { upstream: Arc::clone(&self.upstream), epoch: followed.epoch, endpoints });
        }
    }
}

impl Followed {
    fn has_file(&self) -> bool {
        matches!(self.settings.sources, Sources::File { .. })
    }
}
