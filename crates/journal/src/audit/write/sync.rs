//! Types that the threads of a journal share beside the lock of its pending lines. The search of all interleavings
//! (`crates/simulation/threads`) puts others in their place, so that the files that use them are checked as they are.

pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicU8, Ordering};

pub(super) use tokio::sync::Notify;
