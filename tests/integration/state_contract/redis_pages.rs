//! Lists of the Redis state: keys of an earlier version, and the secret that all gateways share.

use state::redis::Servers;
use state::{KeyList, Redis as RedisState, State};

use super::fixture::new_fixture;
use super::redis::{at, on_a_server, settings};
use super::runtime::{block_on, enter};

#[test]
fn keys_of_an_earlier_version_are_listed() {
    let _entered = enter();
    let (state, server) = on_a_server();
    let (fixture, mut keys) = block_on(async {
        let fixture = new_fixture(&state).await;
        let mut keys = Vec::new();
        for _ in 0..9 {
            keys.push(fixture.key(&state).await.id);
        }
        fixture.session_quota_key(&state, fixture.user).await;
        (fixture, keys)
    });
    let tag = fixture.tag.as_str();
    let owned = format!("keygate:{{{tag}}}:user:{}:keys:listed", fixture.user);
    let indexes = [format!("keygate:{{{tag}}}:keys:listed"), owned];
    let listed = |owner, limit| {
        let list = KeyList { org: fixture.org, owner, newest_first: false };
        let page = block_on(state.page_of_keys(list, None, limit)).unwrap();
        page.items.into_iter().map(|key| key.id).collect::<Vec<_>>()
    };
    // As an earlier version left them: in a list, without an index; and then with a key that only the list has.
    let append = |id: &domain::key::KeyId| {
        server.cli::<u64>(&["RPUSH", &format!("keygate:{{{tag}}}:keys"), id.as_str()]);
    };
    for index in &indexes {
        assert_eq!(server.cli::<u64>(&["DEL", index]), 1, "{index}");
    }
    keys.iter().for_each(append);
    assert_eq!((listed(None, 100), listed(Some(fixture.user), 100)), (keys.clone(), keys.clone()));
    for index in &indexes {
        assert_eq!(server.cli::<u64>(&["ZCARD", index]), 9, "{index}");
        assert_eq!(server.cli::<u64>(&["ZREM", index, keys[4].as_str()]), 1);
    }
    append(&keys[4]);
    assert_eq!(listed(None, 5), keys[..5]);
    assert_eq!(listed(Some(fixture.user), 100), keys);
    keys.push(block_on(fixture.key(&state)).id);
    assert_eq!(listed(None, 100), keys);
}

#[test]
fn gateways_share_the_secret_of_cursors() {
    let _entered = enter();
    let (first, server) = on_a_server();
    let secret = |state: &State| *block_on(state.cursor_secret()).unwrap().as_bytes();
    let second = State::Redis(block_on(RedisState::open(settings(Servers::Single(at(&server))))).unwrap());
    assert_eq!(secret(&second), secret(&first));
    let (other, _server) = on_a_server();
    assert_ne!(secret(&other), secret(&first));
}
