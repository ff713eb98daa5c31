//! Actors of the keys of an organization: one hash, which decisions never read.
//!
//! - A field is a key and an event, its value the time of the change and the actor's name. Every field is written in
//!   the transaction of the change itself. So a page of keys is read by one command, and no write needs a read before.
//! - A failover that loses a revocation loses its actor with it. The revocation is written again
//!   (`redis/revocations`), its actor is not: the key then names none.

use std::collections::{BTreeMap, BTreeSet};

use redis::cmd;

use super::transaction::Transaction;
use super::transactions::{Transactions, read_each};
use crate::redis::record_names::RecordNames;
use crate::{ActorName, Key, KeyActors, KeyEvent};
use domain::clock::Micros;
use domain::key::{KeyId, OrgTag};
use redis_client::CommandError;

/// Actors of keys, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct KeyActorIndex<'a>(pub(crate) &'a Transactions);

impl KeyActorIndex<'_> {
    /// The actors of keys of one organization, in their order.
    pub(crate) async fn read(self, keys: &[KeyId]) -> Result<Vec<KeyActors>, CommandError> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let mut query = cmd("HMGET");
        query.arg(self.0.shared.names.key_actors(first.tag()));
        for key in keys {
            query.arg(KeyEvent::ALL.map(|event| field(*key, event)).as_slice());
        }
        let values: Vec<Option<String>> = self.0.client.query(&query).await?;
        Ok(values.chunks(KeyEvent::ALL.len()).map(decode).collect())
    }

    /// The keys of an organization that actors created and that are not revoked. Fields are read some at a time.
    pub(crate) async fn created_by(
        self,
        tag: OrgTag,
        makers: &BTreeSet<ActorName>,
    ) -> Result<Vec<KeyId>, CommandError> {
        let pattern = format!("* {}", KeyEvent::Created.name());
        let mut made = BTreeMap::new();
        let mut cursor = 0_u64;
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(self.0.shared.names.key_actors(tag)).arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let (next, fields): (u64, Vec<(String, String)>) = self.0.client.query(&scan).await?;
            for (field, value) in fields {
                let key = field.split_once(' ').and_then(|(key, _)| key.parse::<KeyId>().ok());
                let by = value.split_once(' ').map(|(at, actor)| (at.parse().ok().map(Micros), ActorName::new(actor)));
                if let (Some(key), Some((at, actor))) = (key, by)
                    && makers.contains(&actor)
                {
                    made.insert(key, at);
                }
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        let is_made = |key: &Key| key.revoked.is_none() && made.get(&key.id) == Some(&Some(key.created));
        let ids: Vec<KeyId> = made.keys().copied().collect();
        let read = async |key| Ok(self.0.read_key(key).await?.map(|stored| stored.key));
        let keys = read_each(ids.into_iter().map(read)).await?;
        Ok(keys.iter().filter(|key| is_made(key)).map(|key| key.id).collect())
    }
}

/// Adds the actor of a change of a key, at this time, to its transaction; nothing when none is known.
pub(super) fn add<F>(
    transaction: &mut Transaction<F>,
    names: &RecordNames,
    (key, event, at): (KeyId, KeyEvent, Micros),
    actor: Option<&ActorName>,
) {
    if let Some(actor) = actor {
        let record = transaction.record(names.key_actors(key.tag()));
        transaction.hset_field(record, &field(key, event), &format!("{} {actor}", at.0));
    }
}

/// Adds the actors of an imported key to its transaction.
pub(crate) fn add_all<F>(transaction: &mut Transaction<F>, names: &RecordNames, key: KeyId, actors: &KeyActors) {
    for (event, at, actor) in actors.iter() {
        add(transaction, names, (key, event, at), Some(actor));
    }
}

fn field(key: KeyId, event: KeyEvent) -> String {
    format!("{} {}", key.as_str(), event.name())
}

/// Decodes the values of one key, by the order of the events. A value that is not understood names no actor.
fn decode(values: &[Option<String>]) -> KeyActors {
    let mut actors = KeyActors::default();
    for (event, value) in KeyEvent::ALL.into_iter().zip(values) {
        let parts = value.as_deref().and_then(|value| value.split_once(' '));
        if let Some((Ok(at), actor)) = parts.map(|(at, actor)| (at.parse().map(Micros), actor)) {
            actors.record(event, at, ActorName::new(actor));
        }
    }
    actors
}
