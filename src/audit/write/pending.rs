//! What is on its way to the file: the lines not yet written, the uses not yet ended, and the number of the next line.
//!
//! Everything here happens under one short lock, and its order is the order of the journal:
//! - a line gets its number when it is appended, and is written in that order;
//! - an outcome is appended only while its use is open, so there is never a second one, nor one without a use;
//! - when lines could not be written, those that refuse a request by it are withdrawn, the others keep their order under
//!   new numbers, so the journal has no gap.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::audit::format::event::{Header, Open, OutcomeEvent};
use crate::audit::format::frame;
use crate::audit::format::frame::Body;
use crate::audit::format::line::{self, Kind};

/// Bytes of outcomes kept while the file cannot be written: some 200,000 requests that were in flight when it failed.
pub(crate) const KEPT: usize = 64 << 20;

/// Whether lines are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// A sync has failed: what the kernel said it had may be gone, and no later sync would tell. Until a restart.
    Poisoned,
    Closed,
}

/// What becomes of the lines that are written together; each that waits for one of them holds it.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    state: AtomicU8,
    done: Notify,
}

/// What became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Written,
    Failed,
}

/// The lines that were taken to be written together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) lines: Vec<u8>,
    /// The number of the first.
    first: u64,
    pub(crate) events: i64,
    /// Whether they begin with a header, and so with a new segment.
    pub(crate) header: bool,
    pub(crate) attempts: u64,
    pub(crate) ticket: Arc<Ticket>,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) phase: Phase,
    lines: Vec<u8>,
    /// The number of the first pending line, and of the next one to be appended.
    first: u64,
    next: u64,
    pub(crate) events: i64,
    /// Attempts among the events: nobody waits to learn of them, they are counted by what becomes of the batch.
    attempts: u64,
    /// Whether the pending lines begin with a header.
    header: bool,
    /// The segment the pending lines will be in.
    pub(crate) segment: u64,
    /// Closed segments without a seal.
    pub(crate) unsealed: Vec<u64>,
    pub(crate) open: FxHashMap<u128, Open>,
    ticket: Arc<Ticket>,
    /// The committer waits for the first event.
    pub(crate) asleep: bool,
    /// Somebody waits for a sync.
    pub(crate) urgent: bool,
}

impl Ticket {
    pub(crate) fn fate(&self) -> Option<Fate> {
        match self.state.load(Ordering::Acquire) {
            1 => Some(Fate::Written),
            2 => Some(Fate::Failed),
            _ => None,
        }
    }

    pub(crate) fn resolve(&self, fate: Fate) {
        self.state.store(if fate == Fate::Written { 1 } else { 2 }, Ordering::Release);
        self.done.notify_waiters();
    }

    /// Waits until the fate is known.
    pub(crate) async fn resolved(&self) -> Fate {
        loop {
            let mut done = std::pin::pin!(self.done.notified());
            done.as_mut().enable();
            if let Some(fate) = self.fate() {
                return fate;
            }
            done.await;
        }
    }
}

