//! Actors of keys: who created, rotated and revoked them.

use domain::clock::{self, Micros};
use domain::key::{KeyId, PlainKey};
use state::{ActorName, Change, Key, KeyActors, KeyEvent, LastRotation, State};

use super::TOKEN;
use super::fixture::{fixture_with_key, new_fixture, new_key};

/// The names of the actors of a key, as far as they are known: of its creation, rotation and revocation.
async fn actors(state: &State, key: KeyId) -> [Option<String>; 3] {
    let Key { created, rotated, revoked, .. } = state.key(key).await.unwrap().unwrap();
    let [actors] = &state.key_actors(&[key]).await.unwrap()[..] else { panic!("one key") };
    let name = |event, at| actors.find(event, at).map(|actor| actor.as_str().to_owned());
    [name(KeyEvent::Created, Some(created)), name(KeyEvent::Rotated, rotated), name(KeyEvent::Revoked, revoked)]
}

fn rotation(key: KeyId, at: Micros) -> Change {
    let digest = PlainKey::generate(key).unwrap().digest();
    Change::RotateKey { key, digest, at, previous_until: at, last: LastRotation::Any }
}

pub(super) async fn actors_of_a_key_are_those_who_changed_it(state: &State) {
    let fixture = new_fixture(state).await;
    let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
    let id = key.id;
    let (user, at) = (fixture.user.to_string(), clock::now());
    let named = |name: &str| Some(name.to_owned());
    state.change(Change::CreateKey { key, digest }.by("unix:ada(1000)")).await.unwrap();
    assert_eq!(actors(state, id).await, [named("unix:ada(1000)"), None, None]);
    let change = Box::new(rotation(id, at));
    state.change(Change::ByPerson { person: fixture.user, change }.by(&user)).await.unwrap();
    assert_eq!(actors(state, id).await, [named("unix:ada(1000)"), Some(user), None]);
    state.change(rotation(id, at.after(TOKEN)).by("unix:bob(1001)")).await.unwrap();
    state.change(Change::limit_key(id, None).by("unix:eve(1002)")).await.unwrap();
    let rotated = [named("unix:ada(1000)"), named("unix:bob(1001)"), None];
    assert_eq!(actors(state, id).await, rotated);
    let revoked = [rotated[0].clone(), rotated[1].clone(), named("unix:root(0) sudo:ada(1000)")];
    state.change(Change::RevokeKey { key: id, at }.by("unix:root(0) sudo:ada(1000)")).await.unwrap();
    assert_eq!(actors(state, id).await, revoked);
    // The first revocation stands.
    state.change(Change::RevokeKey { key: id, at: at.after(TOKEN) }.by("unix:eve(1002)")).await.unwrap();
    assert_eq!(actors(state, id).await, revoked);
}

/// Gateways of an older version change keys without an actor.
pub(super) async fn change_without_an_actor_has_none(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let at = clock::now();
    assert_eq!(actors(state, key.id).await, [None, None, None]);
    state.change(rotation(key.id, at).by("unix:ada(1000)")).await.unwrap();
    state.change(rotation(key.id, at.after(TOKEN))).await.unwrap();
    assert_eq!(actors(state, key.id).await, [None, None, None], "not the actor of the rotation before");
    state.change(Change::RevokeKey { key: key.id, at }).await.unwrap();
    state.change(Change::RevokeKey { key: key.id, at: at.after(TOKEN) }.by("unix:ada(1000)")).await.unwrap();
    assert_eq!(actors(state, key.id).await, [None, None, None], "not the actor of a repeated revocation");

    let (made, digest) = new_key(fixture.tag, fixture.org, fixture.user);
    let (made_id, created) = (made.id, made.created);
    state.change(Change::CreateKey { key: made, digest }.by("unix:ada(1000)")).await.unwrap();
    let missing = KeyId::generate(fixture.tag).unwrap();
    let found = state.key_actors(&[missing, made_id, key.id]).await.unwrap();
    let mut expected = KeyActors::default();
    expected.record(KeyEvent::Created, created, ActorName::new("unix:ada(1000)"));
    assert_eq!((found.len(), &found[0], &found[1]), (3, &KeyActors::default(), &expected), "in their order");
    assert_eq!(state.key_actors(&[]).await.unwrap(), []);
}
