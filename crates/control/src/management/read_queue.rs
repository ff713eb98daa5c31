//! Turns to read the audit journal, or all keys of an organization: what reads cost comes from the same cores and the
//! same disk that requests need.
//!
//! - A few reads run at a time, and one for each person.
//! - The next turn goes to the person who has waited longest for one: a person with many reads waits for their own
//!   results, and another person waits for one read at most of each person before them.
//! - Few reads of a person wait, and few in total; more are refused. A read whose caller is gone leaves the queue.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use domain::identity::PersonId;

/// Reads at a time.
pub(super) const CONCURRENT_READS: usize = 4;
/// Reads of one person that wait at most: a few windows, each with one read at a time.
pub(super) const MAX_WAITING_PER_PERSON: usize = 8;
/// Reads that wait at most: for the last of them, a few seconds.
pub(super) const MAX_WAITING: usize = 64;

/// The read was refused: too many are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueueFull {
    /// Too many of the same person.
    #[error("too many reads of one person wait")]
    Person,
    /// Too many of all persons.
    #[error("too many reads wait")]
    Total,
}

/// Queue of the reads. Clones are the same queue.
#[derive(Clone, Default)]
pub(super) struct ReadQueue(Arc<Mutex<Turns>>);

/// Permit for one read. Dropping it gives the turn to the next.
pub(super) struct ReadPermit {
    queue: ReadQueue,
    person: Option<PersonId>,
}

/// The persons who read, and those who wait. Shared by the queue's clones, its permits and the reads that wait, each of
/// which leaves it when it is dropped.
///
/// - No person waits who could read: [`Turns::grant`] follows each change.
#[derive(Default)]
struct Turns {
    /// Persons who read.
    reading: usize,
    /// Persons with a read that runs or waits. Who was given a turn goes to the end.
    persons: VecDeque<Person>,
}

struct Person {
    id: Option<PersonId>,
    is_reading: bool,
    waiting: VecDeque<oneshot::Sender<ReadPermit>>,
}

/// A permit on its way to the read that waits for it.
type Grant = (oneshot::Sender<ReadPermit>, Option<PersonId>);

impl ReadQueue {
    /// Waits for a turn of this person; the operator is one, too (`None`). Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`QueueFull`], at once.
    pub(super) async fn acquire(&self, person: Option<PersonId>) -> Result<ReadPermit, QueueFull> {
        let mut waiting = self.join(person)?;
        Ok((&mut waiting.receiver).await.expect("a turn is dropped when its receiver is closed, and not before"))
    }

    fn join(&self, person: Option<PersonId>) -> Result<Waiting<'_>, QueueFull> {
        let (sender, receiver) = oneshot::channel();
        let mut turns = self.0.lock();
        turns.join(person, sender)?;
        self.send_grants(turns);
        Ok(Waiting { queue: self, receiver })
    }

    /// Sends permits outside of the lock: one without a receiver comes back by its drop.
    fn send_grants(&self, mut turns: MutexGuard<'_, Turns>) {
        let grants = turns.grant();
        drop(turns);
        for (sender, person) in grants {
            drop(sender.send(ReadPermit { queue: self.clone(), person }));
        }
    }
}

/// A read that waits. Dropping it leaves the queue.
struct Waiting<'a> {
    queue: &'a ReadQueue,
    receiver: oneshot::Receiver<ReadPermit>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        // Sent before the channel was closed, and not received.
        drop(self.receiver.try_recv());
        self.queue.0.lock().leave();
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        let mut turns = self.queue.0.lock();
        turns.end(self.person);
        self.queue.send_grants(turns);
    }
}

impl Turns {
    fn join(&mut self, id: Option<PersonId>, sender: oneshot::Sender<ReadPermit>) -> Result<(), QueueFull> {
        let total: usize = self.persons.iter().map(|person| person.waiting.len()).sum();
        let place = self.persons.iter().position(|person| person.id == id);
        let own = place.map_or(0, |place| self.persons[place].waiting.len());
        if own >= MAX_WAITING_PER_PERSON {
            return Err(QueueFull::Person);
        }
        if total >= MAX_WAITING {
            return Err(QueueFull::Total);
        }
        let place = place.unwrap_or_else(|| {
            self.persons.push_back(Person { id, is_reading: false, waiting: VecDeque::new() });
            self.persons.len() - 1
        });
        self.persons[place].waiting.push_back(sender);
        Ok(())
    }

    /// Removes the reads whose callers are gone.
    fn leave(&mut self) {
        self.persons.iter_mut().for_each(|person| person.waiting.retain(|sender| !sender.is_closed()));
        self.persons.retain(|person| person.is_reading || !person.waiting.is_empty());
    }

    /// Ends the read of a person.
    fn end(&mut self, id: Option<PersonId>) {
        debug_assert!(self.reading > 0, "each permit ends once");
        self.reading -= 1;
        if let Some(person) = self.persons.iter_mut().find(|person| person.id == id) {
            person.is_reading = false;
        }
        self.leave();
    }

