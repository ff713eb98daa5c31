//! The present state, as far as a file names it.

use std::collections::{BTreeMap, HashMap};

use super::document::{Document, OrgSpec};
use crate::cli::CliError;
use crate::cli::call::Call;
use crate::cli::calls::{list_rules, show_key};
use crate::cli::control::Server;
use ::control::management::{FederationRule, Key, Org, User};
use domain::clock::{self, Micros};
use domain::key::KeyId;
use domain::names;

/// Digests that one operation looks up.
const DIGESTS_PER_LOOKUP: usize = 200;

/// Organizations, users and keys that a file names.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// Time at which they were read.
    pub(super) now: Micros,
    /// Organizations that exist, by name.
    pub(super) orgs: HashMap<String, PresentOrg>,
    /// Names of all organizations that exist, by their looks.
    pub(super) looks: HashMap<String, String>,
    /// Keys that exist, by id.
    pub(super) keys: HashMap<KeyId, Key>,
    /// Keys that have, or had, a digest: in any organization.
    pub(super) by_digest: BTreeMap<String, KeyId>,
}

/// An organization with its users, removed ones too, and with its federation rules if the file has some.
#[derive(Debug)]
pub(super) struct PresentOrg {
    pub(super) org: Org,
    pub(super) users: Vec<User>,
    pub(super) rules: Vec<FederationRule>,
}

impl Present {
    /// Reads what a file names.
    pub(super) async fn read(server: &mut Server<'_>, document: &Document) -> Result<Self, CliError> {
        let mut present = Self { now: clock::now(), ..Self::default() };
        let orgs = server.read_orgs().await?;
        let mut orgs: HashMap<String, Org> = orgs.into_iter().map(|org| (org.name.clone(), org)).collect();
        present.looks = orgs.keys().flat_map(|name| names::looks(name).map(|look| (look, name.clone()))).collect();
        for spec in &document.organizations {
            if let Some(org) = orgs.remove(&spec.name) {
                let users = server.read_all(Call::get(&["orgs", &org.id.to_string(), "users"])).await?;
                let rules = read_rules(server, spec, &org).await?;
                present.orgs.insert(spec.name.clone(), PresentOrg { org, users, rules });
            }
            present.read_keys(server, spec).await?;
        }
        Ok(present)
    }

    async fn read_keys(&mut self, server: &mut Server<'_>, spec: &OrgSpec) -> Result<(), CliError> {
        let digests: Vec<String> = spec.keys.iter().filter_map(|key| key.digest()).collect();
        for part in digests.chunks(DIGESTS_PER_LOOKUP) {
            self.by_digest.extend(server.find_keys(part).await?);
        }
        let by_digest = digests.iter().filter_map(|digest| self.by_digest.get(digest).copied());
        // One with a digest as well does not exist yet, or has the digest.
        let by_id = spec.keys.iter().filter(|key| key.sha256.is_none()).filter_map(|key| key.id);
        let ids: Vec<KeyId> = by_digest.chain(by_id).collect();
        for id in ids {
            self.keys.insert(id, server.perform(&show_key(id)).await?);
        }
        Ok(())
    }
}

/// Reads the federation rules of an organization; none for a file that has none of it.
async fn read_rules(server: &mut Server<'_>, spec: &OrgSpec, org: &Org) -> Result<Vec<FederationRule>, CliError> {
    if spec.federation_rules.is_empty() {
        return Ok(Vec::new());
    }
    server.read_all(list_rules(&org.id.to_string())).await
}
