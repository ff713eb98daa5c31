//! Check of the audit's sinks: connections that are not encrypted, lag, and records that are missing there.

use super::environment::Environment;
use super::finding::Findings;
use domain::counted::Counted;

/// Seconds that a sink may be behind: the alert's.
const LAG: f64 = 300.0;

/// Facts about a sink.
struct SinkFacts<'a> {
    name: &'a str,
    /// The place on another machine to which records go unencrypted, and the change to make.
    plain: Option<(String, &'static str)>,
    /// Age, in seconds, of the oldest record that it has not taken; none without a running gateway.
    lag: Option<f64>,
    /// Segments that were removed or damaged before it had taken them.
    skipped: f64,
    /// Records that it has refused.
    refused: f64,
}

/// Checks all sinks.
pub(super) fn check(environment: &Environment, findings: &mut Findings) {
    for sink in &environment.config.shipping.sinks {
        let name = &*sink.name;
        let read = |metric: &str| environment.gateway.as_ref().ok()?.metric(metric);
        let metric = |metric: &str| read(&format!("{metric}{{sink=\"{name}\"}}"));
        let refused = format!("keygate_audit_ship_rejected_records_total{{reason=\"refused\",sink=\"{name}\"}}");
        let facts = SinkFacts {
            name,
            plain: sink.destination.plain_place(),
            lag: metric("keygate_audit_ship_lag_seconds"),
            skipped: metric("keygate_audit_ship_skipped_segments_total").unwrap_or_default(),
            refused: read(&refused).unwrap_or_default(),
        };
        judge(&facts, findings);
    }
}

fn judge(sink: &SinkFacts<'_>, findings: &mut Findings) {
    let subject = format!("sink `{}`", sink.name);
    if let Some((place, advice)) = &sink.plain {
        findings.warning(&*subject, format!("records go to {place} unencrypted"), *advice);
    }
    if sink.skipped > 0.0 {
        let advice = "their records are missing there: see docs/runbooks.md#keygateauditshippingskipped";
        findings.warning(&*subject, format!("{} skipped", Counted(sink.skipped, "segment")), advice);
    }
    if sink.refused > 0.0 {
        let advice = "they are set aside: see docs/runbooks.md#keygateauditshippingrejected";
        findings.warning(&*subject, format!("{} refused", Counted(sink.refused, "record")), advice);
    }
    match sink.lag {
        None => {}
        Some(lag) if lag > LAG => {
            let advice = "see `keygate audit ship status`, which has the reason of the last failure";
            findings.warning(subject, format!("{lag:.0} s behind"), advice);
        }
        Some(lag) => findings.ok(subject, format!("{lag:.0} s behind")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{self, Ok, Warning};
    use super::*;

    fn severities(plain: bool, lag: Option<f64>, skipped: f64, refused: f64) -> Vec<Severity> {
        let plain = plain.then(|| ("logs.example.com".to_owned(), "write https in its address"));
        let mut findings = Findings::new("sinks");
        judge(&SinkFacts { name: "a", plain, lag, skipped, refused }, &mut findings);
        findings.into_list().into_iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn sinks_are_judged() {
        assert_eq!(severities(false, None, 0.0, 0.0), []);
        assert_eq!(severities(false, Some(300.0), 0.0, 0.0), [Ok]);
        assert_eq!(severities(false, Some(300.5), 0.0, 0.0), [Warning]);
        assert_eq!(severities(true, Some(0.0), 0.0, 0.0), [Warning, Ok]);
        assert_eq!(severities(true, None, 1.0, 0.0), [Warning, Warning]);
        assert_eq!(severities(false, Some(0.0), 0.0, 2.0), [Warning, Ok]);
    }
}
