//! Model of what the sources have in common: consumers with their keys, groups and limits, each with its place in the
//! file. No text of a key is in it, only digests.

use domain::key::KeyDigest;
use domain::key::policy::KeyPolicy;
use domain::quota::Quota;
use platform::settings::Location;

/// A place in the file: its line, and the path of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: Location,
    /// Such as `consumers[3].acls[0].group`.
    pub(super) path: Box<str>,
}

/// A text of the file with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) place: Place,
    pub(super) text: Box<str>,
}

/// A consumer: a user of keygate, with keys.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) place: Place,
    pub(super) username: Option<Named>,
    pub(super) custom_id: Option<Named>,
    /// Groups and roles.
    pub(super) groups: Vec<Named>,
    /// Rate limits of the consumer as a whole.
    pub(super) limits: Vec<Limit>,
    pub(super) keys: Vec<Key>,
}

/// A key of a consumer.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) digest: KeyDigest,
    /// Its name; none: that of the consumer.
    pub(super) name: Option<Named>,
    /// A rate limit of this key alone.
    pub(super) limit: Option<Quota>,
    /// Its policy, disabled included; its permissions are all that it has of its own.
    pub(super) policy: Option<Box<KeyPolicy>>,
}

/// A rate limit that keygate can express.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) place: Place,
    pub(super) quota: Quota,
    pub(super) scope: Scope,
}

/// Requests that a limit counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of all keys of the consumer.
    Consumer,
    /// Those of each key.
    Key,
}

impl Consumer {
    pub(super) fn new(place: Place) -> Self {
        Self { place, username: None, custom_id: None, groups: Vec::new(), limits: Vec::new(), keys: Vec::new() }
    }
}
