//! Types that the threads of a limiter share. The search of all interleavings (`crates/simulation/threads`) puts others
//! in their place, so that the files beside this one are checked as they are.

pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(super) use parking_lot::{Mutex, MutexGuard};
pub(super) use tokio::sync::Notify;
pub(super) use tokio::sync::futures::Notified;
