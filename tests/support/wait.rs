//! Waiting for a condition: polled with short sleeps until it holds, with one time-out for all tests.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time that any condition may take. A loaded machine is slow; a broken program never gets there.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Sleep between two looks: short beside what is waited for, long enough to leave the processor to the servers.
const INTERVAL: Duration = Duration::from_millis(2);

/// Waits until a condition holds.
///
/// # Panics
/// With `what` when it does not hold within a minute.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// Waits until `look` finds a value, and returns the value.
///
/// # Panics
/// With `what` when there is none within a minute.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out after {} s waiting until {what}", TIMEOUT.as_secs());
        std::thread::sleep(INTERVAL);
    }
}

/// Waits for a process to end, and returns its exit status; kills it after a minute.
#[track_caller]
pub fn exit_status(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None if Instant::now() < deadline => std::thread::sleep(INTERVAL),
            None => {
                child.kill().unwrap();
                panic!("timed out after {} s waiting for a process to end", TIMEOUT.as_secs());
            }
        }
    }
}
