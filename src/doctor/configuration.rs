//! Check of the active configuration: whether it is the content of the file.

use std::path::Path;

use super::environment::Environment;
use super::finding::Findings;
use crate::config::ConfigSource;
use control::admin::ConfigReport;
use domain::key::redact;
use platform::settings::SettingsErrors;

/// Compares the file with the active configuration.
pub(super) fn check(environment: &Environment, findings: &mut Findings) {
    let source = &environment.config.source;
    findings.ok("configuration file", format!("{} has no errors", source.path.display()));
    if let Ok(gateway) = &environment.gateway {
        judge(source, &gateway.report, findings);
    }
}

/// Adds each error of a file that cannot be read.
pub(super) fn judge_invalid(file: &Path, invalid: &SettingsErrors, findings: &mut Findings) {
    for error in invalid.iter() {
        let place = error.location.map_or(String::new(), |at| format!(":{}:{}", at.line, at.column));
        let key = if error.path.is_empty() { String::new() } else { format!("{}: ", error.path) };
        let advice =
            "correct the file; a running gateway keeps its last good configuration, and a new one does not start";
        // The error quotes the file, which may hold an API key in the wrong place.
        let found = format!("{key}{}", error.what);
        let found = String::from_utf8_lossy(&redact(found.as_bytes())).into_owned();
        findings.error(format!("{}{place}", file.display()), found, advice);
    }
}

fn judge(source: &ConfigSource, report: &ConfigReport, findings: &mut Findings) {
    let subject = "active configuration";
    let is_same = source.hash.to_string() == report.sha256;
    if report.path != source.path {
        let found = format!("the gateway on this socket runs by {}", report.path.display());
        findings.warning(
            subject,
            found,
            "name that file with --config, or give each gateway an admin socket of its own",
        );
    } else if let Some(rejected) = &report.last_error {
        let error = rejected.error.lines().next().unwrap_or_default();
        let advice =
            "see `keygate config status`; correct the file, or restart the gateway if a changed key needs that";
        findings.error(subject, format!("the last reload was rejected: {error}"), advice);
    } else if is_same {
        findings.ok(subject, "the content of the file");
    } else {
        let advice = "the gateway reloads a changed file within seconds: look again, then send SIGHUP and see its log";
        findings.warning(subject, "differs from the content of the file", advice);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::finding::Severity::{Error, Warning};
    use super::*;
    use crate::config::ContentHash;
    use control::admin::RejectedConfig;
    use domain::clock::Micros;

    #[test]
    fn configuration_in_force_is_compared_with_the_file() {
        let path = PathBuf::from("/etc/keygate/keygate.yaml");
        let source = ConfigSource { path: path.clone(), given: path.clone(), hash: ContentHash::from_content(b"a") };
        let same = ConfigReport { path, sha256: source.hash.to_string(), applied: Micros(1), last_error: None };
        let judged = |report: &ConfigReport| {
            let mut findings = Findings::new("configuration");
            judge(&source, report, &mut findings);
            findings.into_list()[0].severity
        };
        assert!(judged(&same) < Warning);
        assert_eq!(judged(&ConfigReport { sha256: "b".into(), ..same.clone() }), Warning);
        assert_eq!(judged(&ConfigReport { path: "/other".into(), ..same.clone() }), Warning);
        let rejected = RejectedConfig { time: Micros(2), sha256: None, error: "line 1\nline 2".into() };
        assert_eq!(judged(&ConfigReport { last_error: Some(rejected), ..same }), Error);
    }
}
