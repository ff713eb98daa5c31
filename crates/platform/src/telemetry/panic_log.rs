//! Log of panics: a panic of any thread leaves a line of the log, also when the process ends by it at once.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::time::Duration;

use super::LogHandle;

/// Time for the line to be written before the thread unwinds, or the process aborts.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(250);

/// Has panics be logged.
pub(super) fn install(logs: LogHandle) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if tracing::enabled!(tracing::Level::ERROR) {
            log(info);
            // A second panic of the thread aborts the process.
            logs.flush_within(FLUSH_TIMEOUT);
        } else {
            // The operator's filter has no place for it.
            before(info);
        }
    }));
}

fn log(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let place = info.location().map(ToString::to_string);
    let panic = info.payload_as_str().unwrap_or("without a message");
    // Only when RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(thread, place, panic, backtrace, "a thread has panicked: report this line");
}
