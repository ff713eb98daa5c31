//! Names of the organizations, keys and users of rows, from the gateway that runs on this machine, or is asked over the
//! network.
//!
//! Names can be changed, and records have ids: where no gateway runs, or a token may not read names, usage is shown by
//! ids alone.

use std::collections::{BTreeSet, HashMap};

use crate::cli::installation::Installation;
use crate::cli::{CliError, control, output};
use ::control::admin::{Operation, Reply};
use ::control::management::UsageSummary;
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
        let names = self;
        let orgs: BTreeSet<OrgId> = usage.items.iter().filter_map(|item| org_of(&item.row.subject)).collect();
        if orgs.is_empty() {
            return Ok(());
        }
        control::for_each_page_of_gateway(installation, Operation::list_orgs(), |reply| names.add(reply))?;
        // No other organization's keys are asked for: there may be many.
        let with_keys = orgs.iter().filter(|_| usage.by == UsageBy::Key);
        for org in with_keys {
            if names.orgs.contains_key(org) {
                let list_keys = Operation::list_keys(org.to_string());
                control::for_each_page_of_gateway(installation, list_keys, |reply| names.add(reply))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, reply: Reply) {
        match reply {
            Reply::Orgs(page) => self.orgs.extend(page.items.into_iter().map(|org| (org.id, org.name))),
            Reply::Keys(page) => {
                self.keys.extend(page.items.into_iter().map(|key| (key.id, (key.name, key.email))));
            }
            _ => unreachable!("lists of organizations and keys were asked for"),
        }
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
