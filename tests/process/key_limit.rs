//! Limit of requests in flight of a key, set in the state of a gateway that does not run yet.

use domain::key::KeyDigest;
use domain::key::policy::{Field, PolicyPatch};
use keygate::config::Config;
use state::{Change, Embedded, PolicyScope, Redis, Settings, State};

use crate::support::Setup;

/// Sets the limit of a key.
pub fn limit_key(setup: &Setup, key: &str, concurrent: u32) {
    let config = Config::load(&setup.path().join("keygate.yaml")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let state = match &config.state {
            Settings::Embedded(settings) => State::Embedded(Embedded::open(settings).unwrap()),
            Settings::Redis(settings) => State::Redis(Redis::open_for_changes((**settings).clone()).await.unwrap()),
        };
        let key = state.key_of(&KeyDigest::of(key.as_bytes())).await.unwrap().unwrap();
        let patch = Box::new(PolicyPatch { concurrent: Field::Set(concurrent), ..PolicyPatch::default() });
        state.change(Change::set_key_policy(key, patch, PolicyScope::Operator)).await.unwrap();
        state.close().await;
    });
}
