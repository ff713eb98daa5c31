//! The page of a key: what it is, where it stands, why it was refused, and what it was used for.

use askama::Template;

use super::activity::ActivityChart;
use super::key_state::KeyState;
use super::keys::LastUseCell;
use super::layout::Layout;
use super::limits::{KeyLimits, LimitUsage};
use super::numbers::count;
use super::outcome::OutcomeText;
use super::timestamp::Timestamp;

/// A key.
#[derive(Clone, Debug, Template)]
#[template(path = "key.html")]
pub struct KeyPage {
    /// What is around it.
    pub layout: Layout,
    /// The key id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The owner's email.
    pub owner: String,
    /// Whether the owner is the reader.
    pub own: bool,
    /// The owner's permissions.
    pub permissions: Vec<String>,
    /// Its state.
    pub state: KeyState,
    /// When it was made.
    pub created: Timestamp,
    /// Whether it came from an older system.
    pub imported: bool,
    /// Its last use; none when it was never used.
    pub last_use: Option<LastUseCell>,
    /// How often it was used, ever.
    pub uses_ever: u64,
    /// When its secret was last replaced.
    pub rotated: Option<Timestamp>,
    /// Until when the secret before that works; none when it does not.
    pub previous_until: Option<Timestamp>,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
    /// The limits in force.
    pub limits: KeyLimits,
    /// Where it stands in them; none when it is revoked, or that could not be asked.
    pub standing: Option<LimitUsage>,
    /// What a request would meet now.
    pub verdict: Verdict,
    /// Its last 24 hours; none when they could not be read.
    pub activity: Option<ActivityChart>,
    /// The last requests that were refused, newest first.
    pub refusals: Vec<RefusedUse>,
    /// The address of what may hold older ones, which were not looked for.
    pub older_refusals: Option<String>,
    /// Its uses, newest first; none when they could not be read.
    pub uses: Option<Vec<UseRow>>,
    /// Which uses are shown.
    pub filter: UseFilter,
    /// The address of newer uses.
    pub newer: Option<String>,
    /// The address of older uses.
    pub older: Option<String>,
    /// The name of the gateway whose records these are; none when they could not be read.
    pub gateway: Option<String>,
}

/// What a request would meet now.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Whether it would be admitted somewhere.
    pub admitted: bool,
    /// The whole of it in a sentence, such as `requests are admitted, to routes with these permissions: queries:read`.
    pub sentence: String,
}

/// A request that was refused.
#[derive(Clone, Debug)]
pub struct RefusedUse {
    /// When.
    pub when: Timestamp,
    /// Why.
    pub outcome: &'static OutcomeText,
    /// The status it was answered with.
    pub status: Option<u16>,
    /// What it asked for: the route's name, or method and path.
    pub action: String,
    /// The client's IP address.
    pub ip: String,
}

/// A use of the key.
#[derive(Clone, Debug)]
pub struct UseRow {
    /// When.
    pub when: Timestamp,
    /// What it asked for: the route's name, or method and path.
    pub action: String,
    /// The status it was answered with; none when there was no answer, or not yet.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: &'static OutcomeText,
    /// The client's IP address.
    pub ip: String,
    /// The client's user agent; none when it sent none.
    pub user_agent: Option<String>,
}

/// Which uses are shown: query parameters `show` and `outcome`.
#[derive(Clone, Copy, Debug)]
pub struct UseFilter {
    /// Admitted ones, refused ones, or both.
    pub show: AdmissionFilter,
    /// Those that ended like this; none: any.
    pub outcome: Option<&'static OutcomeText>,
}

/// Admitted uses, refused ones, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionFilter {
    /// Both.
    All,
    /// Those that were forwarded.
    Admitted,
    /// Those that were not.
    Refused,
}

impl KeyPage {
    /// How often it was used, in digits.
    pub fn uses_counted(&self) -> String {
        count(self.uses_ever)
    }

    /// Whether it can still be rotated or revoked.
    pub fn is_changeable(&self) -> bool {
        self.state != KeyState::Revoked
    }

    /// The outcomes that can be asked for.
    pub fn outcomes(&self) -> &'static [OutcomeText] {
        OutcomeText::all()
    }

    /// What can be shown.
    pub fn shows(&self) -> [AdmissionFilter; 3] {
        AdmissionFilter::ALL
    }
}

impl Verdict {
    /// The sentence with a capital at its beginning and a full stop at its end.
    pub fn written(&self) -> String {
        let mut rest = self.sentence.chars();
        let first: String = rest.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
        format!("{first}{}.", rest.as_str().trim_end_matches('.'))
    }
}

impl UseFilter {
    /// All uses.
    pub const ANY: Self = Self { show: AdmissionFilter::All, outcome: None };

    /// Whether all uses are shown.
    pub fn is_any(&self) -> bool {
        self.show == AdmissionFilter::All && self.outcome.is_none()
    }

    /// Whether this outcome is the one asked for.
    pub fn asks(&self, outcome: &OutcomeText) -> bool {
        self.outcome == Some(outcome)
    }
}

impl AdmissionFilter {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::All, Self::Admitted, Self::Refused];

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::All => "All uses",
            Self::Admitted => "Admitted",
            Self::Refused => "Refused",
        }
    }

    /// In addresses; empty for all.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Admitted => "admitted",
            Self::Refused => "refused",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|show| show.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_a_sentence() {
        let written = |sentence: &str| Verdict { admitted: true, sentence: sentence.into() }.written();
        assert_eq!(written("requests are admitted"), "Requests are admitted.");
        assert_eq!(written("Requests are refused."), "Requests are refused.");
        assert_eq!(written(""), ".");
    }
}
