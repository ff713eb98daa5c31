//! Replies of the admin socket, which are also what `--json` prints. Times are RFC 3339, UTC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Activity, ActivityReport, ApiKey, Explanation, Key, Link, NewKey, Org, Session, UsePage, User};
use crate::audit::Record;
use crate::key::KeyId;

/// Reply to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
#[allow(missing_docs, reason = "each field is what its type says")]
pub enum Reply {
    /// An organization, as it is now.
    Org { org: Org },
    /// Organizations, in the order of their creation.
    Orgs { orgs: Vec<Org> },
    /// A user, as it is now.
    User { user: User },
    /// Users, in the order of their creation.
    Users { users: Vec<User> },
    /// A key, as it is now.
    Key { key: Key },
    /// Keys, in the order of their creation.
    Keys { keys: Vec<Key> },
    /// A key with a new secret: the only time that it is shown.
    NewKey { api_key: ApiKey, key: Key },
    /// Uses of a key, newest first, as one gateway recorded them; with `next`, there may be older ones.
    Uses { uses: Vec<Record>, next: Option<String>, gateway: String },
    /// Activity of each key in the last day, as one gateway recorded it.
    Activity { keys: BTreeMap<KeyId, Activity>, gateway: String },
    /// A sign-in link.
    Link { link: Link },
    /// Web sessions, oldest first.
    Sessions { sessions: Vec<Session> },
    /// Why a key is, or would be, refused.
    Explanation { explanation: Box<Explanation> },
}

impl Reply {
    /// The reply as JSON, without the tag that tells a client of the socket which reply it is.
    ///
    /// # Errors
    /// None that can happen: all of it is JSON.
    pub fn untagged(&self) -> serde_json::Result<serde_json::Value> {
        let mut value = serde_json::to_value(self)?;
        value.as_object_mut().and_then(|object| object.remove("reply"));
        Ok(value)
    }
}

impl From<Org> for Reply {
    fn from(org: Org) -> Self {
        Self::Org { org }
    }
}

impl From<Vec<Org>> for Reply {
    fn from(orgs: Vec<Org>) -> Self {
        Self::Orgs { orgs }
    }
}

impl From<User> for Reply {
    fn from(user: User) -> Self {
        Self::User { user }
    }
}

impl From<Vec<User>> for Reply {
    fn from(users: Vec<User>) -> Self {
        Self::Users { users }
    }
}

impl From<Key> for Reply {
    fn from(key: Key) -> Self {
        Self::Key { key }
    }
}

impl From<Vec<Key>> for Reply {
    fn from(keys: Vec<Key>) -> Self {
        Self::Keys { keys }
    }
}

impl From<NewKey> for Reply {
    fn from(NewKey { api_key, key }: NewKey) -> Self {
        Self::NewKey { api_key, key }
    }
}

impl From<UsePage> for Reply {
    fn from(UsePage { uses, next, gateway }: UsePage) -> Self {
        Self::Uses { uses, next, gateway }
    }
}

impl From<ActivityReport> for Reply {
    fn from(ActivityReport { keys, gateway }: ActivityReport) -> Self {
        Self::Activity { keys, gateway }
    }
}

impl From<Link> for Reply {
    fn from(link: Link) -> Self {
        Self::Link { link }
    }
}

impl From<Session> for Reply {
    fn from(session: Session) -> Self {
        Self::Sessions { sessions: vec![session] }
    }
}

impl From<Vec<Session>> for Reply {
    fn from(sessions: Vec<Session>) -> Self {
        Self::Sessions { sessions }
    }
}

impl From<Explanation> for Reply {
    fn from(explanation: Explanation) -> Self {
        Self::Explanation { explanation: Box::new(explanation) }
    }
}
