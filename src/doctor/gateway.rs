//! Check of the gateway: whether it runs, is ready, and has panicked.

use super::environment::Environment;
use super::finding::Findings;
use control::admin::ReadinessReport;

/// Checks that the gateway runs and is ready.
pub(super) fn check(environment: &Environment, findings: &mut Findings) {
    judge(environment.gateway.as_ref().map(|gateway| &gateway.readiness).map_err(String::as_str), findings);
    let Ok(gateway) = &environment.gateway else { return };
    if let Some(panics) = gateway.metric("keygate_panics_total") {
        judge_panics(panics, findings);
    }
    judge_announcements(gateway.metric("keygate_announcements_limited"), findings);
}

fn judge(readiness: Result<&Result<ReadinessReport, String>, &str>, findings: &mut Findings) {
    match readiness {
        Err(error) => {
            let advice = "start the gateway, or run this command as the user that the gateway runs as; checks of the \
                running process are left out";
            findings.warning("running gateway", format!("cannot be reached: {error}"), advice);
        }
        Ok(Err(error)) => {
            let advice = "check `admin.address`; probes and Prometheus need it, and checks of metrics are left out";
            findings.warning("admin listener", format!("cannot be reached: {error}"), advice);
        }
        Ok(Ok(report)) if report.ready && report.reasons.is_empty() => findings.ok("readiness", "ready"),
        Ok(Ok(report)) if report.ready => {
            let advice = "see KeygateNotReady in docs/monitoring.md; requests are served meanwhile";
            findings.warning("readiness", format!("ready, but: {}", report.text()), advice);
        }
        Ok(Ok(report)) => {
            let advice = "see docs/monitoring.md; load balancers send this gateway no requests";
            findings.error("readiness", format!("not ready: {}", report.text()), advice);
        }
    }
}

fn judge_panics(panics: f64, findings: &mut Findings) {
    if panics > 0.0 {
        let advice = "each one is a defect of keygate: report the log lines of level error";
        findings.warning("panics", format!("{panics} since the start"), advice);
    }
}

fn judge_announcements(limited: Option<f64>, findings: &mut Findings) {
    if limited == Some(1.0) {
        let found = "more keys and tokens end soon than a daily look announces, so that not all have a record yet";
        let advice = "renew or revoke them: `keygate key list --org ORG --expires-within 7d`; each day's look goes on";
        findings.warning("announcements", found, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{self, Error, Warning};
    use super::*;

    #[test]
    fn panics_are_a_warning() {
        let mut findings = Findings::new("gateway");
        judge_panics(0.0, &mut findings);
        judge_panics(2.0, &mut findings);
        assert_eq!(findings.problems(), [(Warning, "panics".to_owned())]);
    }

    #[test]
    fn announcements_that_were_left_out_are_a_warning() {
        let mut findings = Findings::new("gateway");
        [None, Some(0.0), Some(1.0)].into_iter().for_each(|limited| judge_announcements(limited, &mut findings));
        assert_eq!(findings.problems(), [(Warning, "announcements".to_owned())]);
    }

    #[test]
    fn readiness_is_judged() {
        let judged = |readiness: Result<&Result<ReadinessReport, String>, &str>| {
            let mut findings = Findings::new("gateway");
            judge(readiness, &mut findings);
            findings.problems()
        };
        let report = |ready, reasons: &[&str]| {
            let reasons = reasons.iter().map(ToString::to_string).collect();
            Ok(ReadinessReport { ready, reasons, ..ReadinessReport::default() })
        };
        let one = |severity: Severity, subject: &str| vec![(severity, subject.to_owned())];
        assert_eq!(judged(Ok(&report(true, &[]))), []);
        assert_eq!(judged(Ok(&report(true, &["audit_sync"]))), one(Warning, "readiness"));
        assert_eq!(judged(Ok(&report(false, &["state"]))), one(Error, "readiness"));
        assert_eq!(judged(Ok(&Err("refused".into()))), one(Warning, "admin listener"));
        assert_eq!(judged(Err("none")), one(Warning, "running gateway"));
    }
}
