//! Witnesses: services that cosign checkpoints once they have seen that each contains the one before (C2SP
//! tlog-witness, cosignature/v1).
//!
//! - Each has a thread of its own. Checkpoints that come while a witness is busy or unavailable are left out: it gets
//!   the newest, with a proof from the one that it has cosigned last.
//! - Nothing waits for a witness.

mod outbox;
mod cosigned;
mod client;
mod session;

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::watch;

use self::cosigned::Cosigned;
use self::outbox::{Outbox, Submission};
use self::session::Session;
use super::journal_tree::TreeHead;
use super::writer::JournalWriter;
use crate::audit::settings::Witness;
use tlog::checkpoint::SignedCheckpoint;

/// The witnesses of a journal. Dropped, it ends their threads.
pub(crate) struct Witnesses {
    outboxes: Vec<Arc<Outbox>>,
    threads: Vec<JoinHandle<()>>,
    /// Dropping it ends the threads.
    stop: Option<watch::Sender<()>>,
}

impl Witnesses {
    /// Starts a thread for each witness.
    pub(crate) fn start(writer: &Arc<JournalWriter>, witnesses: &[Witness]) -> Self {
        let (stop, stopped) = watch::channel(());
        let cosigned = Arc::new(Cosigned::default());
        let mut started = Self { outboxes: Vec::new(), threads: Vec::new(), stop: Some(stop) };
        for witness in witnesses {
            let outbox = Arc::new(Outbox::default());
            match start_thread(writer, witness, (&outbox, &cosigned), stopped.clone()) {
                Ok(thread) => {
                    started.outboxes.push(outbox);
                    started.threads.push(thread);
                }
                Err(error) => {
                    tracing::error!(%error, witness = %witness.url.uri(), "cannot start the thread of a witness")
                }
            }
        }
        started
    }

    /// Submits a checkpoint to all.
    pub(crate) fn submit(&self, signed: &SignedCheckpoint, head: &TreeHead) {
        for outbox in &self.outboxes {
            outbox.put(Submission { signed: signed.clone(), whole: head.whole.clone(), since: head.since.clone() });
        }
    }
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("the thread of a witness has panicked");
            }
        }
    }
}

fn start_thread(
    writer: &Arc<JournalWriter>,
    witness: &Witness,
    (outbox, cosigned): (&Arc<Outbox>, &Arc<Cosigned>),
    mut stopped: watch::Receiver<()>,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut session = Session::new(Arc::clone(writer), witness.clone(), Arc::clone(cosigned))?;
    let outbox = Arc::clone(outbox);
    std::thread::Builder::new().name("audit-witness".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                // Its sender never sends: it ends when the sender is dropped.
                _ = stopped.changed() => {}
                () = session.run(&outbox) => {}
            }
        });
        // The resolution of a name may hang in a thread of the runtime.
        runtime.shutdown_background();
    })
}
