//! Rules that hold across the lines of a file: each id, name, address and digest is there once, and what belongs to a
//! user belongs to the organization of that user.
//!
//! - A file with a digest of two keys, a rule of another organization's service or services that are responsible for
//!   each other is refused whole: none of its records is imported.
//! - A user who is not in the file may be named. An export of a state in use has keys whose users were created
//!   meanwhile; an import leaves them out.
//! - Memory: some 100 bytes for each key.

use std::collections::{HashMap, HashSet};

use super::invalid_record::InvalidRecord;
use crate::{FederationRule, KeyExport, Org, SpentExport, StateRecord, User};
use domain::budget::BudgetSubject;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::{ManagementToken, TokenId};

/// The records of the lines so far, by what only one of them may have.
#[derive(Default)]
pub(super) struct Owners {
    orgs: HashMap<OrgId, OrgTag>,
    tags: HashSet<OrgTag>,
    names: HashSet<String>,
    users: HashMap<UserId, Owner>,
    /// Email addresses and names of services; of users who are not removed.
    addresses: HashSet<(OrgId, String)>,
    /// Persons who are responsible for services.
    responsible: HashSet<UserId>,
    /// Users who were named before their own lines, by the organization of the records that name them.
    named: HashMap<UserId, OrgId>,
    keys: HashSet<KeyId>,
    digests: HashSet<KeyDigest>,
    rules: HashSet<(OrgId, String)>,
    tokens: HashSet<TokenId>,
    secrets: HashSet<[u8; 32]>,
    /// Subjects of budgets.
    spent: HashSet<BudgetSubject>,
}

/// The organization of a user, and its kind.
#[derive(Clone, Copy)]
struct Owner {
    org: OrgId,
    is_service: bool,
}

impl Owners {
    /// Adds a record. After an invalid line, nothing is missed that it may have had.
    ///
    /// # Errors
    /// [`InvalidRecord`] that the lines before show.
    pub(super) fn add(&mut self, record: &StateRecord, is_flawed: bool) -> Result<(), InvalidRecord> {
        let org = match record {
            StateRecord::User(user) => Some(user.user.org),
            StateRecord::Rule(rule) => Some(rule.org),
            StateRecord::Key(key) => Some(key.key.org),
            StateRecord::Spent(spent) => Some(spent.org),
            StateRecord::Org(_) | StateRecord::Digests(..) | StateRecord::Token(_) => None,
        };
        if org.is_some_and(|org| !self.orgs.contains_key(&org)) && !is_flawed {
            return Err(InvalidRecord::NoOrg);
        }
        match record {
            StateRecord::Org(org) => self.add_org(org),
            StateRecord::User(export) => self.add_user(&export.user),
            StateRecord::Key(export) => self.add_key(export),
            StateRecord::Digests(key, _) if !self.keys.contains(key) && !is_flawed => Err(InvalidRecord::NoKey),
            StateRecord::Digests(_, digests) => self.add_digests(digests.iter()),
            StateRecord::Rule(rule) => self.add_rule(rule),
            StateRecord::Token(token) => self.add_token(token),
            StateRecord::Spent(spent) => self.add_spent(spent),
        }
    }

    fn add_org(&mut self, org: &Org) -> Result<(), InvalidRecord> {
        once("id", self.orgs.insert(org.id, org.tag).is_none())?;
        once("tag", self.tags.insert(org.tag))?;
        once("name", self.names.insert(org.name.clone()))
    }

    fn add_user(&mut self, user: &User) -> Result<(), InvalidRecord> {
        let owner = Owner { org: user.org, is_service: user.is_service() };
        once("id", self.users.insert(user.id, owner).is_none())?;
        if user.removed.is_none() {
            once("address", self.addresses.insert((user.org, user.email.clone())))?;
        }
        if self.named.get(&user.id).is_some_and(|org| *org != user.org) {
            return Err(InvalidRecord::Elsewhere("rule, key, token or service"));
        }
        let mut is_of_service = owner.is_service && self.responsible.contains(&user.id);
        if let Some(person) = user.responsible {
            self.require_of("responsible person", person, user.org)?;
            self.responsible.insert(person);
            is_of_service |= self.users.get(&person).is_some_and(|person| person.is_service);
        }
        if is_of_service { Err(InvalidRecord::ServiceResponsible) } else { Ok(()) }
    }

    fn add_key(&mut self, export: &KeyExport) -> Result<(), InvalidRecord> {
        let key = &export.key;
        once("id", self.keys.insert(key.id))?;
        if self.orgs.get(&key.org).is_some_and(|tag| *tag != key.id.tag()) {
            return Err(InvalidRecord::Elsewhere("id"));
        }
        self.require_of("user", key.user, key.org)?;
        self.add_digests(export.digests())
    }

    fn add_digests<'a>(&mut self, mut digests: impl Iterator<Item = &'a KeyDigest>) -> Result<(), InvalidRecord> {
        digests.try_for_each(|digest| once("digest", self.digests.insert(*digest)))
    }

    fn add_rule(&mut self, rule: &FederationRule) -> Result<(), InvalidRecord> {
        once("name", self.rules.insert((rule.org, rule.name.clone())))?;
        self.require_of("user", rule.user, rule.org)?;
        let is_person = self.users.get(&rule.user).is_some_and(|user| !user.is_service);
        if is_person { Err(InvalidRecord::RuleOfPerson) } else { Ok(()) }
    }

    fn add_token(&mut self, token: &ManagementToken) -> Result<(), InvalidRecord> {
        once("id", self.tokens.insert(token.id))?;
        once("digest", self.secrets.insert(*token.digest.as_bytes()))?;
        match token.org.zip(token.admin) {
            Some((org, admin)) => self.require_of("administrator", admin, org),
            None => Ok(()),
        }
    }

    fn add_spent(&mut self, spent: &SpentExport) -> Result<(), InvalidRecord> {
        once("subject", self.spent.insert(spent.subject))?;
        let is_of_org = match spent.subject {
            BudgetSubject::Key(key) => self.orgs.get(&spent.org).is_none_or(|tag| *tag == key.tag()),
            BudgetSubject::User(user) => return self.require_of("subject", user, spent.org),
            BudgetSubject::Org(org) => org == spent.org,
        };
        if is_of_org { Ok(()) } else { Err(InvalidRecord::Elsewhere("subject")) }
    }

    /// Requires that a user, whose line may come later, is of an organization.
    fn require_of(&mut self, what: &'static str, user: UserId, org: OrgId) -> Result<(), InvalidRecord> {
        let of_user = match self.users.get(&user) {
            Some(user) => user.org,
            None => *self.named.entry(user).or_insert(org),
        };
        if of_user == org { Ok(()) } else { Err(InvalidRecord::Elsewhere(what)) }
    }
}

fn once(what: &'static str, is_new: bool) -> Result<(), InvalidRecord> {
    if is_new { Ok(()) } else { Err(InvalidRecord::Twice(what)) }
}
