//! The policy of a key: the facts on its page, and the fields of the forms that set it.

use askama::Template;

use super::layout::Layout;
use super::timestamp::Timestamp;

/// The policy of a key, as its page shows it.
#[derive(Clone, Debug, Default)]
pub struct PolicyFacts {
    /// True if the key keeps to permissions of its own: those that its owner gets later are not among them.
    pub has_own_permissions: bool,
    /// Time from which the key is refused; `None`: never.
    pub expires: Option<Timestamp>,
    /// Networks that requests have to come from; empty: any.
    pub networks: Vec<String>,
    /// Requests in flight at most, in digits; `None`: as many as the organization has left.
    pub concurrent: Option<String>,
    /// Tags, each as `NAME=VALUE`.
    pub tags: Vec<String>,
    /// Present while the key is disabled.
    pub disabled: Option<DisabledFact>,
}

/// A key is disabled.
#[derive(Clone, Debug)]
pub struct DisabledFact {
    /// Since this time.
    pub since: Timestamp,
    /// Cause of the disabling, such as `the operator`.
    pub by: &'static str,
    /// True if users of the organization may enable it.
    pub can_enable: bool,
}

/// The form that changes the policy of a key. Fields: `before`, and those of [`PolicyFields`].
#[derive(Clone, Debug, Template)]
#[template(path = "policy.html")]
pub struct PolicyPage {
    /// Page frame.
    pub layout: Layout,
    /// Key id.
    pub id: String,
    /// Name.
    pub name: String,
    /// The name that was entered.
    pub entered_name: String,
    /// Error in it.
    pub name_error: Option<String>,
    /// The rate, which admins may lower; `None` for others.
    pub rate: Option<RateField>,
    /// The owner's email address.
    pub owner: String,
    /// True if the signed-in user may narrow the policy only.
    pub narrows_only: bool,
    /// The policy that the reader of the form knows of, as the form sends it back.
    pub before: String,
    /// The fields.
    pub policy: PolicyFields,
    /// Error that is in no single field.
    pub error: Option<String>,
}

/// The rate of a key in a form. Fields: `requests` and `before-requests`.
#[derive(Clone, Debug)]
pub struct RateField {
    /// Requests in force, as the form sends them back.
    pub present: u32,
    /// The time in which they flow in, in words.
    pub per: String,
    /// The number that was entered.
    pub entered: String,
    /// Error in it.
    pub error: Option<String>,
}

/// Fields of a policy in a form: `shown` and `permission`, once for each permission; `expiry`, `date`, `networks`,
/// `concurrent` and `tags`.
#[derive(Clone, Debug, Default)]
pub struct PolicyFields {
    /// The permissions to choose from.
    pub permissions: Vec<PermissionChoice>,
    /// The selected expiry.
    pub expiry: Expiry,
    /// The expiry of now in words, which can be kept; `None` for a new key.
    pub present_expiry: Option<String>,
    /// The date that was entered.
    pub date: String,
    /// The networks that were entered, one on a line.
    pub networks: String,
    /// The number that was entered.
    pub concurrent: String,
    /// The tags that were entered, one on a line.
    pub tags: String,
    /// Errors in what was submitted.
    pub errors: PolicyErrors,
}

/// A permission to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionChoice {
    /// Its name.
    pub name: String,
    /// True if the key has it.
    pub is_ticked: bool,
}

/// Errors in what was submitted, by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyErrors {
    /// In the permissions.
    pub permissions: Option<String>,
    /// In the expiry or its date.
    pub expiry: Option<String>,
    /// In the networks.
    pub networks: Option<String>,
    /// In the number of requests in flight.
    pub concurrent: Option<String>,
    /// In the tags.
    pub tags: Option<String>,
}

/// Expiry of a key in a form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// As it is now.
    Keep,
    /// None.
    #[default]
    Never,
    /// After so many days.
    Days(u16),
    /// On a date, which has a field of its own.
    Date,
}

