//! `crates/upstream/src/connection/limits/sync.rs`, by `loom`.

pub(crate) use std::sync::Arc;

pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::Relaxed};

/// A mutant: wake-ups are stored, and do not synchronize with one another.
pub(crate) static STORES: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// A lock, with the interface of `parking_lot`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// A wake-up that is kept until it is taken, as `notify_one` of tokio promises: it synchronizes with who takes it.
#[derive(Debug, Default)]
pub(crate) struct Notify(AtomicBool);

/// The product waits by tokio; these tests look.
pub(crate) struct Notified<'a>(&'a Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        // A store would not: a second wake-up would hide what the first one synchronizes with, and a request would wait
        // for ever. tokio exchanges it as well, also where it is set already.
        if STORES.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Release);
        } else {
            self.0.swap(true, Ordering::AcqRel);
        }
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        Notified(self)
    }
}

impl Notified<'_> {
    /// Takes the wake-up, if there is one.
    pub(crate) fn take(&self) -> bool {
        self.0.0.swap(false, Ordering::AcqRel)
    }
}
