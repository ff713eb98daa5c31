//! Waiting for a condition: polled until it holds, with one time-out for all tests. The longer it takes, the longer the
//! sleeps: a look often is a request for metrics, which takes milliseconds of a processor.

use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time that any condition may take. A loaded machine is slow; a broken program never gets there.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Shortest sleep between two looks: what is nearly there is found at once.
const SHORTEST: Duration = Duration::from_millis(2);
/// Longest sleep between two looks.
const LONGEST: Duration = Duration::from_millis(100);
/// Part of the time waited so far that is slept until the next look: a wait gets longer by this part at most.
const PART: u32 = 20;

/// Flag that is set when this is dropped, also by a panic. Threads of a scope that go on until their flag is set would
/// otherwise never end when the test fails, and the test with them.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// With `what` when it does not hold within a minute.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// Waits until a condition holds, however long it takes on a busy machine, as long as there is progress.
///
/// # Panics
/// With `what` when it does not hold, and the value of `progress` has not changed for a minute.
#[track_caller]
pub fn eventually_by<P: PartialEq>(what: &str, mut progress: impl FnMut() -> P, mut holds: impl FnMut() -> bool) {
    let (mut seen, mut since) = (progress(), Instant::now());
    while !holds() {
        let now = progress();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < TIMEOUT, "no progress for {} s waiting until {what}", TIMEOUT.as_secs());
        sleep(since);
    }
}

/// Waits until `look` finds a value, and returns the value.
///
/// # Panics
/// With `what` when there is none within a minute.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < TIMEOUT, "timed out after {} s waiting until {what}", TIMEOUT.as_secs());
        sleep(begun);
    }
}

/// Waits for a process to end, and returns its exit status; kills it after a minute.
#[track_caller]
pub fn exit_status(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None if begun.elapsed() < TIMEOUT => sleep(begun),
            None => {
                child.kill().unwrap();
                panic!("timed out after {} s waiting for a process to end", TIMEOUT.as_secs());
            }
        }
    }
}

/// Sleeps until the next look of a wait that began then.
fn sleep(begun: Instant) {
    std::thread::sleep((begun.elapsed() / PART).clamp(SHORTEST, LONGEST));
}