    /// Gives turns to those who wait, as long as there are free ones.
    fn grant(&mut self) -> Vec<Grant> {
        let mut grants = Vec::new();
        while self.reading < CONCURRENT_READS {
            let next = self.persons.iter().position(|person| !person.is_reading && !person.waiting.is_empty());
            let Some(mut person) = next.and_then(|place| self.persons.remove(place)) else { break };
            grants.extend(person.waiting.pop_front().map(|sender| (sender, person.id)));
            person.is_reading = true;
            self.reading += 1;
            self.persons.push_back(person);
        }
        debug_assert_eq!(
            self.reading,
            self.persons.iter().filter(|person| person.is_reading).count(),
            "a person reads once at a time"
        );
        grants
    }
}

impl fmt::Debug for ReadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = self.0.lock();
        let waiting: usize = turns.persons.iter().map(|person| person.waiting.len()).sum();
        f.debug_struct("ReadQueue").field("reading", &turns.reading).field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Begins to wait, and returns the future that waits.
    fn begin<'a>(
        queue: &'a ReadQueue,
        person: &str,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<ReadPermit, QueueFull>> + 'a>> {
        Box::pin(queue.acquire(Some(PersonId::from_subject("https://a.example", person))))
    }

    #[test]
    fn person_has_one_turn_at_a_time() {
        let queue = ReadQueue::default();
        let first = begin(&queue, "ada").now_or_never().unwrap().ok().unwrap();
        let mut second = begin(&queue, "ada");
        assert!((&mut second).now_or_never().is_none());
        let other = begin(&queue, "bob").now_or_never();
        assert!(other.is_some(), "another person does not wait");
        drop((first, other));
        assert!(second.now_or_never().is_some());
        assert_eq!(format!("{queue:?}"), "ReadQueue { reading: 0, waiting: 0 }");
    }

    #[test]
    fn turns_go_round_the_persons() {
        let queue = ReadQueue::default();
        let names: Vec<String> = (0..CONCURRENT_READS).map(|number| format!("busy {number}")).collect();
        let mut reading: VecDeque<_> =
            names.iter().map(|name| begin(&queue, name).now_or_never().unwrap().ok().unwrap()).collect();
        let mut ada: Vec<_> = (0..MAX_WAITING_PER_PERSON).map(|_| begin(&queue, "ada")).collect();
        ada.iter_mut().for_each(|read| assert!(read.now_or_never().is_none()));
        let mut bob = begin(&queue, "bob");
        assert!((&mut bob).now_or_never().is_none());
        drop(reading.pop_front());
        let first = (&mut ada[0]).now_or_never().unwrap().ok().unwrap();
        drop(first);
        assert!((&mut ada[1]).now_or_never().is_none(), "it is Bob's turn");
        assert!(bob.now_or_never().is_some());
        assert!((&mut ada[1]).now_or_never().is_some());
    }

    #[test]
    fn queue_is_bounded_for_each_person_and_in_total() {
        let queue = ReadQueue::default();
        let names: Vec<String> = (0..CONCURRENT_READS + MAX_WAITING + 1).map(|number| number.to_string()).collect();
        let mut held: Vec<_> = names.iter().map(|name| begin(&queue, name)).collect();
        let mut permits = Vec::new();
        for read in &mut held[..CONCURRENT_READS + MAX_WAITING] {
            permits.extend(read.now_or_never().map(|permit| permit.ok().unwrap()));
        }
        assert_eq!(permits.len(), CONCURRENT_READS);
        let refused = held.pop().unwrap().now_or_never().unwrap();
        assert_eq!(refused.err(), Some(QueueFull::Total));
        drop(held);
        let mut own: Vec<_> = (0..=MAX_WAITING_PER_PERSON).map(|_| begin(&queue, &names[0])).collect();
        let refused: Vec<_> = own.iter_mut().filter_map(|read| read.now_or_never()?.err()).collect();
        assert_eq!(refused, [QueueFull::Person]);
    }

    #[test]
    fn abandoned_read_leaves_the_queue() {
        let queue = ReadQueue::default();
        let first = begin(&queue, "ada").now_or_never().unwrap().ok().unwrap();
        let mut waiting: Vec<_> = (0..MAX_WAITING_PER_PERSON).map(|_| begin(&queue, "ada")).collect();
        waiting.iter_mut().for_each(|read| assert!(read.now_or_never().is_none()));
        drop(waiting);
        assert_eq!(format!("{queue:?}"), "ReadQueue { reading: 1, waiting: 0 }");
        let mut next = begin(&queue, "ada");
        assert!((&mut next).now_or_never().is_none());
        drop(first);
        // The turn was given and not received.
        drop(next);
        assert_eq!(format!("{queue:?}"), "ReadQueue { reading: 0, waiting: 0 }");
        assert!(queue.0.lock().persons.is_empty());
    }
}
