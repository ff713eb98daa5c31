//! Shippers: each follows the journal of its gateway, as the loop of `crates/journal/src/shipping/shipper.rs`.

use journal::shipping::{INTERVAL, OPEN_AFTER};

use super::event::{Event, Process};
use super::options::Break;
use super::revocations::micros;
use super::world::World;

/// Time that a transaction takes until its commit, and the answer after it; and a connection that fails.
const COMMIT: u64 = 20_000;
const ANSWER: u64 = 5_000;
/// Time after which the database is taken for away. The product waits for 60 s; a refused connection fails at once.
const FAILS_AFTER: u64 = 50_000;

impl World {
    /// One look at the journal, or one attempt to connect.
    pub fn ship(&mut self, process: Process) {
        let now = self.now;
        if !self.is_live(process) {
            return;
        }
        let is_away = self.postgres.away_until > now;
        let number = self.id();
        let journal = &mut self.gateways[process.gateway].journal;
        if is_away && journal.position.is_none() {
            return self.retry_shipping(process);
        }
        if journal.position.is_none() {
            let position = self.postgres.position(journal.number);
            journal.open_at(position);
        }
        let open_after = u64::try_from(OPEN_AFTER.as_micros()).unwrap();
        let Some(batch) = journal.next_batch(number, now, open_after) else {
            return self.queue.add(now + micros(INTERVAL), Event::Ship(process));
        };
        journal.batch = Some(batch);
        let jitter = self.network.below(COMMIT);
        self.queue.add(now + COMMIT / 2 + jitter, Event::Committed(process, number));
    }

    /// The transaction of a batch reaches its commit. The gateway may have died by then.
    pub fn commit_batch(&mut self, process: Process, number: u64) {
        let gateway = &mut self.gateways[process.gateway];
        let Some(batch) = gateway.journal.batch.clone().filter(|batch| batch.number == number) else { return };
        let is_away = self.postgres.away_until > self.now;
        // The answer to a commit is lost now and then: the batch is delivered, and the shipper does not know.
        let is_lost = self.network.one_in(200);
        let committed = !is_away && {
            match self.options.broken {
                Some(Break::Audit) if is_lost => self.postgres.skip(gateway.journal.number, &batch),
                _ => drop(self.postgres.commit(gateway.journal.number, &batch)),
            }
            true
        };
        if committed && !is_lost {
            self.queue.add(self.now + ANSWER, Event::Delivered(process, number));
        } else if self.is_live(process) {
            self.retry_shipping(process);
        }
    }

    /// The shipper knows that its batch is delivered.
    pub fn end_delivery(&mut self, process: Process, number: u64) {
        let now = self.now;
        if !self.is_live(process) {
            return;
        }
        let journal = &mut self.gateways[process.gateway].journal;
        let Some(batch) = journal.batch.take_if(|batch| batch.number == number) else { return };
        journal.position = Some(batch.to);
        journal.backoff.reset();
        let reached_end = batch.to == journal.lines.len();
        let pause = if reached_end { micros(INTERVAL) } else { 1 };
        self.queue.add(now + pause, Event::Ship(process));
    }

    /// Pauses after a failure, as the product does, and connects again.
    fn retry_shipping(&mut self, process: Process) {
        let random = self.network.next() as u32;
        let journal = &mut self.gateways[process.gateway].journal;
        (journal.position, journal.batch) = (None, None);
        let pause = micros(journal.backoff.next_pause_by(random));
        self.checks.audit.note_pause(pause);
        self.queue.add(self.now + FAILS_AFTER + pause, Event::Ship(process));
    }
}
