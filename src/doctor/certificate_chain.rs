//! Judgement of certificates: their dates, their chain, and their names.

use std::net::SocketAddr;
use std::path::Path;

use super::finding::Findings;
use domain::counted::Counted;
use platform::tls::{CertificateFacts, Explanation};

const DAY: i64 = 86_400;
/// Days before its end at which a certificate should have been renewed: the alert's.
const RENEWAL: i64 = 14;

/// Judges the validity of a certificate at `now`, Unix time in seconds.
pub(super) fn judge_dates(path: &Path, certificate: &CertificateFacts, now: i64, findings: &mut Findings) {
    judge_validity(format!("certificate {} ({})", path.display(), certificate.subject), certificate, now, findings);
}

/// The same, of a certificate that does not come from a file.
pub(super) fn judge_validity(subject: String, certificate: &CertificateFacts, now: i64, findings: &mut Findings) {
    let days = (certificate.not_after - now) / DAY;
    if let Some(Explanation { found, cure }) = certificate.outdated(now) {
        findings.error(subject, found, cure.unwrap_or_default());
    } else if days < RENEWAL {
        findings.warning(
            subject,
            format!("expires in {}", Counted(days, "day")),
            "renew it; look why it was not renewed by itself",
        );
    } else {
        findings.ok(subject, format!("valid for {}", Counted(days, "day")));
    }
}

/// Judges whether the other side may object to a certificate that is presented as one's own.
pub(super) fn judge_fitness(path: &Path, certificate: &CertificateFacts, findings: &mut Findings) {
    if let Some(Explanation { found, cure }) = certificate.unfit() {
        findings.warning(format!("certificate {}", path.display()), found, cure.unwrap_or_default());
    }
}

/// Judges the order and completeness of a chain: each certificate must be issued by the one after it.
pub(super) fn judge_chain(path: &Path, chain: &[CertificateFacts], findings: &mut Findings) {
    let subject = format!("chain {}", path.display());
    let broken = chain.windows(2).find(|pair| pair[0].issuer != pair[1].subject);
    if let Some(pair) = broken {
        let found =
            format!("`{}` is issued by `{}`, and `{}` follows", pair[0].subject, pair[0].issuer, pair[1].subject);
        findings.error(subject, found, "order the file: the certificate, then the one that issued it, and so on");
        return;
    }
    match chain {
        [leaf] if leaf.subject == leaf.issuer => {
            findings.note(subject, "signed by itself", "clients must trust this very certificate");
        }
        [leaf] => {
            let advice = "append that certificate, unless it is a root that clients have: they cannot verify the chain \
                without it";
            findings.note(subject, format!("without the certificate of `{}`", leaf.issuer), advice);
        }
        _ => findings.ok(subject, format!("{} certificates in order", chain.len())),
    }
}

/// Judges whether a listener has a certificate for a host.
pub(super) fn judge_host(listener: SocketAddr, host: &str, certificates: &[CertificateFacts], findings: &mut Findings) {
    let subject = format!("names of listener {listener}");
    if certificates.iter().any(|certificate| certificate.is_for(host)) {
        findings.ok(subject, format!("a certificate for {host}"));
    } else {
        let names: Vec<&str> =
            certificates.iter().flat_map(|certificate| &certificate.names).map(String::as_str).collect();
        let found = format!("no certificate for {host}, only for {}", names.join(", "));
        findings.error(subject, found, "add a certificate with this name: browsers refuse the others");
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{self, Error, Note, Ok, Warning};
    use super::*;

    fn certificate(subject: &str, issuer: &str, names: &[&str]) -> CertificateFacts {
        CertificateFacts {
            subject: subject.into(),
            issuer: issuer.into(),
            uris: Vec::new(),
            names: names.iter().map(ToString::to_string).collect(),
            not_before: 100 * DAY,
            not_after: 200 * DAY,
            version: 3,
            is_authority: false,
        }
    }

    fn severity(judge: impl FnOnce(&mut Findings)) -> Severity {
        let mut findings = Findings::new("certificates");
        judge(&mut findings);
        findings.into_list()[0].severity
    }

    #[test]
    fn dates_are_judged() {
        let leaf = certificate("leaf", "root", &[]);
        for (now, expected) in [
            (100 * DAY - 1, Error),
            (100 * DAY, Ok),
            (186 * DAY, Ok),
            (186 * DAY + 1, Warning),
            (200 * DAY, Warning),
            (200 * DAY + 1, Error),
        ] {
            assert_eq!(severity(|findings| judge_dates(Path::new("a"), &leaf, now, findings)), expected, "{now}");
        }
    }

    #[test]
    fn chains_are_judged() {
        let of = |subject, issuer| certificate(subject, issuer, &[]);
        let leaf = of("leaf", "between");
        let between = of("between", "root");
        let root = of("root", "root");
        for (chain, expected) in [
            (vec![leaf.clone(), between.clone()], Ok),
            (vec![leaf.clone(), between.clone(), root.clone()], Ok),
            (vec![between.clone(), leaf.clone()], Error),
            (vec![leaf.clone(), root.clone()], Error),
            (vec![leaf], Note),
            (vec![root], Note),
        ] {
            assert_eq!(severity(|findings| judge_chain(Path::new("a"), &chain, findings)), expected, "{chain:?}");
        }
    }

    #[test]
    fn host_needs_a_certificate() {
        let listener = "0.0.0.0:443".parse().unwrap();
        let certificates = [certificate("a", "b", &["api.example.com"]), certificate("c", "b", &["*.example.org"])];
        for (host, expected) in [("api.example.com", Ok), ("keys.example.org", Ok), ("keys.example.com", Error)] {
            assert_eq!(severity(|findings| judge_host(listener, host, &certificates, findings)), expected, "{host}");
        }
    }
}
