//! Signals that end the process: each leaves a line of the log first.
//!
//! - These are the signals whose default is to end the process, and that a program may catch, without those that
//!   keygate has a use for. Afterwards the process ends as by default: aborted (SIGQUIT, SIGABRT), or with exit
//!   code 128 and the number.
//! - An abort of the process itself goes on as if nothing was caught: the C library raises SIGABRT once more.
//! - Nothing can be logged at SIGKILL, of which the next start tells, nor, without `unsafe`, at a fault (SIGSEGV,
//!   SIGBUS, SIGILL, SIGFPE): its handler may do almost nothing, and must not return. The standard library tells of an
//!   overflow of the stack.
//! - A signal that is ignored at the start, as for a program in the background of a shell, stays ignored; and so do all
//!   for the first process of a container, where the kernel ignores them.

use std::io;

use futures_util::future::select_all;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::LogHandle;

/// Signals by their names.
const SIGNALS: [(&str, Signal); 13] = [
    ("SIGQUIT", Signal::QUIT),
    ("SIGABRT", Signal::ABORT),
    ("SIGTRAP", Signal::TRAP),
    ("SIGSYS", Signal::SYS),
    ("SIGUSR1", Signal::USR1),
    ("SIGALRM", Signal::ALARM),
    ("SIGVTALRM", Signal::VTALARM),
    ("SIGPROF", Signal::PROF),
    ("SIGIO", Signal::IO),
    ("SIGXCPU", Signal::XCPU),
    ("SIGXFSZ", Signal::XFSZ),
    ("SIGSTKFLT", Signal::STKFLT),
    ("SIGPWR", Signal::POWER),
];

/// Has the signals be logged, by a thread of its own: whatever the others do, it is there.
///
/// # Errors
/// The operating system refuses a handler, or the thread.
pub fn log_fatal_signals(logs: &LogHandle) -> io::Result<()> {
    if std::process::id() == 1 {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let ignored = ignored_signals();
    let caught = SIGNALS.iter().filter(|(_, signal)| ignored >> (signal.as_raw() - 1) & 1 == 0);
    let streams = caught.map(|(name, kind)| Ok((*name, *kind, signal(SignalKind::from_raw(kind.as_raw()))?)));
    let streams: Vec<_> = streams.collect::<io::Result<_>>()?;
    drop(entered);
    let logs = logs.clone();
    std::thread::Builder::new().name("fatal-signals".into()).spawn(move || {
        let received = streams.into_iter().map(|(name, kind, mut stream)| {
            Box::pin(async move {
                stream.recv().await;
                (name, kind)
            })
        });
        let ((signal, kind), ..) = runtime.block_on(select_all(received));
        tracing::error!(signal, "received a signal that ends the process at once; SIGTERM stops it in good order");
        logs.flush();
        match kind {
            // With a core dump, where they are on.
            Signal::QUIT | Signal::ABORT => std::process::abort(),
            kind => std::process::exit(128 + kind.as_raw()),
        }
    })?;
    Ok(())
}

/// The signals that the process ignores, as a mask (`proc_pid_status(5)`); none when it is unknown.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