impl Pending {
    /// Nothing pending, where the journal goes on.
    pub(crate) fn new(segment: u64, next: u64, open: FxHashMap<u128, Open>, unsealed: Vec<u64>) -> Self {
        Self {
            phase: Phase::Running,
            lines: Vec::new(),
            first: next,
            next,
            events: 0,
            attempts: 0,
            header: false,
            segment,
            unsealed,
            open,
            ticket: Arc::default(),
            asleep: false,
            urgent: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn push(&mut self, body: Body<'_>) {
        body.frame(self.next, &mut self.lines);
        self.next += 1;
        self.events += 1;
    }

    /// Appends the beginning of a use, which is open from now on.
    pub(crate) fn begin(&mut self, body: Body<'_>, open: Open) -> Option<Arc<Ticket>> {
        let segment = self.segment;
        let ticket = self.append(body)?;
        self.open.insert(open.id.as_u128(), Open { segment, ..open });
        Some(ticket)
    }

    /// Appends a line that opens nothing; none when no lines are taken any more.
    pub(crate) fn append(&mut self, body: Body<'_>) -> Option<Arc<Ticket>> {
        (self.phase == Phase::Running).then_some(())?;
        self.push(body);
        Some(Arc::clone(&self.ticket))
    }

    /// Appends an attempt.
    pub(crate) fn attempt(&mut self, body: Body<'_>) -> bool {
        let appended = self.append(body).is_some();
        self.attempts += u64::from(appended);
        appended
    }

    /// Appends the end of a use if it is open. False when there is no room for it: it stays open until a restart.
    pub(crate) fn end(&mut self, body: Body<'_>, id: Uuid) -> bool {
        if self.phase != Phase::Running {
            return true;
        }
        if self.lines.len() > KEPT {
            return false;
        }
        if self.open.remove(&id.as_u128()).is_some() {
            self.push(body);
        }
        true
    }

    /// Takes all that is pending, in exchange for an empty buffer.
    pub(crate) fn take(&mut self, spare: Vec<u8>) -> Batch {
        self.urgent = false;
        Batch {
            lines: mem::replace(&mut self.lines, spare),
            first: mem::replace(&mut self.first, self.next),
            events: mem::take(&mut self.events),
            header: mem::take(&mut self.header),
            attempts: mem::take(&mut self.attempts),
            ticket: mem::take(&mut self.ticket),
        }
    }

    /// Begins a new segment: what is appended from now on is in it. Only when nothing is pending.
    pub(crate) fn begin_segment(&mut self, gateway: &str, created: crate::clock::Micros) {
        debug_assert!(self.is_empty(), "a header is the first line of its segment");
        if self.segment > 0 {
            self.unsealed.push(self.segment);
        }
        self.segment += 1;
        self.header = true;
        let header = Header {
            e: Kind::Header,
            segment: self.segment,
            created,
            gateway: gateway.into(),
            unsealed: self.unsealed.clone().into(),
            open: self.open.values().copied().collect(),
        };
        frame::with_body(&header, |body| self.push(body));
    }

    /// Takes back a batch that was not written. Whoever waits for a use or a record in it learns that by its ticket;
    /// their lines are withdrawn. What ends a use that is in the journal is kept.
    pub(crate) fn put_back(&mut self, batch: &Batch) {
        let withdrawn = self.withdraw(&batch.lines);
        let newer = mem::take(&mut self.lines);
        self.next = batch.first;
        self.first = batch.first;
        self.events = 0;
        if self.header && !batch.header {
            self.unbegin_segment();
        }
        self.header = batch.header;
        let keep_header = batch.header;
        self.keep(&batch.lines, |kind, id| match kind {
            Kind::Header => keep_header,
            Kind::Seal => true,
            Kind::Outcome => !id.is_some_and(|id| withdrawn.contains(&id)),
            Kind::Use | Kind::Record => false,
        });
        self.keep(&newer, |kind, id| match kind {
            Kind::Header => false,
            Kind::Outcome => !id.is_some_and(|id| withdrawn.contains(&id)),
            Kind::Seal | Kind::Use | Kind::Record => true,
        });
    }

    /// Forgets the uses that begin in these lines.
    fn withdraw(&mut self, lines: &[u8]) -> FxHashSet<u128> {
        let uses = line::lines(lines).filter(|(_, line)| line::kind(line) == Some(Kind::Use));
        let ids: FxHashSet<u128> = uses.filter_map(|(_, line)| line::id(line)).collect();
        for id in &ids {
            self.open.remove(id);
        }
        ids
    }

    fn unbegin_segment(&mut self) {
        self.segment -= 1;
        self.unsealed.retain(|number| *number != self.segment);
        for open in self.open.values_mut() {
            open.segment = open.segment.min(self.segment);
        }
    }

    fn keep(&mut self, lines: &[u8], wanted: impl Fn(Kind, Option<u128>) -> bool) {
        for (_, line) in line::lines(lines) {
            let kept = line::kind(line).is_some_and(|kind| wanted(kind, line::id(line)));
            if let Some(body) = frame::body(line).filter(|_| kept) {
                self.push(body);
            }
        }
    }

    /// Appends the end of every open use: their gateway is gone.
    pub(crate) fn abort_all(&mut self, ended: impl Fn(&Open) -> OutcomeEvent) -> usize {
        let mut open: Vec<Open> = self.open.drain().map(|(_, open)| open).collect();
        open.sort_unstable_by_key(|open| open.time);
        for open in &open {
            frame::with_body(&ended(open), |body| self.push(body));
        }
        open.len()
    }
}