impl PolicyPage {
    /// All errors, each with the id of its field.
    pub fn errors(&self) -> Vec<(&'static str, &str)> {
        let general = self.error.as_deref().map(|error| ("main", error));
        let name = self.name_error.as_deref().map(|error| ("name", error));
        let rate = self.rate.as_ref().and_then(|rate| Some(("requests", rate.error.as_deref()?)));
        general.into_iter().chain(name).chain(rate).chain(self.policy.errors.all()).collect()
    }
}

impl PolicyFields {
    /// Returns `true` if a form with these fields narrows nothing, and has no error: they can be folded away.
    pub fn is_untouched(&self) -> bool {
        self.permissions.iter().all(|choice| choice.is_ticked)
            && [Expiry::Never, Expiry::Keep].contains(&self.expiry)
            && [&self.date, &self.networks, &self.concurrent, &self.tags].iter().all(|text| text.is_empty())
            && self.errors == PolicyErrors::default()
    }

    /// The expiries to choose from, with their texts.
    pub fn expiries(&self) -> Vec<(Expiry, String)> {
        let keep = self.present_expiry.as_ref().map(|now| (Expiry::Keep, format!("As it is: {now}")));
        let days = Expiry::DAYS.map(|days| (Expiry::Days(days), format!("In {days} days")));
        let never = (Expiry::Never, "Never".to_owned());
        keep.into_iter().chain([never]).chain(days).chain([(Expiry::Date, "On a date".to_owned())]).collect()
    }
}

impl PolicyErrors {
    /// All errors, each with the id of its field.
    pub fn all(&self) -> Vec<(&'static str, &str)> {
        let fields = [
            ("permissions", &self.permissions),
            ("expiry", &self.expiry),
            ("networks", &self.networks),
            ("concurrent", &self.concurrent),
            ("tags", &self.tags),
        ];
        fields.into_iter().filter_map(|(field, error)| Some((field, error.as_deref()?))).collect()
    }
}

impl Expiry {
    /// Days to choose from.
    pub const DAYS: [u16; 3] = [30, 90, 365];

    /// Submitted value.
    pub fn value(self) -> String {
        match self {
            Self::Keep => "keep".to_owned(),
            Self::Never => "never".to_owned(),
            Self::Days(days) => format!("{days}d"),
            Self::Date => "date".to_owned(),
        }
    }

    /// The expiry with this submitted value.
    pub fn from_value(value: &str) -> Option<Self> {
        let days = Self::DAYS.map(Self::Days);
        let mut all = [Self::Keep, Self::Never, Self::Date].into_iter().chain(days);
        all.find(|expiry| expiry.value() == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expiry_of_a_form_is_found_by_its_value() {
        let fields = PolicyFields { present_expiry: Some("none".into()), ..PolicyFields::default() };
        let expiries = fields.expiries();
        assert_eq!(expiries.len(), 6);
        for (expiry, _) in expiries {
            assert_eq!(Expiry::from_value(&expiry.value()), Some(expiry));
        }
        assert_eq!(Expiry::from_value("31d"), None);
    }

    #[test]
    fn fields_are_folded_away_while_they_narrow_nothing_and_have_no_error() {
        let choice = |is_ticked| vec![PermissionChoice { name: "a".into(), is_ticked }];
        let untouched = || PolicyFields { permissions: choice(true), ..PolicyFields::default() };
        assert!(untouched().is_untouched());
        let errors = PolicyErrors { expiry: Some("Choose one of these.".into()), ..PolicyErrors::default() };
        for (fields, what) in [
            (PolicyFields { permissions: choice(false), ..untouched() }, "a permission is not ticked"),
            (PolicyFields { expiry: Expiry::Days(30), ..untouched() }, "an expiry"),
            (PolicyFields { networks: "::1".into(), ..untouched() }, "a network"),
            (PolicyFields { concurrent: "1".into(), ..untouched() }, "slots"),
            (PolicyFields { errors, ..untouched() }, "an error"),
        ] {
            assert!(!fields.is_untouched(), "{what}");
        }
    }
}
