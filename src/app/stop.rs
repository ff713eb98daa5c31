//! Stop of a gateway: lame duck, drain, end; and hand-overs, after which it stops.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::App;
use super::shutdown::{DrainResult, DrainWait, Phase};
use crate::config::{Config, Listener};
use crate::gateway::ProcessEnd;
use control::admin::UpgradeReport;
use journal::audit::Journal;
use state::State;

/// Least lame duck of a gateway that another process has replaced: busy clients learn in it that they are to reconnect.
const HANDOVER_LAME_DUCK: Duration = Duration::from_millis(200);

/// Least time in which the rest of the audit is shipped, when the drain has taken all of its own.
const LEAST_SHIPPING: Duration = Duration::from_secs(1);

/// Time for the streams of other proxies to end without an error, behind the drain.
const STREAMS_END: Duration = Duration::from_millis(500);

impl App {
    /// Starts a new process from a binary, and waits until it has taken over or failed. The log has the reason. When it
    /// has taken over, this gateway is to be stopped ([`App::handed_over`]).
    pub fn upgrade(&self, binary: &Path) {
        match self.handover.upgrades.run(binary) {
            Ok(UpgradeReport { error: None, .. }) => {}
            Ok(UpgradeReport { error: Some(error), .. }) => {
                tracing::error!(error, binary = %binary.display(),
                    "the upgrade failed; this gateway goes on as before");
            }
            Err(error) => tracing::error!(%error, "the upgrade was not begun"),
        }
    }

    /// Becomes true when another process has taken over: then this gateway is to be stopped.
    pub fn handed_over(&self) -> watch::Receiver<bool> {
        self.handover.server.subscribe()
    }

    /// Stops the gateway: lame duck, drain, end. Returns when the journal and the state are flushed and closed.
    pub fn stop(mut self) {
        self.readiness.drain();
        self.process_end.leave();
        let handed_over = *self.handover.server.subscribe().borrow();
        // The process that took over notifies systemd now.
        if !handed_over {
            self.process.notifier.notify_stopping();
        }
        // Ends the reload thread, which is joined below: nothing is reloaded while the gateway drains.
        drop(self.reload);
        let config = Arc::clone(&self.snapshot.load().config);
        let lame_duck = if handed_over {
            // Clients reconnect to the same address, and are served there at once.
            config.lame_duck.max(HANDOVER_LAME_DUCK)
        } else if self.has_lame_duck {
            config.lame_duck
        } else {
            Duration::ZERO
        };
        if !lame_duck.is_zero() {
            self.phase.send_replace(Phase::LameDuck);
            self.drain_wait.wait(lame_duck);
        }
        {
            // A hand-over that goes on decides whether the listening sockets are still those of this process.
            let _turn = self.handover.server.wait_for_turn();
            self.handover.kept.close_for_clients();
            self.phase.send_replace(Phase::Draining);
        }
        let draining = Instant::now();
        match self.drain_wait.wait(config.drain) {
            DrainResult::AllEnded => {}
            DrainResult::Expedited => tracing::warn!("drain cut short by a signal: dropping exchanges in flight"),
            DrainResult::TimedOut => {
                tracing::warn!("drain timed out (timeouts.drain): dropping exchanges in flight");
            }
        }
        end_streams(&config, &self.process_end, &mut self.drain_wait);
        {
            let _turn = self.handover.server.wait_for_turn();
            self.handover.kept.close();
            self.phase.send_replace(Phase::Ending);
        }
        // The workers hold open audit entries and slots, so the stores are closed only when all threads have ended.
        self.threads.into_iter().for_each(join);
        if let Some(access_log) = &self.snapshot.load().access_log {
            access_log.close();
        }
        let exporters = self.snapshot.load().trace_exporters();
        // With the last tracer: now the last spans are sent.
        drop(self.snapshot);
        close(&self.journal, &self.state);
        self.shippers.finish(config.drain.saturating_sub(draining.elapsed()).max(LEAST_SHIPPING));
        exporters.wait();
        // Now nothing can be lost any more. Of a process that was replaced, it is the other one's.
        if *self.handover.server.subscribe().borrow() {
            self.running.leave();
        }
        drop(self.running);
    }
}

/// Ends the streams of other proxies without an error, where there may be some.
fn end_streams(config: &Config, process_end: &ProcessEnd, drain_wait: &mut DrainWait) {
    if config.listen.iter().any(Listener::holds_streams) {
        process_end.end_streams();
        drain_wait.wait(STREAMS_END);
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the gateway panicked");
    }
}

/// Flushes and closes the journal and the state.
fn close(journal: &Journal, state: &State) {
    let closing = async {
        journal.close().await;
        state.close().await;
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(closing),
        Err(error) => tracing::error!(%error, "cannot close the state cleanly; the next start recovers it"),
    }
}
