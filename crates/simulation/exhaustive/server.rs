//! The Redis server: a primary with the real scripts, its clock, and a replica that lacks the last writes.

use std::collections::VecDeque;

use crate::database::{Bytes, Database, Write};
use crate::lua::{Reply, Running, Script, Scripts};

/// Server time at the beginning, in microseconds since the Unix epoch: 15 s before a day and a month end.
pub const START: u64 = 1_801_440_000_000_000 - 15_000_000;

/// Result of the preparation of a world: it is the same for each history, and the scripts run once.
#[derive(Clone, Default)]
pub struct Prepared {
    replies: Vec<Reply>,
    database: Database,
}

/// Writes of one command, and the uses that the key's record counted with them.
pub struct Group {
    pub writes: Vec<Write>,
    pub uses: u64,
}

/// A primary and its replica.
pub struct Server {
    running: Running,
    replica: Database,
    /// Commands that the replica lacks, the oldest first.
    pub recent: VecDeque<Group>,
    max_loss: usize,
    /// Clock of the server minus the true time.
    pub clock: i64,
    /// Number of the replication history; another one after each failover and loss of data.
    pub history: u32,
    /// The data that a person can restore, while all of it is lost.
    backup: Option<Database>,
    /// The next version of a changed record.
    versions: u64,
    /// Replies of the preparation: to be recorded, or to be given again.
    preparing: Option<(Prepared, bool)>,
}

impl Server {
    pub fn new(max_loss: usize) -> Self {
        let (running, replica, recent) = (Running::default(), Database::default(), VecDeque::new());
        Self { running, replica, recent, max_loss, clock: 0, history: 1, backup: None, versions: 1, preparing: None }
    }

    pub fn time(&self, now: u64) -> u64 {
        (START + now).strict_add_signed(self.clock)
    }

    /// Writes a record on both servers, before the search.
    pub fn seed(&mut self, record: &[u8], field: &[u8], value: &[u8]) {
        let write = Write::set(record, field, value);
        self.running.database.apply(write.clone());
        self.replica.apply(write);
    }

    pub fn seed_fields(&mut self, record: &[u8], fields: Vec<(&'static str, String)>) {
        fields.into_iter().for_each(|(field, value)| self.seed(record, field.as_bytes(), value.as_bytes()));
    }

    pub fn field(&self, record: &[u8], field: &[u8]) -> Option<&Bytes> {
        self.running.database.field(record, field)
    }

    pub fn fields(&self, record: &[u8]) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.running.database.fields(record).into_iter().flatten()
    }

    /// The records of the primary, of the replica, and of the backup.
    pub fn databases(&self) -> impl Iterator<Item = &Database> {
        [&self.running.database, &self.replica].into_iter().chain(&self.backup)
    }

    pub fn is_lost(&self) -> bool {
        self.backup.is_some()
    }

    pub fn next_version(&mut self) -> [u8; 8] {
        self.versions += 1;
        self.versions.to_le_bytes()
    }

    /// Runs a script. Its writes reach the replica later; `key` is the record that counts uses.
    pub fn run(&mut self, scripts: &Scripts, now: u64, key: &[u8], call: (Script, &[Bytes], &[Vec<u8>])) -> Reply {
        let (script, keys, arguments) = call;
        if let Some((prepared, true)) = &mut self.preparing {
            return prepared.replies.pop().expect("the same scripts run");
        }
        let before = self.uses(key);
        self.running.micros = self.time(now);
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let reply = scripts.run(script, &mut self.running, &keys, &arguments);
        self.replicate(self.uses(key).saturating_sub(before));
        if let Some((prepared, false)) = &mut self.preparing {
            prepared.replies.push(reply.clone());
        }
        reply
    }

    /// Begins the preparation, with what an earlier one has led to.
    pub fn begin_preparation(&mut self, before: Option<Prepared>) {
        let has_replies = before.is_some();
        self.preparing = Some((before.unwrap_or_default(), has_replies));
    }

    /// Ends it: the replica has all, and the history is the first. Returns what it has led to.
    pub fn end_preparation(&mut self) -> Prepared {
        let (mut prepared, has_replies) = self.preparing.take().expect("it was begun");
        if has_replies {
            self.running.database = prepared.database.clone();
        } else {
            prepared.replies.reverse();
            prepared.database = self.running.database.clone();
        }
        self.replica = self.running.database.clone();
        self.recent.clear();
        prepared
    }

    /// Writes outside of scripts, all or nothing.
    pub fn write(&mut self, writes: Vec<Write>) {
        for write in writes {
            self.running.write(write);
        }
        self.replicate(0);
    }

    fn replicate(&mut self, uses: u64) {
        let writes = std::mem::take(&mut self.running.writes);
        if !writes.is_empty() {
            self.recent.push_back(Group { writes, uses });
        }
        while self.recent.len() > self.max_loss {
            let oldest = self.recent.pop_front().expect("it has one");
            for write in oldest.writes {
                self.replica.apply(write);
            }
        }
    }

    /// Uses that a key's record counts.
    pub fn uses(&self, key: &[u8]) -> u64 {
        self.field(key, b"live").map_or(0, |live| number_at(live, 4) as u64)
    }

    /// The replica is promoted without the last `lost` writes, and another one has a copy of it. Returns what is lost.
    pub fn fail_over(&mut self, lost: usize) -> Vec<Group> {
        let lost = self.recent.split_off(self.recent.len() - lost);
        for group in std::mem::take(&mut self.recent) {
            for write in group.writes {
                self.replica.apply(write);
            }
        }
        self.running.database = self.replica.clone();
        self.history += 1;
        lost.into()
    }

    /// Loses all data, as by `FLUSHALL`: connections and history stay.
    pub fn wipe(&mut self) {
        self.recent.clear();
        self.replica = Database::default();
        self.backup = Some(std::mem::take(&mut self.running.database));
    }

    /// A person restores the data, by a restart on it.
    pub fn restore(&mut self) {
        self.running.database = self.backup.take().expect("it is lost");
        self.replica = self.running.database.clone();
        self.recent.clear();
        self.history += 1;
    }
}

/// The number at this place of a packed value.
pub fn number_at(packed: &[u8], place: usize) -> f64 {
    f64::from_le_bytes(packed[place * 8..place * 8 + 8].try_into().unwrap())
}
