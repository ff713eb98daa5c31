//! State files of any number of keys.

use std::collections::HashSet;
use std::sync::Arc;

use crate::changes::make;
use domain::clock;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag, PlainKey};
use domain::quota::Quota;
use state::{Change, Embedded, Key, Org, User, embedded};

/// Changes handed over at once: the state commits what waits together.
const BATCH: usize = 10_000;
/// Keys of one user.
const KEYS_PER_USER: usize = 100;

/// A state file with keys of one organization.
pub(crate) struct StateFile {
    pub(crate) dir: tempfile::TempDir,
    /// The text of each key.
    pub(crate) keys: Vec<String>,
    strings: usize,
}

impl StateFile {
    pub(crate) fn new(count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let settings =
            embedded::Settings { path, quota: Quota::DEFAULT, concurrent: 100, plans: state::LimitPlans::NONE };
        let state = Arc::new(Embedded::open(&settings).unwrap());
        let tag = OrgTag::generate().unwrap();
        let (id, created) = (OrgId::generate(), clock::now());
        let org = Org::new(id, tag, "bench", created);
        let mut changes = vec![Change::CreateOrg(org)];
        let mut file = Self { dir, keys: Vec::with_capacity(count), strings: 0 };
        let (mut user, mut ids) = (UserId::generate(), HashSet::with_capacity(count));
        for number in 0..count {
            if number % KEYS_PER_USER == 0 {
                user = UserId::generate();
                changes.push(Change::CreateUser(new_user(id, user)));
            }
            // Of a million random ids under one tag, some are equal.
            let mut key_id = KeyId::generate(tag).unwrap();
            while !ids.insert(key_id) {
                key_id = KeyId::generate(tag).unwrap();
            }
            let plain = PlainKey::generate(key_id).unwrap();
            let key = new_key(plain.id(), id, user, number);
            file.strings += key.name.len();
            file.keys.push(plain.expose().expose().to_owned());
            changes.push(Change::CreateKey { key, digest: plain.digest() });
            if changes.len() >= BATCH || number + 1 == count {
                make(&state, std::mem::take(&mut changes));
            }
        }
        file
    }

    pub(crate) fn string_bytes_per_key(&self) -> f64 {
        self.strings as f64 / self.keys.len() as f64
    }
}

fn new_user(org: OrgId, id: UserId) -> User {
    let permissions = vec!["queries:read".parse().unwrap(), "queries:write".parse().unwrap()];
    User { permissions, ..User::new(id, org, id.to_string(), clock::now()) }
}

fn new_key(id: KeyId, org: OrgId, user: UserId, number: usize) -> Key {
    Key::new(id, org, user, format!("key {number}"), clock::now())
}
