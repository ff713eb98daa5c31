//! Errors of a document beyond its syntax, each with its path: what the operations would refuse whatever the state has,
//! and records that are there twice.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::document::{Document, KeySpec, LimitSpec, OrgSpec, RuleSpec, UserSpec};
use super::key;
use crate::management::{self, LimitUpdate, ManagementError};
use domain::key::policy::InvalidKeyPolicy;
use domain::names;
use domain::quota::Quota;
use platform::settings::Step;
use state::OrgPolicy;

/// An error of a document beyond its syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The way to the value.
    pub at: Vec<Step>,
    /// The error.
    pub what: String,
}

/// `organizations.0.users.1.email: …`.
impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.at.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "." })?;
            match step {
                Step::Key(name) => f.write_str(name)?,
                Step::Item(number) => write!(f, "{number}")?,
            }
        }
        write!(f, ": {}", self.what)
    }
}

impl Document {
    /// Finds all errors beyond the syntax, in the order of the records.
    pub fn flaws(&self) -> Vec<Flaw> {
        let mut search = Search { flaws: Vec::new(), looks: HashMap::new(), keys: HashSet::new() };
        for (index, org) in self.organizations.iter().enumerate() {
            search.check_org(org, &[Step::Key("organizations"), Step::Item(index)]);
        }
        search.flaws
    }
}

/// Errors so far, and what was seen.
struct Search<'a> {
    flaws: Vec<Flaw>,
    /// Names of the organizations so far, by their looks.
    looks: HashMap<String, &'a str>,
    /// References of the keys so far.
    keys: HashSet<String>,
}

impl<'a> Search<'a> {
    fn check_org(&mut self, org: &'a OrgSpec, at: &[Step]) {
        self.check(at, &[Step::Key("name")], names::validate_org_name(&org.name));
        let looks = names::looks(&org.name);
        if let Some(other) = looks.iter().find_map(|look| self.looks.get(look)) {
            let what = if other.trim() == org.name.trim() { "is there twice" } else { "looks the same as another one" };
            self.report(at, &[Step::Key("name")], format!("organization {} {what}", org.name));
        }
        self.looks.extend(looks.into_iter().map(|look| (look, &*org.name)));
        self.check(at, &[Step::Key("concurrent")], management::check_concurrent(org.concurrent.flatten()));
        self.check(at, &[Step::Key("policy")], org.policy.into_patch().apply_to(OrgPolicy::default()));
        let mut handles = HashSet::new();
        for (index, user) in org.users.iter().enumerate() {
            let at = [at, &[Step::Key("users"), Step::Item(index)]].concat();
            self.check_user(user, &at);
            if let Some((field, handle)) = shown_handle(user)
                && !handles.insert(user.handle())
            {
                let what = format!("user {handle} of organization {} is there twice", org.name);
                self.report(&at, &[Step::Key(field)], what);
            }
        }
        let mut rules = HashSet::new();
        for (index, rule) in org.federation_rules.iter().enumerate() {
            let at = [at, &[Step::Key("federation_rules"), Step::Item(index)]].concat();
            self.check_rule(rule, &at);
            if !rules.insert(&*rule.name) {
                self.report(&at, &[], format!("rule {} of organization {} is there twice", rule.name, org.name));
            }
        }
        for (index, key) in org.keys.iter().enumerate() {
            self.check_key(key, &[at, &[Step::Key("keys"), Step::Item(index)]].concat());
        }
    }

    fn check_user(&mut self, user: &UserSpec, at: &[Step]) {
        match (&user.email, &user.service) {
            (Some(email), None) => self.check(at, &[Step::Key("email")], names::validate_email(email)),
            (None, Some(name)) => self.check(at, &[Step::Key("service")], names::validate_service_name(name)),
            _ => self.report(at, &[], "a user has an email address, or is a service: give one of the two".to_owned()),
        }
        let Some(responsible) = &user.responsible else { return };
        let steps = [Step::Key("responsible")];
        self.check(at, &steps, names::validate_email(responsible));
        if user.service.is_none() {
            self.report(at, &steps, "only a service has a responsible person".to_owned());
        }
    }

    fn check_rule(&mut self, rule: &RuleSpec, at: &[Step]) {
        if !rule.removed {
            self.check(at, &[Step::Key("user")], names::validate_service_name(&rule.user));
            self.check(at, &[], rule.to_rule().check());
        }
    }

    fn check_key(&mut self, key: &KeySpec, at: &[Step]) {
        let shown = key.shown();
        match (&key.id, &key.sha256) {
            (None, None) => {
                let what = "has neither an id nor a sha256; see `keygate key digest`";
                self.report(at, &[], format!("key {shown} {what}"));
            }
            (_, Some(digest)) => {
                if let Err(error) = management::check_digest(digest) {
                    let what = match error {
                        ManagementError::DocumentedDigest => error.to_string(),
                        _ => "the sha256 is not 64 hexadecimal digits of a key's; see `keygate key digest`".to_owned(),
                    };
                    self.report(at, &[Step::Key("sha256")], format!("key {shown}: {what}"));
                }
                if key.user.is_none() || key.name.is_none() {
                    self.report(at, &[], format!("key {shown} needs a name and a user, to be created with"));
                }
            }
            (Some(_), None) => {}
        }
        if let Some(name) = &key.name {
            self.check(at, &[Step::Key("name")], names::validate_name(name));
        }
        if let Some(user) = &key.user {
            let steps = [Step::Key("user")];
            if user.contains('@') {
                self.check(at, &steps, names::validate_email(user));
            } else {
                self.check(at, &steps, names::validate_service_name(user));
            }
        }
        if let Some(Some(limits)) = key.limits {
            self.check(at, &[Step::Key("limits")], check_limits(limits));
        }
        if let Err(error) = key::check(key) {
            let field = match error {
                InvalidKeyPolicy::TooManyNetworks => "networks",
                InvalidKeyPolicy::NoSlot => "concurrent",
                InvalidKeyPolicy::TooManyTags | InvalidKeyPolicy::Tag => "tags",
                InvalidKeyPolicy::NotSorted => unreachable!("the lists were sorted"),
            };
            self.report(at, &[Step::Key(field)], error.to_string());
        }
        let is_new = key.references().map(|reference| self.keys.insert(reference));
        if !is_new.fold(true, |all, is_new| all & is_new) {
            self.report(at, &[], format!("key {shown} is there twice"));
        }
    }

    /// Reports the error of a value, if an operation would refuse it.
    fn check<T>(&mut self, at: &[Step], steps: &[Step], checked: Result<T, impl Into<ManagementError>>) {
        if let Err(error) = checked {
            self.report(at, steps, error.into().to_string());
        }
    }

    fn report(&mut self, at: &[Step], steps: &[Step], what: String) {
        self.flaws.push(Flaw { at: [at, steps].concat(), what });
    }
}

/// The field that names a user, and its value.
fn shown_handle(user: &UserSpec) -> Option<(&'static str, &str)> {
    let of_person = user.email.as_deref().map(|email| ("email", email));
    of_person.or_else(|| user.service.as_deref().map(|name| ("service", name)))
}

/// Checks limits as the creation of a key with them does. All values are given, so the configured ones do not matter.
fn check_limits(limits: LimitSpec) -> Result<Quota, ManagementError> {
    Ok(LimitUpdate::from(limits).quota_from(Quota::DEFAULT)?)
}
