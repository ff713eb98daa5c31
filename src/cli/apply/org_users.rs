//! Users of an organization by addresses and names, in the file and in the state: a plan looks up those of each key.

use std::collections::{HashMap, HashSet};

use super::document::{OrgSpec, UserSpec};
use super::present::PresentOrg;
use ::control::management::User;
use domain::identity::Permission;

/// Users of one organization.
pub(super) struct OrgUsers<'a> {
    in_file: HashMap<String, &'a UserSpec>,
    valid: HashMap<&'a str, &'a User>,
    removed: HashSet<&'a str>,
}

impl<'a> OrgUsers<'a> {
    pub(super) fn new(spec: &'a OrgSpec, existing: Option<&'a PresentOrg>) -> Self {
        let users = existing.map_or(&[][..], |existing| &existing.users);
        let (removed, valid): (Vec<&User>, Vec<&User>) = users.iter().partition(|user| user.removed.is_some());
        Self {
            in_file: spec.users.iter().map(|user| (user.handle(), user)).collect(),
            valid: valid.into_iter().map(|user| (&*user.email, user)).collect(),
            removed: removed.into_iter().map(|user| &*user.email).collect(),
        }
    }

    /// The user of the state with this address or name in lower case, unless removed.
    pub(super) fn valid(&self, email: &str) -> Option<&'a User> {
        self.valid.get(email).copied()
    }

    /// Returns whether a user of the state with this address or name was removed.
    pub(super) fn was_removed(&self, email: &str) -> bool {
        self.removed.contains(email)
    }

    /// The permissions of the user with this address when the file is applied.
    pub(super) fn permissions(&self, email: &str) -> &[Permission] {
        let in_file = self.in_file.get(email).and_then(|user| user.permissions.as_deref());
        in_file.or_else(|| Some(&*self.valid.get(email)?.permissions)).unwrap_or_default()
    }

    /// Returns whether there is a user with this address or name when the file is applied.
    pub(super) fn will_have(&self, email: &str) -> bool {
        self.in_file.get(email).map_or_else(|| self.valid.contains_key(email), |user| !user.removed)
    }
}
