//! Names of the organizations, keys and users of rows, from the gateway that runs on this machine, or is asked over the
//! network.
//!
//! Names can be changed, and records have ids: where no gateway runs, or a token may not read names, usage is shown by
//! ids alone.

use std::collections::{BTreeSet, HashMap};

use crate::cli::call::Call;
use crate::cli::installation::Installation;
use crate::cli::{CliError, control, output};
use ::control::management::{Key, Org, UsageSummary};
use domain::identity::OrgId;
use domain::key::KeyId;
use journal::audit::{UsageBy, UsageSubject};

/// Names of subjects.
#[derive(Debug, Default)]
pub(super) struct Names {
    orgs: HashMap<OrgId, String>,
    /// The name of each key, and the email address of its user.
    keys: HashMap<KeyId, (String, String)>,
}

impl Names {
    /// Fetches the names of the subjects of a report, page by page.
    ///
    /// # Errors
    /// When the running gateway cannot be asked, or refuses the answer.
    pub(super) fn fetch(installation: &Installation, usage: &UsageSummary) -> Result<Self, CliError> {
        let mut names = Self::default();
        match names.read(installation, usage) {
            Err(error) if installation.remote().is_some() => {
                output::note(format_args!("names are not shown: {:#}", error.into_cause()));
            }
            read => read?,
        }
        Ok(names)
    }

    fn read(&mut self, installation: &Installation, usage: &UsageSummary) -> Result<(), CliError> {
        let orgs: BTreeSet<OrgId> = usage.items.iter().filter_map(|item| org_of(&item.row.subject)).collect();
        if orgs.is_empty() {
            return Ok(());
        }
        let all: Vec<Org> = control::read_of_gateway(installation, Call::get(&["orgs"]))?;
        self.orgs = all.into_iter().map(|org| (org.id, org.name)).collect();
        // No other organization's keys are asked for: there may be many.
        for org in orgs.iter().filter(|org| usage.by == UsageBy::Key && self.orgs.contains_key(org)) {
            let keys: Vec<Key> =
                control::read_of_gateway(installation, Call::get(&["orgs", &org.to_string(), "keys"]))?;
            self.keys.extend(keys.into_iter().map(|key| (key.id, (key.name, key.email))));
        }
        Ok(())
    }

    /// The name of the organization of a subject.
    pub(super) fn org(&self, subject: &UsageSubject) -> Option<&str> {
        self.orgs.get(&org_of(subject)?).map(String::as_str)
    }

    /// The name of the key of a subject, and the email address of its user.
    pub(super) fn key(&self, subject: &UsageSubject) -> Option<(&str, &str)> {
        let UsageSubject::Key(_, Some(key)) = subject else { return None };
        self.keys.get(key).map(|(name, email)| (name.as_str(), email.as_str()))
    }
}

fn org_of(subject: &UsageSubject) -> Option<OrgId> {
    match subject {
        UsageSubject::Org(org) | UsageSubject::Key(org, _) => Some(*org),
        UsageSubject::Route(_) => None,
    }
}
