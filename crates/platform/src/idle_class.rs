//! Work that gives way to everything else: in the idle scheduling class (`SCHED_IDLE`, sched(7)) it has a core while no
//! other thread wants it, and gives it up as soon as one does.
//!
//! - Each piece of work has a thread of its own: without a privilege there is no way back from the class.
//! - The work must take no lock that others wait for: on a busy machine they would wait for the core as well.

use std::io;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// Interval at which the caller is asked whether to go on.
const INTERVAL: Duration = Duration::from_millis(50);
/// Time in which work should be done for each MiB, ten times what compressing one takes: other programs may keep all
/// cores busy for ever.
const PATIENCE_PER_MIB: Duration = Duration::from_millis(150);
/// Bytes of work that is done in the calling thread: on a full machine a thread of the idle class takes longer to give
/// up.
const SMALL: u64 = 1 << 20;

/// Runs work on so many bytes in the idle class, and waits for it. Work that has given up there, with `None`, because
/// it `is_hurried` or has had its time, begins anew in the calling thread, as long as `proceed` says so; small work
/// begins there. Both are asked by that thread; the work is given what it has to ask.
///
/// # Errors
/// Those of the work.
///
/// # Panics
/// The work has panicked.
pub fn run<T: Send>(
    name: &str,
    bytes: u64,
    proceed: impl Fn() -> bool,
    is_hurried: impl Fn() -> bool,
    work: impl Fn(&dyn Fn() -> bool) -> io::Result<Option<T>> + Sync,
) -> io::Result<Option<T>> {
    let begun = Instant::now();
    let patience = PATIENCE_PER_MIB.mul_f64(bytes as f64 / (1 << 20) as f64);
    let waits = || bytes > SMALL && proceed() && !is_hurried() && begun.elapsed() < patience;
    match run_idle(name, waits, &work)? {
        None if proceed() => work(&proceed),
        result => Ok(result),
    }
}

/// Runs work in the idle class; `None` when it has given up, or was not begun.
fn run_idle<T: Send>(
    name: &str,
    waits: impl Fn() -> bool,
    work: &(impl Fn(&dyn Fn() -> bool) -> io::Result<Option<T>> + Sync),
) -> io::Result<Option<T>> {
    if !waits() {
        return Ok(None);
    }
    let goes_on = AtomicBool::new(true);
    let (done, finished) = mpsc::channel();
    thread::scope(|scope| {
        let goes_on = &goes_on;
        let run = move || {
            enter();
            let result = work(&|| goes_on.load(Ordering::Relaxed));
            done.send(result).expect("the caller waits for it");
        };
        let Ok(thread) = Builder::new().name(name.to_owned()).spawn_scoped(scope, run) else { return Ok(None) };
        loop {
            match finished.recv_timeout(INTERVAL) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => goes_on.store(waits(), Ordering::Relaxed),
                // It ends without a result only if it panics.
                Err(RecvTimeoutError::Disconnected) => match thread.join() {
                    Err(payload) => panic::resume_unwind(payload),
                    Ok(()) => unreachable!("it has sent its result"),
                },
            }
        }
    })
}

/// Puts the calling thread into the idle class, where that is allowed.
fn enter() {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy) {
        tracing::debug!(?error, "the thread stays in the normal scheduling class");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Bytes that have a minute and more.
    const LONG: u64 = 1 << 30;

    #[test]
    fn work_is_of_the_idle_class_and_its_caller_is_not() {
        // The policy is field 41 (proc_pid_stat(5)), the 39th behind the name: SCHED_IDLE is 5, SCHED_OTHER 0.
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned()
        };
        let idle = run("idle", LONG, || true, || false, |_| Ok(Some(policy()))).unwrap().unwrap();
        assert_eq!((&*idle, &*policy()), ("5", "0"));
        let hurried = run("idle", LONG, || true, || true, |_| Ok(Some(policy()))).unwrap().unwrap();
        let small = run("idle", SMALL, || true, || false, |_| Ok(Some(policy()))).unwrap().unwrap();
        assert_eq!((&*hurried, &*small), ("0", "0"));
    }

    /// Works until it is told to give up; says in which thread it then is.
    fn until_told(proceed: &dyn Fn() -> bool) -> io::Result<Option<String>> {
        let name = thread::current().name().unwrap_or_default().to_owned();
        while name == "idle" && proceed() {
            thread::yield_now();
        }
        Ok((name != "idle").then_some(name))
    }

    #[test]
    fn hurried_work_begins_anew_in_the_thread_of_the_caller() {
        let asked = AtomicUsize::new(0);
        let is_hurried = || asked.fetch_add(1, Ordering::Relaxed) > 0;
        let done = run("idle", LONG, || true, is_hurried, until_told).unwrap();
        assert_eq!(done.as_deref(), thread::current().name());
        let waited = run("idle", SMALL + 1, || true, || false, until_told).unwrap();
        assert_eq!(waited.as_deref(), thread::current().name());
        let asked = AtomicUsize::new(0);
        let proceed = || asked.fetch_add(1, Ordering::Relaxed) == 0;
        assert_eq!(run("idle", LONG, proceed, || false, until_told).unwrap(), None, "it is to end");
    }

    #[test]
    fn panic_of_the_work_is_that_of_the_caller() {
        let ended = panic::catch_unwind(|| run::<()>("idle", LONG, || true, || false, |_| panic!("as the test wants")));
        assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"as the test wants"));
    }
}
