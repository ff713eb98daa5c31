//! A key with all that its results show, and the record of a new one.

use super::user::Responsible;
use super::{Actor, KeyActor};
use domain::clock::Micros;
use domain::key::KeyId;
use state::{self, KeyActors, KeyEvent, Membership};

/// Key record with its user, organization and actors, as they were when they were read.
#[derive(Debug)]
pub(super) struct OwnedKey {
    pub(super) key: state::Key,
    pub(super) user: Option<state::User>,
    pub(super) org: Option<state::Org>,
    /// The person who is responsible for the user, if that is a service.
    pub(super) responsible: Option<Responsible>,
    /// As the actor of the operation may know them.
    pub(super) actors: KeyActors<KeyActor>,
}

impl OwnedKey {
    /// A key that this actor has just created.
    pub(super) fn new(key: state::Key, user: state::User, org: state::Org, actor: &Actor) -> Self {
        let mut actors = KeyActors::default();
        actors.record(KeyEvent::Created, key.created, KeyActor::of(actor));
        Self { key, user: Some(user), org: Some(org), responsible: None, actors }
    }
}

pub(super) fn member(user: &state::User) -> Membership {
    Membership { org: user.org, user: user.id }
}

/// The record of a new key.
pub(super) fn new_record(id: KeyId, owner: Membership, name: String, now: Micros) -> state::Key {
    state::Key::new(id, owner.org, owner.user, name, now)
}
