//! Check of the certificates: those of listeners with their names, and those of connections that the gateway opens.

use std::path::{Path, PathBuf};

use super::certificate_chain::{judge_chain, judge_dates, judge_fitness, judge_host};
use super::environment::Environment;
use super::finding::Findings;
use super::listeners::host;
use super::read_files;
use crate::config::{Config, Listener, ListenerRole};
use platform::tls::{CertificateFacts, ClientSettings};

/// Checks the files of all certificates.
pub(super) async fn check(environment: &Environment, findings: &mut Findings) {
    let config = &environment.config;
    let now = environment.now.0.cast_signed() / 1_000_000;
    for listener in config.listen.iter().filter(|listener| listener.tls.is_some()) {
        check_listener(environment, listener, now, findings).await;
    }
    for (path, is_own) in other_certificates(config) {
        if let Some(certificates) = read(&path, findings).await {
            certificates.iter().for_each(|certificate| judge_dates(&path, certificate, now, findings));
            certificates.iter().take(usize::from(is_own)).for_each(|leaf| judge_fitness(&path, leaf, findings));
        }
    }
}

async fn check_listener(environment: &Environment, listener: &Listener, now: i64, findings: &mut Findings) {
    let Some(tls) = &listener.tls else { return };
    let mut leaves = Vec::new();
    for files in &tls.certificates {
        let Some(chain) = read(&files.chain, findings).await else { continue };
        chain.iter().for_each(|certificate| judge_dates(&files.chain, certificate, now, findings));
        judge_chain(&files.chain, &chain, findings);
        judge_fitness(&files.chain, &chain[0], findings);
        judge_reload(environment, &files.chain, &chain[0], findings);
        leaves.extend(chain.into_iter().next());
    }
    for origin in origins(&environment.config, listener.role) {
        judge_host(listener.address, host(origin), &leaves, findings);
    }
}

/// The origins under which browsers reach a listener, as far as the configuration knows them.
fn origins(config: &Config, role: ListenerRole) -> Vec<&str> {
    let Some(session) = &config.session else { return Vec::new() };
    let dashboard = (role != ListenerRole::Api).then_some(&*session.origin);
    let api = session.api_origin.as_deref().filter(|_| role != ListenerRole::Dashboard);
    dashboard.into_iter().chain(api).collect()
}

/// Compares the certificate of a file with the one that the gateway presents, by the end of their validity.
fn judge_reload(environment: &Environment, path: &Path, leaf: &CertificateFacts, findings: &mut Findings) {
    let Some(name) = leaf.names.first() else { return };
    let series = format!("keygate_tls_certificate_not_after_timestamp_seconds{{certificate=\"{name}\"}}");
    if let Some(presented) = environment.gateway.as_ref().ok().and_then(|gateway| gateway.metric(&series)) {
        judge_presented(path, leaf, presented, findings);
    }
}

/// Judges the end of the validity that the gateway shows for the certificate of a file, Unix time in seconds.
fn judge_presented(path: &Path, leaf: &CertificateFacts, presented: f64, findings: &mut Findings) {
    #[allow(clippy::cast_precision_loss, reason = "Unix time in seconds")]
    if (presented - leaf.not_after as f64).abs() > 1.0 {
        let advice = "see the log and keygate_tls_reload_failures_total: a changed file is loaded within seconds, if \
                      its key belongs to it";
        findings.warning(format!("certificate {}", path.display()), "the gateway presents another one", advice);
    }
}

/// Files of the certificates that are not a listener's own: authorities, and, marked, certificates by which the
/// gateway is a client.
fn other_certificates(config: &Config) -> Vec<(PathBuf, bool)> {
    let client_ca =
        config.listen.iter().filter_map(|listener| Some(listener.tls.as_ref()?.client_auth.as_ref()?.ca.clone()));
    let outbound = config.outbound_tls();
    let authorities = client_ca.chain(outbound.iter().filter_map(|client| client.ca.clone()));
    let own = outbound.iter().filter_map(|ClientSettings { identity, .. }| Some(identity.as_ref()?.chain.clone()));
    let mut paths: Vec<(PathBuf, bool)> =
        authorities.map(|path| (path, false)).chain(own.map(|path| (path, true))).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

async fn read(path: &Path, findings: &mut Findings) -> Option<Vec<CertificateFacts>> {
    let owned = path.to_owned();
    match read_files(move || CertificateFacts::read(&owned)).await {
        Ok(certificates) => Some(certificates),
        Err(error) => {
            findings.error(format!("certificate {}", path.display()), error.in_full(), "correct the file");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::Warning;
    use super::*;

    #[test]
    fn gateway_that_presents_another_certificate_is_a_warning() {
        let text = |text: &str| text.to_owned();
        let leaf = CertificateFacts {
            subject: text("a"),
            issuer: text("b"),
            uris: Vec::new(),
            names: vec![text("a.test")],
            not_before: 0,
            not_after: 2_000_000_000,
            version: 3,
            is_authority: false,
        };
        let judged = |presented| {
            let mut findings = Findings::new("certificates");
            judge_presented(Path::new("a.pem"), &leaf, presented, &mut findings);
            findings.problems()
        };
        assert_eq!(judged(2_000_000_000.0), []);
        assert_eq!(judged(1_990_000_000.0), [(Warning, text("certificate a.pem"))]);
    }
}
