//! Findings: results of the checks.

use serde::Serialize;

/// Severity of a finding, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// A consequence of the set-up that an operator should know; no change is necessary.
    Note,
    /// Works today, and should be changed.
    Warning,
    /// Fails, or is about to.
    Error,
}

/// Result of looking at one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Name of the check.
    pub check: &'static str,
    /// The thing that was looked at.
    pub subject: String,
    /// Its state.
    pub found: String,
    /// The change to make; none when nothing has to change.
    pub advice: Option<String>,
}

impl Finding {
    /// The finding as one sentence.
    pub(super) fn sentence(&self) -> String {
        let advice = self.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        format!("{}: {}{advice}", self.subject, self.found)
    }
}

/// Collects the findings of one check.
#[derive(Debug)]
pub(super) struct Findings {
    check: &'static str,
    list: Vec<Finding>,
}

impl Findings {
    pub(super) fn new(check: &'static str) -> Self {
        Self { check, list: Vec::new() }
    }

    pub(super) fn ok(&mut self, subject: impl Into<String>, found: impl Into<String>) {
        self.add(Severity::Ok, subject.into(), found.into(), None);
    }

    /// Adds a finding; without a colon at its end, `advice` is a sentence for the operator.
    pub(super) fn note(&mut self, subject: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Note, subject.into(), found.into(), Some(advice.into()));
    }

    pub(super) fn warning(&mut self, subject: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Warning, subject.into(), found.into(), Some(advice.into()));
    }

    pub(super) fn error(&mut self, subject: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Error, subject.into(), found.into(), Some(advice.into()));
    }

    pub(super) fn into_list(self) -> Vec<Finding> {
        self.list
    }

    fn add(&mut self, severity: Severity, subject: String, found: String, advice: Option<String>) {
        self.list.push(Finding { severity, check: self.check, subject, found, advice });
    }
}

/// A size for people, rounded down to a tenth of its unit.
pub(super) fn rounded(bytes: u64) -> String {
    let unit = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter().find(|(_, bits)| bytes >> bits > 0);
    let Some((unit, bits)) = unit else { return format!("{bytes} B") };
    let tenths = (u128::from(bytes) * 10) >> bits;
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
impl Findings {
    /// Severity and subject of each finding that is not [`Severity::Ok`].
    pub(super) fn problems(self) -> Vec<(Severity, String)> {
        let list = self.list.into_iter().filter(|finding| finding.severity > Severity::Ok);
        list.map(|finding| (finding.severity, finding.subject)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_down() {
        let cases = [(1023, "1023 B"), (1024, "1.0 KiB"), (1_992_294, "1.8 MiB"), (u64::MAX, "16777215.9 TiB")];
        for (bytes, text) in cases {
            assert_eq!(rounded(bytes), text);
        }
    }
}
