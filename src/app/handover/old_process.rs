//! The old process of a hand-over: offers its place, and takes everything back when nothing comes of it.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::channel::{Channel, MAX_FILES, STEP_TIMEOUT};
use super::link;
use super::message::{FromNew, FromOld, Hello, Identity, VERSION};
use super::peer::PeerProcess;
use super::progress::Progress;
use super::steps::{Service, expect, wait_for_service};
use crate::app::listeners::KeptListeners;
use crate::app::shutdown::Phase;
use crate::app::systemd::ServiceNotifier;
use crate::app::worker_pool::{WorkerCommand, WorkerPool};
use crate::config::Config;
use domain::counted::Counted;
use edge::transport::ListenerRelease;
use journal::audit::Journal;
use journal::shipping::Shippers;
use state::State;
use state::embedded::SuccessorRequest;

/// Time for all workers to run another task.
const BARRIER_TIMEOUT: Duration = Duration::from_secs(2);

/// The parts of a gateway that are handed over.
pub(crate) struct HandoverParts {
    pub(crate) listeners: Arc<KeptListeners>,
    pub(crate) release: ListenerRelease,
    pub(crate) state: Arc<State>,
    pub(crate) journal: Journal,
    pub(crate) shippers: Arc<Shippers>,
    pub(crate) workers: WorkerPool,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) notifier: ServiceNotifier,
}

/// Offers the place of this process to others, one at a time.
pub(crate) struct HandoverServer {
    parts: HandoverParts,
    /// True while the process that this one took over from has not ended.
    predecessor: Option<Arc<AtomicBool>>,
    identity: Identity,
    pub(super) progress: Progress,
    /// Becomes true when the place was handed over; this process then drains.
    handed_over: watch::Sender<bool>,
    /// Held by the hand-over that goes on.
    turn: Mutex<()>,
}

impl HandoverServer {
    pub(crate) fn new(config: &Config, parts: HandoverParts, predecessor: Option<Arc<AtomicBool>>) -> Arc<Self> {
        let identity = Identity::new(config);
        let handed_over = watch::Sender::new(false);
        Arc::new(Self {
            parts,
            predecessor,
            identity,
            progress: Progress::default(),
            handed_over,
            turn: Mutex::default(),
        })
    }

    /// Becomes true when the place was handed over.
    pub(crate) fn subscribe(&self) -> watch::Receiver<bool> {
        self.handed_over.subscribe()
    }

