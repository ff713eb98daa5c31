//! Records for the tests of this module: an organization, its user, and keys.

use super::{Embedded, Settings};
use crate::{Change, Key, KeyActors, KeyExport, Org, User};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::quota::Quota;

/// An empty state with an organization and a user, and the file that it is in.
pub(super) struct Fixture {
    pub(super) state: Embedded,
    settings: Settings,
    org: OrgId,
    user: UserId,
    tag: OrgTag,
    _directory: tempfile::TempDir,
}

impl Fixture {
    pub(super) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            path: directory.path().join("state.db"),
            quota: Quota::DEFAULT,
            concurrent: 10,
            plans: crate::LimitPlans::NONE,
        };
        let state = Embedded::open(&settings).unwrap();
        let tag = OrgTag::generate().unwrap();
        let org = Org::new(OrgId::generate(), tag, "acme", Micros(1));
        let user = User::new(UserId::generate(), org.id, "a@acme.test", Micros(1));
        let fixture = Self { state, settings, org: org.id, user: user.id, tag, _directory: directory };
        fixture.state.change(Change::CreateOrg(org)).await.unwrap();
        fixture.state.change(Change::CreateUser(user)).await.unwrap();
        fixture
    }

    /// A key that was never used.
    pub(super) fn key(&self) -> Key {
        Key::new(KeyId::generate(self.tag).unwrap(), self.org, self.user, "key", Micros(1))
    }

    /// An exported key that was never used.
    pub(super) fn export(&self, digest: KeyDigest) -> KeyExport {
        let key = self.key();
        let quota = Quota::DEFAULT;
        let bucket = crate::bucket::Bucket::full(quota, key.created);
        let actors = KeyActors::default();
        KeyExport { key, digest, previous: None, replaced: Vec::new(), bucket, quota, actors }
    }

    /// Closes the state, and opens its file again.
    pub(super) async fn reopen(self) -> Self {
        self.state.close().await;
        let Self { state, settings, org, user, tag, _directory } = self;
        drop(state);
        Self { state: Embedded::open(&settings).unwrap(), settings, org, user, tag, _directory }
    }
}
