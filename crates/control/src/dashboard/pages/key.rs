//! The page of a key: details, limits and their usage, activity, refusals and uses; and the form that revokes it.

use askama::Template;

use super::keys::{AttemptCell, LastUseCell};
use super::layout::Layout;
use super::limits::{KeyLimits, LimitUsage};
use super::numbers::{format_count, format_counted};
use super::outcome::OutcomeText;
use super::policy::PolicyFacts;
use super::recorded::RecordSource;
use super::timestamp::Timestamp;
use super::usage::{ShareRow, UsagePart};
use super::use_row::UseRow;
use super::users::ResponsibleCell;
use crate::management::KeyStatus;
use domain::problem::sentence;

/// The page of a key.
#[derive(Clone, Debug, Template)]
#[template(path = "key.html")]
pub struct KeyPage {
    /// Page frame.
    pub layout: Layout,
    /// The key.
    pub key: KeyDetails,
    /// The effective limits.
    pub limits: KeyLimits,
    /// Usage of the limits; `None` when the key is revoked.
    pub usage: Option<LimitUsage>,
    /// The key's policy.
    pub policy: PolicyFacts,
    /// Verdict on a request sent now.
    pub verdict: Verdict,
    /// Usage in the chosen range.
    pub part: UsagePart,
    /// Users of it in the range; `None` when it was not used, or the journal cannot be read.
    pub used_by: Option<UsedByPart>,
    /// Uses, newest first; `None` when the journal cannot be read.
    pub uses: Option<Vec<UseRow>>,
    /// Filter of the uses.
    pub filter: UseFilter,
    /// Address of the newest uses; `None` when they are shown.
    pub newer: Option<String>,
    /// Address of older uses; `None` when there are none.
    pub older: Option<String>,
    /// Source of the records; `None` when they cannot be read.
    pub source: Option<RecordSource>,
}

/// The form that revokes a key. Field: `name`, which must be the key's name, when the key is in use.
#[derive(Clone, Debug, Template)]
#[template(path = "revoke.html")]
pub struct RevokePage {
    /// Page frame.
    pub layout: Layout,
    /// Key id.
    pub id: String,
    /// Name.
    pub name: String,
    /// The owner's email address.
    pub owner: String,
    /// Last use; `None` when it was never used.
    pub last_use: Option<LastUseCell>,
    /// True if the name is asked for: the key was used in the last 24 hours, so a program probably needs it.
    pub is_in_use: bool,
    /// Error in the name that was typed.
    pub error: Option<String>,
}

/// A key.
#[derive(Clone, Debug)]
pub struct KeyDetails {
    /// Key id.
    pub id: String,
    /// Name.
    pub name: String,
    /// The owner's email address, or name of a service.
    pub owner: String,
    /// The person who is responsible for the owner, a service; `None` when the owner is a person.
    pub responsible: Option<ResponsibleCell>,
    /// True if the signed-in user is the owner.
    pub is_own: bool,
    /// The permissions of requests with the key: those of its owner that its policy leaves.
    pub permissions: Vec<String>,
    /// State.
    pub state: KeyStatus,
    /// Time of creation.
    pub created: Timestamp,
    /// The one who created or imported it; `None`, as in the next two, when that is not known.
    pub created_by: Option<String>,
    /// True if it was imported from another system.
    pub imported: bool,
    /// Last use; `None` when it was never used.
    pub last_use: Option<LastUseCell>,
    /// The last attempt to use it, when that was refused.
    pub refused_attempt: Option<AttemptCell>,
    /// Number of uses since it was created.
    pub total_uses: u64,
    /// Time of the last rotation.
    pub rotated: Option<Timestamp>,
    /// The one who made the last rotation.
    pub rotated_by: Option<String>,
    /// Time at which the secret before the last rotation expires; `None` when it has.
    pub previous_until: Option<Timestamp>,
    /// Time of revocation.
    pub revoked: Option<Timestamp>,
    /// The one who revoked it.
    pub revoked_by: Option<String>,
    /// Marks for the owner's attention, each with advice.
    pub marks: Vec<(&'static str, &'static str)>,
}

