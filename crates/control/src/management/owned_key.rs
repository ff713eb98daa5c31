//! A key with all that its results show, and the record of a new one.

use super::key_actor::key_actors;
use super::operands::{check_creation, find_org, find_user};
use super::user::{Responsible, find_responsible};
use super::{Actor, ApiKey, Key, KeyActor, Management, ManagementError, NewKey};
use domain::clock::Micros;
use domain::key::KeyId;
use domain::names;
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

/// Looks up the organization and the user that a new key is for, and checks its name.
pub(super) async fn find_owner(
    management: &Management,
    actor: &Actor,
    org: &str,
    user: &str,
    name: &str,
) -> Result<(state::Org, state::User, String), ManagementError> {
    let name = names::validate_name(name)?;
    let org = find_org(management, org).await?;
    check_creation(actor, &org)?;
    let user = find_user(management, org.id, user).await?;
    Ok((org, user, name))
}

/// Looks up the key with this id, revoked or not, with its user, organization and actors.
pub(super) async fn find_key(management: &Management, actor: &Actor, id: KeyId) -> Result<OwnedKey, ManagementError> {
    let key = management.state.key(id).await?.filter(|key| !key.session_quota_key).ok_or(ManagementError::NoKey(id))?;
    let (org, user) = management.state.member(key.org, key.user).await?.unzip();
    let responsible = match &user {
        Some(user) => find_responsible(management, user).await?,
        None => None,
    };
    let actors = key_actors(management, actor, key.org, &[id]).await?.pop().unwrap_or_default();
    Ok(OwnedKey { key, user, org, responsible, actors })
}

/// The result of a change that gives a key a secret. A secret that replicas have not confirmed is valid: it is
/// shown with a warning, because a repetition would make another one.
pub(super) fn new_key(
    management: &Management,
    made: Result<(), ManagementError>,
    api_key: Option<ApiKey>,
    owned: &OwnedKey,
    now: Micros,
) -> Result<NewKey, ManagementError> {
    let warning = match made {
        Ok(()) => None,
        Err(ManagementError::Unconfirmed(cause)) => Some(format!("{cause}; look whether the key is still there")),
        Err(error) => return Err(error),
    };
    Ok(NewKey { api_key, key: show_owned(management, owned, now), warning })
}

/// A key as results show it at `now`.
pub(super) fn show_owned(management: &Management, owned: &OwnedKey, now: Micros) -> Key {
    let (user, org) = (owned.user.as_ref(), owned.org.as_ref());
    let defaults = management.state.defaults();
    Key::new(&owned.key, user, org, defaults.limits_of_key(&owned.key, user, org), now)
        .with_actors(&owned.actors)
        .with_responsible(owned.responsible.clone())
}
