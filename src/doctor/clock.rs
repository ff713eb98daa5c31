//! Check of the clock: synchronization, and steps since the gateway was started. Audit records, sessions and the
//! embedded state take their times from it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::environment::Environment;
use super::finding::Findings;
use super::proc_files::{parse_boot_time, parse_start_ticks};
use super::read_files;
use super::running_gateway::RunningGateway;

/// Ticks in a second (`USER_HZ`): the same on all architectures that this program is built for.
const TICKS_PER_SECOND: u64 = 100;
/// Change of the clock, in seconds, that is a step: both times are rounded to seconds.
const STEP: i64 = 2;
/// File that systemd-timesyncd touches when the clock is synchronized.
const TIMESYNC_STAMP: &str = "/run/systemd/timesync/synchronized";

/// Synchronization of the clock by NTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Synchronization {
    Synchronized,
    Unsynchronized,
    /// No program on this machine knows.
    Unknown,
}

/// Checks the clock of this machine.
pub(super) async fn check(environment: &Environment, findings: &mut Findings) {
    judge_synchronization(read_files(find_synchronization).await, findings);
    if let Some(seconds) = environment.gateway.as_ref().ok().and_then(clock_step) {
        judge_step(seconds, findings);
    }
}

fn find_synchronization() -> Synchronization {
    use Synchronization::{Synchronized, Unknown, Unsynchronized};
    if let Some(text) = output("timedatectl", &["show", "--property=NTPSynchronized", "--value"]) {
        match text.trim() {
            "yes" => return Synchronized,
            "no" => return Unsynchronized,
            _ => {}
        }
    }
    if let Some(text) = output("chronyc", &["-n", "tracking"]) {
        return if text.contains("Not synchronised") { Unsynchronized } else { Synchronized };
    }
    if Path::new(TIMESYNC_STAMP).exists() { Synchronized } else { Unknown }
}

/// The output of a program that succeeded.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Seconds by which the clock was set since the gateway was started.
///
/// The gateway's metric has the start by the clock as it was then; `/proc` has it by the clock as it is now.
fn clock_step(gateway: &RunningGateway) -> Option<i64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", gateway.pid?)).ok()?;
    let boot = parse_boot_time(&fs::read_to_string("/proc/stat").ok()?)?;
    let start = boot + parse_start_ticks(&stat)? / TICKS_PER_SECOND;
    #[allow(clippy::cast_possible_truncation, reason = "Unix time in seconds")]
    let start_then = gateway.metric("process_start_time_seconds")? as i64;
    Some(start.cast_signed() - start_then)
}

fn judge_synchronization(synchronization: Synchronization, findings: &mut Findings) {
    let subject = "synchronization of the clock";
    match synchronization {
        Synchronization::Synchronized => findings.ok(subject, "synchronized"),
        Synchronization::Unsynchronized => {
            let advice = "start an NTP client (systemd-timesyncd, chrony): audit records and sessions need the time";
            findings.warning(subject, "not synchronized", advice);
        }
        Synchronization::Unknown => {
            let advice = "in a container, look at the host; else install an NTP client (systemd-timesyncd, chrony)";
            findings.note(subject, "unknown: neither timedatectl nor chronyc answers", advice);
        }
    }
}

fn judge_step(seconds: i64, findings: &mut Findings) {
    let subject = "steps of the clock";
    if seconds.abs() < STEP {
        findings.ok(subject, "none since the gateway was started");
    } else {
        let advice =
            "let the NTP client slew the clock, and step it only before keygate starts (After=time-sync.target)";
        findings.warning(subject, format!("set by {seconds:+} s since the gateway was started"), advice);
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{Note, Ok, Warning};
    use super::*;

    #[test]
    fn clock_is_judged() {
        let judged = |judge: &dyn Fn(&mut Findings)| {
            let mut findings = Findings::new("clock");
            judge(&mut findings);
            findings.into_list()[0].severity
        };
        for (synchronization, expected) in [
            (Synchronization::Synchronized, Ok),
            (Synchronization::Unsynchronized, Warning),
            (Synchronization::Unknown, Note),
        ] {
            assert_eq!(judged(&|findings| judge_synchronization(synchronization, findings)), expected);
        }
        for (seconds, expected) in [(0, Ok), (1, Ok), (-1, Ok), (2, Warning), (-3600, Warning)] {
            assert_eq!(judged(&|findings| judge_step(seconds, findings)), expected, "{seconds}");
        }
    }
}
