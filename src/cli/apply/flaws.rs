//! Errors of the file of `keygate apply` beyond its syntax, each with its place: what the operations would refuse, and
//! records that are there twice.

use std::collections::{HashMap, HashSet};

use super::document::{Document, KeySpec, LimitSpec, OrgSpec, RuleSpec, UserSpec};
use super::policy_step;
use crate::cli::output::Escaped;
use ::control::management::{self, LimitUpdate, ManagementError};
use domain::key::policy::InvalidKeyPolicy;
use domain::names;
use domain::quota::Quota;
use platform::settings::{Location, Outline, Step};
use state::OrgPolicy;

/// An error of a file beyond its syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) at: Location,
    pub(super) what: String,
}

/// Finds all errors of a file, in its order.
pub(super) fn find(document: &Document, outline: &Outline) -> Vec<Flaw> {
    let mut search = Search { outline, flaws: Vec::new(), looks: HashMap::new(), keys: HashSet::new() };
    for (index, org) in document.organizations.iter().enumerate() {
        search.check_org(org, &[Step::Key("organizations"), Step::Item(index)]);
    }
    search.flaws.sort_by_key(|flaw| flaw.at);
    search.flaws
}

/// Errors so far, and what was seen.
struct Search<'a> {
    outline: &'a Outline,
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
        if let Err(error) = policy_step::check(key) {
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
        // Values of the file are in it, which must not look like further lines.
        let what = Escaped(what).to_string();
        self.flaws.push(Flaw { at: self.outline.locate(&[at, steps].concat()), what });
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

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "d6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03";

    /// The errors of a file, each behind its line.
    fn flaws(text: &str) -> Vec<String> {
        let (document, outline) = Document::parse(text).unwrap();
        find(&document, &outline).into_iter().map(|flaw| format!("{}: {}", flaw.at.line, flaw.what)).collect()
    }

    #[test]
    fn records_twice_and_keys_without_a_reference_are_flaws() {
        let key = |more: &str| format!("      - {{ name: k, user: a@b{more} }}\n");
        let text = format!(
            "organizations:\n  - name: acme\n    users: [{{ email: a@b }}, {{ email: A@b }}]\n    keys:\n{}{}{}{}{}{}  \
             - name: acme\n  - name: \u{430}cme\n",
            key(&format!(", sha256: {DIGEST}")),
            key(&format!(", sha256: {}", DIGEST.to_uppercase())),
            key(""),
            key(", sha256: ab12"),
            key(&format!(", sha256: {}, id: abcDEF123", DIGEST.replace('d', "e"))),
            key(&format!(", sha256: {}, id: abcDEF123", DIGEST.replace('d', "f"))),
        );
        let flaws = flaws(&text).join("\n");
        for flaw in [
            "3: user A@b of organization acme is there twice",
            "6: key k is there twice",
            "7: key k has neither an id nor a sha256",
            "8: key k: the sha256 is not 64 hexadecimal digits",
            "10: key abcDEF123 is there twice",
            "11: organization acme is there twice",
            "12: organization \u{430}cme looks the same as another one",
        ] {
            assert!(flaws.contains(flaw), "{flaw}: {flaws}");
        }
    }

    #[test]
    fn every_value_that_an_operation_would_refuse_is_a_flaw_with_its_line() {
        let text = format!(
            "organizations:
  - name: \"ac\\u200bme\"
    concurrent: 0
    users:
      - email: ada
    keys:
      - name: \"lap\\ntop\"
        user: ada@
        sha256: {DIGEST}
        limits: {{ requests: 0, per: 1h }}
      - id: abcDEF123
        limits:
          requests: 5
          per: 500ms
  - name: org_0197c1de000070008000000000000001
"
        );
        let flaws = flaws(&text);
        let lines: Vec<&str> = flaws.iter().map(|flaw| flaw.split(':').next().unwrap()).collect();
        assert_eq!(lines, ["2", "3", "5", "7", "8", "10", "13", "15"], "{flaws:#?}");
        for (index, part) in
            [(0, "1 to 100 characters"), (1, "concurrent must be"), (2, "not an email"), (5, "requests")]
        {
            assert!(flaws[index].contains(part), "{part}: {}", flaws[index]);
        }
    }

    #[test]
    fn user_is_a_person_or_a_service_with_a_person() {
        let text = format!(
            "organizations:
  - name: acme
    users:
      - {{ email: ada@example.com, responsible: ada@example.com }}
      - {{ service: Nightly, responsible: ada@example.com }}
      - {{ service: nightly }}
      - {{ service: \"eve@example.com\" }}
      - {{ email: bob@example.com, service: bob }}
      - {{ permissions: [] }}
      - {{ service: weekly, responsible: nightly }}
    keys:
      - {{ name: k, user: Nightly, sha256: {DIGEST} }}
"
        );
        let flaws = flaws(&text);
        let expected = [
            "4: only a service has a responsible person",
            "6: user nightly of organization acme is there twice",
            "7: the name of a service must not have an `@`",
            "8: a user has an email address, or is a service",
            "9: a user has an email address, or is a service",
            "10: `nightly` is not an email address",
        ];
        assert_eq!(flaws.len(), expected.len(), "{flaws:#?}");
        for (flaw, expected) in flaws.iter().zip(expected) {
            assert!(flaw.starts_with(expected), "{expected}: {flaw}");
        }
    }

    #[test]
    fn session_quota_digest_is_a_flaw() {
        let user = domain::identity::UserId::generate();
        let digest = state::session_quota_digest(user);
        let hex = digest.to_hex();
        let text = format!("organizations: [{{ name: a, keys: [{{ name: k, user: a@b.example, sha256: {hex} }}] }}]");
        assert_eq!(flaws(&text).len(), 1, "{:?}", flaws(&text));
    }
}
