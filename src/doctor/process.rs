//! Check of the gateway's process: its limit of open files, and its user.

use std::fs;

use rustix::process::Resource;

use super::environment::Environment;
use super::finding::Findings;
use super::proc_files::{OpenFiles, parse_open_files_limit};

/// Files beside those of connections: listeners, the journal, the state, connections to Redis, certificates.
const OTHER_FILES: u64 = 256;

/// Checks the process behind the admin socket, or this one.
pub(super) fn check(environment: &Environment, findings: &mut Findings) {
    let max_connections = environment.config.max_connections as u64;
    if environment.is_own {
        judge_user(rustix::process::geteuid().as_raw(), findings);
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        return judge_open_files(OpenFiles { limit, open: None }, max_connections, findings);
    }
    let Ok(gateway) = &environment.gateway else { return };
    judge_user(gateway.uid, findings);
    let files = gateway.pid.and_then(read_open_files).or_else(|| {
        // In another PID namespace, the gateway's own metrics have both.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of files")]
        let number = |series| gateway.metric(series).map(|value| value as u64);
        Some(OpenFiles { limit: Some(number("process_max_fds")?), open: number("process_open_fds") })
    });
    match files {
        Some(files) => judge_open_files(files, max_connections, findings),
        None => findings.note("limit of open files", "cannot be read", "run this command on the gateway's machine"),
    }
}

fn read_open_files(pid: i32) -> Option<OpenFiles> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok().map(|files| files.count() as u64);
    Some(OpenFiles { limit: parse_open_files_limit(&limits)?, open })
}

/// Judges the limit of open files: each client's connection may need one to the upstream as well.
fn judge_open_files(files: OpenFiles, max_connections: u64, findings: &mut Findings) {
    let subject = "limit of open files";
    let Some(limit) = files.limit else { return findings.ok(subject, "none") };
    let needed = max_connections * 2 + OTHER_FILES;
    let found = format!("{limit}, with http.max_connections: {max_connections}");
    let advice = format!(
        "raise the hard limit to {needed} or more (LimitNOFILE= in the unit, ulimit -Hn, --ulimit nofile=), or lower \
         http.max_connections to {}",
        limit.saturating_sub(OTHER_FILES) / 2
    );
    if limit <= max_connections {
        findings.error(subject, found, advice);
    } else if limit < needed {
        findings.warning(subject, found, advice);
    } else {
        findings.ok(subject, found);
    }
    if let Some(open) = files.open.filter(|open| *open > limit / 10 * 9) {
        findings.error("open files", format!("{open} of {limit}"), "raise the limit before connections are refused");
    }
}

fn judge_user(uid: u32, findings: &mut Findings) {
    match uid {
        0 => {
            let advice = "run it as a user of its own, as deploy/keygate.service does; ports below 1024 need only \
                CAP_NET_BIND_SERVICE";
            findings.warning("user of the process", "root", advice);
        }
        uid => findings.ok("user of the process", format!("uid {uid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{self, Error, Warning};
    use super::*;

    type Expected = &'static [(Severity, &'static str)];

    #[test]
    fn open_files_are_judged_by_the_connections() {
        let cases: &[(Option<u64>, u64, u64, Expected)] = &[
            (None, 5, 20_000, &[]),
            (Some(65_536), 5, 20_000, &[]),
            (Some(40_256), 5, 20_000, &[]),
            (Some(40_255), 5, 20_000, &[(Warning, "limit of open files")]),
            (Some(1024), 5, 20_000, &[(Error, "limit of open files")]),
            (Some(1024), 5, 1024, &[(Error, "limit of open files")]),
            (Some(1024), 1000, 100, &[(Error, "open files")]),
        ];
        for (limit, open, connections, expected) in cases {
            let mut findings = Findings::new("process");
            judge_open_files(OpenFiles { limit: *limit, open: Some(*open) }, *connections, &mut findings);
            let expected: Vec<_> =
                expected.iter().map(|(severity, subject)| (*severity, subject.to_string())).collect();
            assert_eq!(findings.problems(), expected, "{limit:?} {open} {connections}");
        }
    }

    #[test]
    fn root_is_a_warning() {
        let mut findings = Findings::new("process");
        judge_user(0, &mut findings);
        judge_user(998, &mut findings);
        assert_eq!(findings.problems(), [(Warning, "user of the process".to_owned())]);
    }
}
