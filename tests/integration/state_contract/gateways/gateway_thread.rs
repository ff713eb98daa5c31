//! A gateway on a thread of its own, which can be frozen and killed like a process.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use domain::key::KeyDigest;
use futures_util::future::BoxFuture;
use state::redis::Settings;
use state::{Admitted, Decision, State};
use tokio::sync::{mpsc, oneshot};

use super::{ask, open};

/// A gateway on a thread of its own; dropping it kills the gateway.
pub(super) struct GatewayThread {
    state: Arc<State>,
    jobs: Option<mpsc::UnboundedSender<BoxFuture<'static, ()>>>,
    thread: Option<JoinHandle<()>>,
}

impl GatewayThread {
    pub(super) async fn open(settings: &Settings) -> Self {
        let (jobs, mut queue) = mpsc::unbounded_channel::<BoxFuture<'static, ()>>();
        let (opened, state) = oneshot::channel();
        let settings = settings.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                drop(opened.send(open(&settings).await));
                while let Some(job) = queue.recv().await {
                    tokio::spawn(job);
                }
            });
        });
        Self { state: state.await.unwrap(), jobs: Some(jobs), thread: Some(thread) }
    }

    /// Starts a decision on the gateway's thread.
    pub(super) fn decide(&self, digest: KeyDigest) -> oneshot::Receiver<Decision> {
        let (reply, decision) = oneshot::channel();
        let state = Arc::clone(&self.state);
        self.run(async move { drop(reply.send(ask(&state, &digest).await.unwrap())) });
        decision
    }

    /// Acquires this many slots.
    pub(super) async fn hold(&self, digest: KeyDigest, count: usize) -> Vec<Admitted> {
        let mut held = Vec::new();
        while held.len() < count {
            let Decision::Admitted(admitted) = self.decide(digest).await.unwrap() else { panic!("refused") };
            held.push(admitted);
        }
        held
    }

    /// Blocks the gateway's thread until the sender is used or dropped.
    pub(super) fn freeze(&self) -> std::sync::mpsc::Sender<()> {
        let (thaw, thawed) = std::sync::mpsc::channel();
        self.run(async move { thawed.recv().unwrap_or_default() });
        thaw
    }

    /// Ends the gateway without deregistering it.
    pub(super) fn die(mut self) {
        self.jobs = None;
        self.thread.take().map(JoinHandle::join);
    }

    fn run(&self, job: impl Future<Output = ()> + Send + 'static) {
        self.jobs.as_ref().unwrap().send(Box::pin(job)).unwrap();
    }
}

/// Sleeps, in tests of time itself.
pub(super) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
