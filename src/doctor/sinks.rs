//! Check of the audit's sinks: connections that are not encrypted, and what `keygate audit ship status` shows.

use super::environment::Environment;
use super::finding::Findings;
use journal::shipping::{SinkDefect, SinkReport};

/// Seconds that a sink may be behind: the alert's.
const LAG: f64 = 300.0;

/// Checks all sinks: of the file, where records go; of the running gateway, how it fares with them.
pub(super) fn check(environment: &Environment, findings: &mut Findings) {
    for sink in &environment.config.shipping.sinks {
        if let Some((place, advice)) = sink.destination.plain_place() {
            findings.warning(subject(&sink.name), format!("records go to {place} unencrypted"), advice);
        }
    }
    match environment.gateway.as_ref().map(|gateway| &gateway.sinks) {
        Ok(Ok(reports)) => reports.iter().for_each(|report| judge(report, findings)),
        Ok(Err(error)) => findings.warning("sinks", error, "see the log of the gateway"),
        // The check of the gateway says that none runs.
        Err(_) => {}
    }
}

fn subject(name: &str) -> String {
    format!("sink `{name}`")
}

/// Judges a sink in the words of its report.
fn judge(report: &SinkReport, findings: &mut Findings) {
    let subject = subject(&report.sink);
    let summary = report.summary();
    let defects = report.defects();
    let is_failing = defects.iter().any(|defect| matches!(defect, SinkDefect::Failing(_)));
    for defect in &defects {
        match defect {
            SinkDefect::Failing(_) => {
                let advice = "the journal keeps what it has not taken: see docs/monitoring.md#keygateauditshippinglags";
                findings.error(&*subject, format!("{summary}: {defect}"), advice);
            }
            SinkDefect::Rejected(..) => {
                let advice = "they are set aside: see docs/monitoring.md#keygateauditshippingrejected";
                findings.warning(&*subject, defect.to_string(), advice);
            }
            SinkDefect::SkippedSegments(_) | SinkDefect::SkippedLines(_) => {
                let advice = "their records are missing there: see docs/monitoring.md#keygateauditshippingskipped";
                findings.warning(&*subject, defect.to_string(), advice);
            }
        }
    }
    if report.lag_seconds > LAG && !is_failing {
        findings.warning(subject, summary, "see docs/monitoring.md#keygateauditshippinglags");
    } else if !is_failing {
        findings.ok(subject, summary);
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{self, Error, Ok, Warning};
    use super::*;
    use journal::shipping::SinkState;

    fn report() -> SinkReport {
        SinkReport {
            sink: "a".into(),
            kind: "files".into(),
            target: "/archive".into(),
            state: SinkState::Shipping,
            lag_records: 4,
            lag_seconds: 1.25,
            segment: 1,
            offset: 100,
            delivered: 7,
            last_delivery: None,
            complete_until: None,
            skipped_segments: 0,
            skipped_lines: 0,
            rejected: 0,
            error: None,
        }
    }

    fn judged(report: &SinkReport) -> Vec<(Severity, String)> {
        let mut findings = Findings::new("sinks");
        judge(report, &mut findings);
        findings.into_list().into_iter().map(|finding| (finding.severity, finding.found)).collect()
    }

    #[test]
    fn sinks_are_judged_in_the_words_of_their_reports() {
        let behind = "shipping, 4 lines and 1.2 s behind".to_owned();
        assert_eq!(judged(&report()), [(Ok, behind.clone())]);
        let late = SinkReport { lag_seconds: 300.5, ..report() };
        assert_eq!(judged(&late), [(Warning, late.summary())]);
        let failing = SinkReport { state: SinkState::Failing, error: Some("no route".into()), ..late };
        assert_eq!(judged(&failing), [(Error, "failing, 4 lines and 300.5 s behind: no route".into())]);
        let incomplete = SinkReport { rejected: 2, skipped_segments: 1, skipped_lines: 3, ..report() };
        let told: Vec<String> = incomplete.defects().iter().map(SinkDefect::to_string).collect();
        let [rejected, segments, lines] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            judged(&incomplete),
            [(Warning, rejected.clone()), (Warning, segments.clone()), (Warning, lines.clone()), (Ok, behind)]
        );
    }
}
