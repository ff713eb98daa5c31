//! The thread that keeps house once a second, so that neither requests nor commits wait for it.
//!
//! It closes a segment that has grown old, seals and indexes what was closed, removes what retention no longer keeps,
//! and, while writing fails, tries whether there is room again, so that readiness returns without traffic.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use crate::audit::format::event;
use crate::audit::format::frame;
use crate::audit::format::seal;
use crate::audit::index::Indexer;
use crate::audit::write::retention;
use crate::audit::write::writer::{Output, Shared};
use crate::clock;

/// How often house is kept.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the other end of `stop` is gone.
pub(crate) fn run(shared: &Shared, mut indexer: Indexer, stop: &Receiver<()>) {
    loop {
        keep_house(shared, &mut indexer, stop);
        if stop.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn keep_house(shared: &Shared, indexer: &mut Indexer, stop: &Receiver<()>) {
    if shared.poisoned.load(Ordering::Relaxed) {
        return;
    }
    let (number, length) = {
        let mut output = shared.output();
        renew(shared, &mut output).unwrap_or_else(|error| tracing::debug!(%error, "there is no room yet"));
        (output.number, output.length)
    };
    seal_closed(shared, number);
    while stop.try_recv() == Err(TryRecvError::Empty) && indexer.catch_up((number, length), clock::now()) {}
    retention::apply(shared, number, indexer);
}

/// Begins a new segment when the old one is old, and tries whether a journal that failed can be written again.
fn renew(shared: &Shared, output: &mut Output) -> io::Result<()> {
    if shared.failing.load(Ordering::Relaxed) {
        output.probe()?;
        shared.heal();
    }
    if output.is_due(&shared.settings, 0) {
        shared.flush(output)?;
    }
    Ok(())
}

/// Digests the segments that were closed and appends their seals.
fn seal_closed(shared: &Shared, current: u64) {
    let closed: Vec<u64> = shared.pending().unsealed.iter().copied().filter(|number| *number < current).collect();
    for number in closed {
        match seal::of(&shared.settings.path, number) {
            Ok(seal) => shared.sealed(number, seal.as_ref()),
            Err(error) => {
                tracing::warn!(%error, segment = number, "a closed segment of the audit journal cannot be sealed");
            }
        }
    }
}

impl Shared {
    fn sealed(&self, number: u64, seal: Option<&event::Seal<'_>>) {
        let mut pending = self.pending();
        if seal.is_none_or(|seal| frame::with_body(seal, |body| pending.append(body)).is_some()) {
            pending.unsealed.retain(|unsealed| *unsealed != number);
        }
        self.metrics.backlog.add(i64::from(seal.is_some()));
        self.wake_committer(&mut pending);
    }
}