/// Verdict on a request sent now.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// `true`: admitted, to some routes at least; `false`: refused.
    pub admitted: bool,
    /// The explanation, such as `requests are admitted, to routes with these permissions: queries:read`.
    pub sentence: String,
}

/// Users of a key, among the newest requests of a range.
#[derive(Clone, Debug)]
pub struct UsedByPart {
    /// Requests that were looked through.
    pub requests: u64,
    /// True when these are all of the range.
    pub is_all: bool,
    /// Routes, most frequent first.
    pub routes: Vec<ShareRow>,
    /// Addresses of clients.
    pub addresses: Vec<ShareRow>,
    /// User agents of clients.
    pub agents: Vec<ShareRow>,
}

/// Filter of the uses: query parameters `show`, `outcome`, `action`, `from` and `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UseFilter {
    /// Admitted uses, refused ones, or both.
    pub admission: AdmissionFilter,
    /// Outcome; `None`: any.
    pub outcome: Option<&'static OutcomeText>,
    /// Action: the name of a route, or `METHOD /path`; empty for any.
    pub action: String,
    /// First day, in UTC; empty for any.
    pub from: String,
    /// Last day.
    pub to: String,
}

/// Admitted uses, refused ones, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionFilter {
    /// Both.
    All,
    /// Uses that were forwarded.
    Admitted,
    /// Uses that were refused.
    Refused,
}

impl KeyPage {
    /// The number of all uses, in digits.
    pub fn total_uses(&self) -> String {
        format_count(self.key.total_uses)
    }

    /// Returns `true` if the key can be changed: rotated, disabled and revoked.
    pub fn is_changeable(&self) -> bool {
        self.key.state != KeyStatus::Revoked
    }

    /// The outcomes to filter by.
    pub fn outcomes(&self) -> &'static [OutcomeText] {
        OutcomeText::all()
    }

    /// The choices between admitted and refused uses.
    pub fn admission_filters(&self) -> [AdmissionFilter; 3] {
        AdmissionFilter::ALL
    }
}

impl UsedByPart {
    /// The requests that were looked through, as a sentence; `words` is the range.
    pub fn scope(&self, words: &str) -> String {
        let requests = format_counted(self.requests, "request");
        if self.is_all {
            format!("Of all {requests} in {words}.")
        } else {
            format!("Of the newest {requests} in {words}.")
        }
    }
}

impl Verdict {
    /// The sentence with a capital letter at its beginning and a full stop at its end.
    pub fn text(&self) -> String {
        sentence(self.sentence.trim_end_matches('.'))
    }
}

impl UseFilter {
    /// The filter that matches all uses.
    pub const ANY: Self = Self {
        admission: AdmissionFilter::All,
        outcome: None,
        action: String::new(),
        from: String::new(),
        to: String::new(),
    };

    /// Returns `true` if the filter matches all uses.
    pub fn is_any(&self) -> bool {
        *self == Self::ANY
    }

    /// Returns `true` if the filter selects this outcome.
    pub fn selects(&self, outcome: &OutcomeText) -> bool {
        self.outcome == Some(outcome)
    }
}

impl AdmissionFilter {
    /// All choices.
    pub const ALL: [Self; 3] = [Self::All, Self::Admitted, Self::Refused];

    /// Shown text.
    pub fn label(self) -> &'static str {
        match self {
            Self::All => "All requests",
            Self::Admitted => "Admitted",
            Self::Refused => "Refused",
        }
    }

    /// Name in addresses; empty for both.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Admitted => "admitted",
            Self::Refused => "refused",
        }
    }

    /// The choice with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|filter| filter.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_text_is_a_sentence() {
        let text = |sentence: &str| Verdict { admitted: true, sentence: sentence.into() }.text();
        assert_eq!(text("requests are admitted"), "Requests are admitted.");
        assert_eq!(text("Requests are refused."), "Requests are refused.");
        assert_eq!(text(""), ".");
    }
}
