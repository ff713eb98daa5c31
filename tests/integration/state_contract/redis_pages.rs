//! Records of the Redis state that belong to the whole deployment: the version of the layout, and the secret of
//! cursors.

use state::redis::{OpenError, Servers};
use state::{Change, Redis as RedisState, State};

use super::fixture::{new_fixture, new_org};
use super::redis::{at, on_a_server, settings};
use super::runtime::{block_on, enter};

#[test]
fn records_of_another_layout_are_refused_at_the_start() {
    let _entered = enter();
    let (state, server) = on_a_server();
    let open = || block_on(RedisState::open(settings(Servers::Single(at(&server)))));
    open().expect("a Redis without organizations has no version");
    block_on(new_fixture(&state));
    open().expect("its own version");
    let refused = |version: &str| {
        let error = open().unwrap_err();
        assert!(matches!(error, OpenError::OtherVersion(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(version) && text.contains("reads version 1; export them"), "{text}");
    };
    server.cli::<()>(&["HSET", "keygate:{orgs}:format", "version", "2"]);
    refused("have version 2 of");
    server.cli::<()>(&["DEL", "keygate:{orgs}:format"]);
    refused("have no version of");
    block_on(state.change(Change::CreateOrg(new_org()))).unwrap();
    open().expect("every new organization brings the version");
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
