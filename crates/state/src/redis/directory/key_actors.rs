//! Actors of the keys of an organization: one hash, which decisions never read.
//!
//! - A field is a key and an event, its value the time of the change and the actor's name. Every field is written in
//!   the transaction of the change itself. So a page of keys is read by one command, and no write needs a read before.
//! - A failover that loses a revocation loses its actor with it. The revocation is written again
//!   (`redis/revocations`), its actor is not: the key then names none.

use redis::cmd;

use super::transaction::Transaction;
use super::transactions::Transactions;
use crate::redis::record_names::RecordNames;
use crate::{ActorName, KeyActors, KeyEvent};
use domain::clock::Micros;
use domain::key::KeyId;
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
