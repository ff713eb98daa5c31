//! Check of identity providers and of the issuers of CIs: their discovery documents, key sets and clocks. Each is asked
//! twice, without credentials, as the first sign-in would ask it.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::client;
use super::environment::Environment;
use super::finding::Findings;
use crate::config::Config;
use control::admin::API_PATH;
use control::leaks::GitHub;
use control::management::{FederationRule, Org};
use control::oidc::{Error, Examination, Issuer, Provider};
use domain::page::Page;
use domain::problem::Problem;

/// Issuers of rules that are asked.
const MAX_ISSUERS: usize = 16;
/// Seconds by which clocks may differ: tokens are accepted within a minute, and half of it is for the way.
const CLOCK_DIFFERENCE: i64 = 30;

/// An issuer as findings name it, and what was found.
type Examined = (String, Result<Examination, Error>);

/// Asks each provider, and each issuer that the rules of a running gateway name.
pub(super) async fn check(environment: &Environment, findings: &mut Findings) {
    let config = &environment.config;
    let (providers, issuers, ()) =
        tokio::join!(examine_providers(config), examine_issuers(config), examine_github(config, findings));
    for (subject, examined) in providers.into_iter().chain(issuers) {
        judge(&subject, examined, findings);
    }
}

async fn examine_providers(config: &Config) -> Vec<Examined> {
    let providers = config.session.iter().flat_map(|session| &session.providers);
    let asked = providers.map(async |provider| {
        let examined = match Provider::new(provider.oidc.clone()) {
            Ok(provider) => provider.examine().await,
            Err(error) => Err(error),
        };
        (format!("provider `{}`, {}", provider.oidc.name, provider.oidc.issuer), examined)
    });
    join_all(asked).await
}

async fn examine_issuers(config: &Config) -> Vec<Examined> {
    let Some(federation) = &config.federation else { return Vec::new() };
    // The check of the gateway says that none runs, or that its socket is of another version.
    let issuers = rule_issuers(config).await.unwrap_or_default();
    let asked = issuers.iter().take(MAX_ISSUERS).map(async |issuer| {
        let examined = match Issuer::new(issuer, &federation.tls) {
            Ok(issuer) => issuer.examine().await,
            Err(error) => Err(error),
        };
        (format!("issuer of rules, {issuer}"), examined)
    });
    join_all(asked).await
}

/// Reads the keys that reports of leaked keys are signed with.
async fn examine_github(config: &Config, findings: &mut Findings) {
    let Some((address, tls)) = config.leaks.as_ref().and_then(|leaks| Some((leaks.github.as_ref()?, &leaks.tls)))
    else {
        return;
    };
    let subject = format!("reports of leaked keys, {address}");
    let examined = match GitHub::new(address, tls) {
        Ok(github) => github.examine().await,
        Err(error) => Err(error),
    };
    match examined {
        Ok(keys) => findings.ok(subject, format!("{keys} keys are readable")),
        Err(error) => {
            let advice = "look at the way there (DNS, firewall), and `leaks.tls`: no report is accepted without them";
            findings.error(subject, error.in_full(), advice);
        }
    }
}

fn judge(subject: &str, examined: Result<Examination, Error>, findings: &mut Findings) {
    let Examination { keys, refused, clock_ahead } = match examined {
        Ok(examination) => examination,
        Err(error) => {
            let advice = match error {
                Error::IssuerMismatch(_) => {
                    "write `issuer` as the document has it, with or without the slash at its end"
                }
                Error::Unreachable(..) => "look at the address, the way there (DNS, firewall), and `tls.ca`",
                _ => "compare `issuer` with the provider's own documentation",
            };
            return findings.error(subject, error.in_full(), advice);
        }
    };
    for (id, flaw) in &refused {
        let id = id.as_deref().unwrap_or("without an id").escape_debug();
        let advice = "replace the key at the provider: tokens that are signed with it are refused";
        findings.warning(subject, format!("key {id} is not accepted: {flaw}"), advice);
    }
    if keys == 0 {
        findings.error(subject, "its key set has no key that is accepted", "create a signing key at the provider");
    }
    match clock_ahead {
        Some(seconds) if seconds.abs() > CLOCK_DIFFERENCE => {
            let found = format!("its clock differs by {seconds:+} s");
            findings.warning(subject, found, "start NTP here and there: tokens are accepted within a minute");
        }
        _ if keys > 0 => findings.ok(subject, format!("discovery document and {keys} keys are readable")),
        _ => {}
    }
}

/// The issuers of the rules of all organizations, as the running gateway lists them.
async fn rule_issuers(config: &Config) -> Result<BTreeSet<String>, String> {
    let mut issuers = BTreeSet::new();
    let orgs: Page<Org> = read(config, "orgs?limit=100").await?;
    for org in orgs.items {
        let rules: Page<FederationRule> = read(config, &format!("orgs/{}/federation-rules?limit=100", org.id)).await?;
        issuers.extend(rules.items.into_iter().map(|rule| rule.issuer));
    }
    Ok(issuers)
}

/// Reads from the API on the admin socket. `path` is below that of the API.
async fn read<T: DeserializeOwned>(config: &Config, path: &str) -> Result<T, String> {
    let stream = UnixStream::connect(&config.admin.socket).await.map_err(|error| error.to_string())?;
    let answered = client::get(stream, "keygate", &format!("{API_PATH}/{path}")).await;
    let (status, body) = answered.map_err(|error| client::in_full(&error))?;
    if !status.is_success() {
        let problem: Option<Problem<'_>> = serde_json::from_slice(&body).ok();
        return Err(
            problem.map_or_else(|| format!("the gateway responded with {status}"), |problem| problem.detail.into())
        );
    }
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{Error as Failure, Warning};
    use super::*;
    use control::oidc::UnfitKey;

    #[test]
    fn documents_are_judged() {
        let judged = |examined| {
            let mut findings = Findings::new("providers");
            judge("a", Ok(examined), &mut findings);
            findings.problems().into_iter().map(|(severity, _)| severity).collect::<Vec<_>>()
        };
        let good = Examination { keys: 2, refused: Vec::new(), clock_ahead: Some(-30) };
        assert_eq!(judged(good.clone()), []);
        assert_eq!(judged(Examination { clock_ahead: None, ..good.clone() }), []);
        assert_eq!(judged(Examination { clock_ahead: Some(31), ..good.clone() }), [Warning]);
        let short = vec![(None, UnfitKey::Size(1024))];
        assert_eq!(judged(Examination { refused: short.clone(), ..good.clone() }), [Warning]);
        assert_eq!(judged(Examination { keys: 0, refused: short, ..good }), [Warning, Failure]);
    }
}