    /// Waits for the hand-over that goes on to end. While the result is held, none begins.
    pub(crate) fn wait_for_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Serves a connection of a process that wants to take over, on a thread of its own. `process` is its id, when it
    /// is in this PID namespace.
    pub(crate) fn serve(self: &Arc<Self>, stream: UnixStream, process: Option<u32>) {
        let server = Arc::clone(self);
        let run = move || {
            if let Err(error) = server.hand_over(stream, PeerProcess::new(process)) {
                tracing::error!(error = format!("{error:#}"), "no process took over; this gateway goes on as before");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("handover".into()).spawn(run) {
            tracing::error!(%error, "cannot start the thread of a hand-over");
        }
    }

    fn hand_over(&self, stream: UnixStream, peer: PeerProcess) -> anyhow::Result<()> {
        let mut channel = Channel::new(stream)?;
        channel.set_timeout(Some(STEP_TIMEOUT))?;
        let (hello, _) = channel.receive::<Hello>().context("the new process sent no greeting")?;
        if let Some(reason) = self.refusal(&hello) {
            return self.refuse(&channel, peer, reason);
        }
        let Some(_turn) = self.turn.try_lock() else {
            return self.refuse(&channel, peer, "another process takes over from it right now".to_owned());
        };
        // The hand-over before may have ended only now.
        if let Some(reason) = self.refusal(&hello) {
            return self.refuse(&channel, peer, reason);
        }
        let ended = self.hand_over_to(channel, &hello, peer);
        // Only here: a connection without a turn does not end an upgrade that waits.
        if let Err(error) = &ended {
            self.progress.end(Err(format!("{error:#}")));
        }
        ended
    }

    fn hand_over_to(&self, mut channel: Channel, hello: &Hello, peer: PeerProcess) -> anyhow::Result<()> {
        self.progress.step(format!("{peer} (version {}) takes over", hello.program));
        self.offer_listeners(&channel)?;
        expect(&channel, &FromNew::Ready).context("the new process did not get ready")?;
        self.progress.step("the new process is ready; this one stops deciding".to_owned());
        // Before requests wait: the journal is shipped by the process that has it.
        self.parts.shippers.suspend();
        if let Err(error) = self.pass_locks(&channel) {
            self.take_back();
            return Err(error);
        }
        self.progress.step("the new process has the state and the journal".to_owned());
        match wait_for_service(&mut channel, peer) {
            Service::Begun => self.finish(channel, peer),
            // It has recorded nothing, so that it has decided nothing either.
            Service::Ended(error) if self.parts.journal.is_untouched() => {
                self.take_back();
                return Err(error).context("the new process took over, and ended before it served");
            }
            Service::Ended(error) => {
                self.give_up(&error, "the process that took over has ended; this gateway drains: restart it");
            }
            Service::Unknown(error) => self.give_up(
                &error,
                "the process that took over hangs, and cannot be ended from here; this gateway drains: end that \
                 process, and restart the gateway",
            ),
        }
        Ok(())
    }

    /// Leaves its place, although no process is known to have it: what the other one has recorded must not be lost.
    fn give_up(&self, error: &io::Error, advice: &'static str) {
        drop(self.leave());
        self.progress.end(Err(format!("{advice} ({error})")));
        tracing::error!(%error, "{advice}");
    }

    /// Reason why this process may not take over; none when it may.
    fn refusal(&self, hello: &Hello) -> Option<String> {
        let phase = *self.parts.phase.borrow();
        let differences = self.identity.differences(&hello.identity);
        let has_predecessor = self.predecessor.as_ref().is_some_and(|alive| alive.load(Ordering::Relaxed));
        if hello.version != VERSION {
            let version = hello.version;
            Some(format!(
                "it hands over by version {VERSION} of the protocol, and not by version {version}; stop it first"
            ))
        } else if !differences.is_empty() {
            let keys = differences.join(", ");
            Some(format!("it has another configuration ({keys}), which needs a restart; stop it first"))
        } else if *self.handed_over.borrow() {
            Some("another process took over from it already".to_owned())
        } else if phase == Phase::Serving && !hello.replaces {
            Some("it is in full service; `keygate upgrade` replaces it, SIGTERM stops it".to_owned())
        } else if phase == Phase::Ending {
            Some("it is about to end; try again".to_owned())
        } else if has_predecessor {
            Some("the process that it replaced still serves its last requests; try again later".to_owned())
        } else {
            None
        }
    }

    /// Refuses a process. This is no failure of the gateway.
    fn refuse(&self, channel: &Channel, peer: PeerProcess, reason: String) -> anyhow::Result<()> {
        self.progress.step(format!("{peer} may not take over from this gateway: {reason}"));
        Ok(channel.send(&FromOld::Refused { reason })?)
    }

    fn offer_listeners(&self, channel: &Channel) -> anyhow::Result<()> {
        self.parts.listeners.for_each(|place, is_shared, files| {
            files.chunks(MAX_FILES).try_for_each(|files| {
                let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
                channel.send_with_files(&FromOld::Listeners { place, is_shared }, &files)
            })
        })?;
        Ok(channel.send(&FromOld::Offered)?)
    }

    /// Freezes the gateway, and passes copies of its locks, until the new process is prepared.
    fn pass_locks(&self, channel: &Channel) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let mut locks = Vec::new();
        if let State::Embedded(state) = &*self.parts.state {
            // Most of it before requests wait.
            runtime.block_on(state.write_back());
            state.freeze();
            self.wait_for_workers()?;
            let paused = runtime.block_on(async { timeout(STEP_TIMEOUT, state.pause_writing()).await });
            paused.context("the state was not written back in time")?.context("cannot write the state back")?;
            locks.push(state.share_lock()?);
        }
        locks.push(self.parts.journal.hand_over().context("cannot hand the audit journal over")?);
        let files: Vec<_> = locks.iter().map(|lock| lock.as_fd()).collect();
        channel.send_with_files(&FromOld::Locks, &files)?;
        expect(channel, &FromNew::Prepared).context("the new process could not read the state in time")?;
        Ok(channel.send(&FromOld::Commit)?)
    }

    /// Waits until every worker has run another task: what was being decided is decided then.
    fn wait_for_workers(&self) -> anyhow::Result<()> {
        let acks = self.parts.workers.broadcast(BARRIER_TIMEOUT, WorkerCommand::Ping);
        if acks.timed_out > 0 {
            bail!("{} did not respond in time", Counted(acks.timed_out, "worker"));
        }
        Ok(())
    }

    /// Goes on as if nothing had happened.
    fn take_back(&self) {
        if let Err(error) = self.parts.journal.take_back() {
            tracing::error!(%error, "cannot append the last lines to the audit journal; the next start does: restart \
                                     soon");
        }
        if let State::Embedded(state) = &*self.parts.state {
            state.unfreeze();
        }
        self.parts.shippers.resume();
    }

    /// Leaves its place to the new process, and asks it for decisions from then on.
    fn finish(&self, channel: Channel, peer: PeerProcess) {
        let requests = self.leave();
        let linked = channel
            .send(&FromOld::Relinquished)
            .and_then(|()| link::forward_requests(channel, Arc::clone(&self.parts.state), requests));
        if let Err(error) = linked {
            tracing::error!(%error, "cannot ask the process that took over; requests that still arrive here fail");
        }
        tracing::info!(%peer, "another process took over");
        // Behind the link: this waits while systemd reads nothing, and requests must not. Of another PID namespace,
        // systemd does not know the process either.
        if let Some(pid) = peer.id() {
            self.parts.notifier.notify_main_process(pid);
        }
        self.progress.step("the new process serves; this one drains".to_owned());
        self.progress.end(Ok(()));
    }

    /// Leaves the locks and the listening sockets to the new process, and begins to drain. Returns what is asked of it.
    fn leave(&self) -> mpsc::UnboundedReceiver<SuccessorRequest> {
        let (successor, requests) = mpsc::unbounded_channel();
        self.parts.journal.leave();
        if let State::Embedded(state) = &*self.parts.state {
            state.hand_over(successor);
        }
        self.parts.release.release();
        self.parts.listeners.close();
        self.handed_over.send_replace(true);
        requests
    }
}
