//! Sums of the records of all gateways by key and by route in each hour or day (a rollup), in a file beside this
//! gateway's journal: a page reads the sums of millions of records in milliseconds.
//!
//! - The file has the records from before a moment at which all that deliver had delivered theirs. What came since was
//!   read last and is in memory, and replaced with each refresh.
//! - A thread pulls what is new: when a page is read, and each minute for an hour after that. A page waits for it for
//!   some hundredths of a second, and shows what was there before when it takes longer.
//! - It is derived data: where PostgreSQL has records that came late ([`journal_moves`]), their hours are pulled again;
//!   of another database, all.

mod database;
mod journal_moves;
mod pull;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex};

use super::pool::Fleet;
use crate::audit::index;
use crate::audit::index::lookup::StoredUsage;
use crate::audit::view::status::OwnOnlyReason;

pub(in crate::audit::view) use pull::Recent;

/// Time that a page waits for what is new.
const WAIT: Duration = Duration::from_millis(50);
/// Age of the sums from which on a page has what is new pulled.
const FRESH: Duration = Duration::from_secs(2);
/// Time between two refreshes while no page is read.
const EVERY: Duration = Duration::from_secs(60);
/// Time after the last page for which the sums are kept up to date.
const KEPT_FRESH: Duration = Duration::from_secs(3600);

/// The rollup of one gateway.
#[derive(Debug)]
pub(in crate::audit::view) struct Rollup {
    path: PathBuf,
    fleet: Arc<ArcSwapOption<Fleet>>,
    state: Mutex<State>,
    /// A refresh has ended.
    refreshed: Condvar,
}

#[derive(Debug)]
struct State {
    /// End of the last refresh, and whether it failed.
    last_refresh: Option<(Instant, bool)>,
    /// A refresh is under way, or will be at once.
    is_refreshing: bool,
    recent: Option<Arc<Recent>>,
    /// Time of the last page.
    read: Instant,
    thread: Option<Thread>,
}

impl Rollup {
    /// The rollup in the directory of a journal; nothing is opened yet.
    pub(in crate::audit::view) fn new(directory: PathBuf, fleet: Arc<ArcSwapOption<Fleet>>) -> Self {
        let state =
            State { last_refresh: None, is_refreshing: false, recent: None, read: Instant::now(), thread: None };
        Self { path: directory.join(database::FILE), fleet, state: Mutex::new(state), refreshed: Condvar::new() }
    }

    /// The stored sums, and those that came since.
    ///
    /// # Errors
    /// [`OwnOnlyReason::Unavailable`] when PostgreSQL cannot be read; [`OwnOnlyReason::AddingUp`] while there is too
    /// much to pull.
    pub(in crate::audit::view) fn read(self: &Arc<Self>) -> Result<(StoredUsage, Arc<Recent>), OwnOnlyReason> {
        let until = Instant::now() + WAIT;
        let mut state = self.state.lock();
        state.read = Instant::now();
        if state.last_refresh.is_none_or(|(at, _)| at.elapsed() > FRESH) {
            self.request_refresh(&mut state).map_err(|()| OwnOnlyReason::Unavailable)?;
        }
        while state.is_refreshing && !self.refreshed.wait_until(&mut state, until).timed_out() {}
        loop {
            if state.last_refresh.is_some_and(|(_, has_failed)| has_failed) {
                return Err(OwnOnlyReason::Unavailable);
            }
            // The file has more than what is in memory follows, while a refresh takes several steps.
            let recent = state.recent.clone();
            if let Some(found) = recent.and_then(|recent| Some((self.open(&recent)?, recent))) {
                return Ok(found);
            }
            if self.refreshed.wait_until(&mut state, until).timed_out() {
                return Err(OwnOnlyReason::AddingUp);
            }
        }
    }

    /// Opens the stored sums, if they are those before `recent`.
    fn open(&self, recent: &Recent) -> Option<StoredUsage> {
        let open = || -> rusqlite::Result<Option<StoredUsage>> {
            let Some(found) = index::database::open_file_for_reading(&self.path)? else { return Ok(None) };
            found.execute_batch("BEGIN")?;
            let reach = database::load_reach(&found)?.filter(|reach| reach.until == recent.until);
            Ok(reach.map(|reach| StoredUsage::new(found, reach.since)))
        };
        open().unwrap_or_else(|error| {
            tracing::debug!(%error, "the sums of all gateways' records cannot be read");
            None
        })
    }

    /// Has the thread refresh the sums; starts it when it is not there.
    fn request_refresh(self: &Arc<Self>, state: &mut State) -> Result<(), ()> {
        if state.is_refreshing {
            return Ok(());
        }
        match &state.thread {
            Some(thread) => thread.unpark(),
            None => {
                let this = Arc::downgrade(self);
                let thread = thread::Builder::new().name("usage-rollup".into()).spawn(move || run(&this));
                let failed = |error| tracing::error!(%error, "cannot start the thread that adds up all records");
                state.thread = Some(thread.map_err(failed)?.thread().clone());
            }
        }
        state.is_refreshing = true;
        Ok(())
    }

    /// Brings the sums up to date. Returns whether to go on doing so.
    fn refresh(&self) -> bool {
        let fleet = self.fleet.load_full();
        let pulled = fleet.map(|fleet| pull::refresh(&mut database::open(&self.path)?, &fleet));
        let mut state = self.state.lock();
        let had_failed = state.last_refresh.is_some_and(|(_, failed)| failed);
        state.last_refresh = Some((Instant::now(), matches!(pulled, Some(Err(_)))));
        state.is_refreshing = false;
        let goes_on = pulled.is_some() && state.read.elapsed() < KEPT_FRESH;
        match pulled {
            Some(Ok(recent)) => state.recent = Some(Arc::new(recent)),
            Some(Err(error)) if !had_failed => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "usage of all gateways cannot be read from PostgreSQL; this gateway's is shown"
            ),
            Some(Err(_)) => {}
            None => state.recent = None,
        }
        if !goes_on {
            state.thread = None;
        }
        drop(state);
        self.refreshed.notify_all();
        goes_on
    }
}

impl Drop for Rollup {
    fn drop(&mut self) {
        if let Some(thread) = self.state.get_mut().thread.take() {
            thread.unpark();
        }
    }
}

/// Refreshes the sums until no page has been read for a while.
fn run(rollup: &Weak<Rollup>) {
    while rollup.upgrade().is_some_and(|rollup| rollup.refresh()) {
        thread::park_timeout(EVERY);
    }
}
