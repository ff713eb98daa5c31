//! Progress of a hand-over, for the upgrade that waits for its end.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Longest wait, after which the waiting upgrade looks whether its child still runs.
const INTERVAL: Duration = Duration::from_millis(20);

/// Steps that are kept: processes that are refused add steps while no upgrade takes them.
const MAX_STEPS: usize = 100;

/// Progress of the hand-over that goes on.
#[derive(Debug, Default)]
pub(super) struct Progress {
    state: Mutex<ProgressState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ProgressState {
    steps: Vec<String>,
    end: Option<Result<(), String>>,
}

impl Progress {
    pub(super) fn step(&self, step: String) {
        tracing::info!(step, "hand-over");
        let mut state = self.lock();
        if state.steps.len() < MAX_STEPS {
            state.steps.push(step);
        }
    }

    pub(super) fn end(&self, end: Result<(), String>) {
        self.lock().end = Some(end);
        self.changed.notify_all();
    }

    /// Begins anew.
    pub(super) fn reset(&self) {
        *self.lock() = ProgressState::default();
    }

    /// Waits a moment for the end.
    pub(super) fn wait(&self) -> Option<Result<(), String>> {
        let mut state = self.lock();
        self.changed.wait_while_for(&mut state, |state| state.end.is_none(), INTERVAL);
        state.end.clone()
    }

    /// Takes the steps that were made.
    pub(super) fn take_steps(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().steps)
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock()
    }
}
