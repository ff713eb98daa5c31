//! Actors of keys: who created, rotated and revoked a key.
//!
//! - They are kept beside the record of the key, and not in it: decisions read the record, and nothing of this.
//! - An actor is kept with the time of what they did, and named only for that time. So a rotation that was written
//!   without an actor, as by a gateway of an older version, never gets the name of an earlier one.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Key;
use domain::clock::Micros;
use domain::identity::UserId;
use domain::management_token::TokenId;

/// Longest name in an imported file, in bytes: twice the longest names of Unix users, and more.
const MAX_LENGTH: usize = 256;

/// Beginning of the names of programs.
const TOKEN_PREFIX: &str = "token:";

/// Actor of a change, by the name that the audit has: `unix:ada(1000)`, `token:ID` of a program, or the id of a user
/// with a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActorName(String);

/// A change of a key that has an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// It was created or imported.
    Created,
    /// It was rotated, for the last time.
    Rotated,
    /// It was revoked.
    Revoked,
}

/// The actors of one key, as far as they are known, each with the time of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyActors<A = ActorName>([Option<(Micros, A)>; 3]);

impl ActorName {
    /// The actor with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of a user with a session; none of the operator.
    pub fn user(&self) -> Option<UserId> {
        self.0.parse().ok()
    }

    /// A program, by its management token.
    pub fn of_token(token: TokenId) -> Self {
        Self(format!("{TOKEN_PREFIX}{token}"))
    }

    /// The management token of a program; none of people.
    pub fn token(&self) -> Option<TokenId> {
        self.0.strip_prefix(TOKEN_PREFIX)?.parse().ok()
    }

    /// Returns whether it is a name as records have them: a line of text, and not too long.
    pub(crate) fn is_valid(&self) -> bool {
        !self.0.is_empty() && self.0.len() <= MAX_LENGTH && !self.0.contains(char::is_control)
    }
}

impl fmt::Display for ActorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl KeyEvent {
    /// All events.
    pub const ALL: [Self; 3] = [Self::Created, Self::Rotated, Self::Revoked];

    /// The time of the event, by the record of the key; none when there was no such event.
    pub fn time_of(self, key: &Key) -> Option<Micros> {
        match self {
            Self::Created => Some(key.created),
            Self::Rotated => key.rotated,
            Self::Revoked => key.revoked,
        }
    }

    /// Name in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Rotated => "rotated",
            Self::Revoked => "revoked",
        }
    }
}

impl<A> KeyActors<A> {
    /// Adds the actor of a change at this time.
    pub fn record(&mut self, event: KeyEvent, at: Micros, actor: A) {
        self.0[event as usize] = Some((at, actor));
    }

    /// The actor of the change at this time; none when it is not known, or when there was no such change.
    pub fn find(&self, event: KeyEvent, at: Option<Micros>) -> Option<&A> {
        let (recorded, actor) = self.0[event as usize].as_ref()?;
        (Some(*recorded) == at).then_some(actor)
    }

    /// All that are known, with the times of the changes.
    pub fn iter(&self) -> impl Iterator<Item = (KeyEvent, Micros, &A)> {
        let known = KeyEvent::ALL.into_iter().zip(&self.0);
        known.filter_map(|(event, recorded)| recorded.as_ref().map(|(at, actor)| (event, *at, actor)))
    }

    /// The same, each actor in another form.
    pub fn map<B>(&self, form: impl Fn(&A) -> B) -> KeyActors<B> {
        KeyActors(self.0.each_ref().map(|recorded| recorded.as_ref().map(|(at, actor)| (*at, form(actor)))))
    }
}

impl<A> Default for KeyActors<A> {
    fn default() -> Self {
        Self([const { None }; 3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actor_is_named_for_the_time_of_the_change_alone() {
        let mut actors = KeyActors::default();
        actors.record(KeyEvent::Rotated, Micros(7), ActorName::new("unix:ada(1000)"));
        assert_eq!(actors.find(KeyEvent::Rotated, Some(Micros(7))).map(ActorName::as_str), Some("unix:ada(1000)"));
        assert_eq!(actors.find(KeyEvent::Rotated, Some(Micros(8))), None, "a later rotation, by an unknown actor");
        assert_eq!(actors.find(KeyEvent::Rotated, None), None);
        assert_eq!(actors.find(KeyEvent::Revoked, Some(Micros(7))), None);
    }

    #[test]
    fn name_is_one_line_and_may_be_a_user() {
        let user = UserId::generate();
        assert_eq!(ActorName::new(user.to_string()).user(), Some(user));
        assert_eq!(ActorName::new("unix:ada(1000)").user(), None);
        for (name, valid) in [("unix:ada(1000)", true), ("", false), ("a\nb", false), (&"a".repeat(257), false)] {
            assert_eq!(ActorName::new(name).is_valid(), valid, "{name}");
        }
    }
}
