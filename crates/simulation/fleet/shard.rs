//! Shard of the Redis Cluster: a primary and a replica, which gets the writes later.

use std::collections::VecDeque;

use super::database::{Bytes, Database, Write};
use super::heartbeat::{Told, heartbeat};
use super::lua::{Reply, Running, Script, Scripts};

/// Server time at the beginning of a run, in microseconds since the Unix epoch: 15 s before a day and a month end.
pub const START: u64 = 1_801_440_000_000_000 - 15_000_000;

/// Entries of gateways up to which the script of the heartbeat runs beside its twin.
const CHECKED_ENTRIES: usize = 50;
/// Time of the server for each field that a script reads in a loop, in nanoseconds (`docs/capacity.md`
/// has the measurement).
const FIELD_COST_NS: u64 = 400;

/// A shard.
pub struct Shard {
    /// The primary's records.
    running: Running,
    replica: Database,
    /// Writes on their way to the replica, with the times at which they reach it.
    stream: VecDeque<(u64, Write)>,
    /// The data that an operator can restore, while the shard has lost all of it.
    backup: Option<Database>,
    /// Time of the last restoration.
    pub restored: Option<u64>,
    /// Time that a write takes to the replica.
    pub lag: u64,
    /// There is a replica that has a copy, or gets one.
    pub has_replica: bool,
    /// The primary serves.
    pub is_alive: bool,
    /// No command is run before this time.
    pub hangs_until: u64,
    /// Its memory is full until then: what does not withdraw something is refused.
    pub full_until: u64,
    /// Time until which it was away, or what it has was moved, at the last trouble.
    pub troubled_until: u64,
    /// Changes with every promotion and restart: the server process and its replication history, as `INFO` shows them.
    pub history: u32,
    /// The history that began with the last promotion: it may lack what the one before it had.
    pub lossy_history: u32,
    /// Time until which the server is busy with the commands that have arrived.
    busy_until: u64,
    /// Number of the second, and time for which the server is busy with commands that arrived in it.
    busy: (u64, u64),
    /// Server clocks of the two machines minus the true time.
    clocks: [i64; 2],
    primary: usize,
    /// Time by which the clock of the primary stepped forward, over all steps and promotions.
    pub stepped: u64,
}

impl Shard {
    pub fn new(clocks: [i64; 2], lag: u64) -> Self {
        Self {
            running: Running::default(),
            replica: Database::default(),
            stream: VecDeque::new(),
            backup: None,
            restored: None,
            lag,
            has_replica: true,
            is_alive: true,
            hangs_until: 0,
            full_until: 0,
            troubled_until: 0,
            history: 1,
            lossy_history: 1,
            busy_until: 0,
            busy: (0, 0),
            clocks,
            primary: 0,
            stepped: 0,
        }
    }

    /// The primary's clock.
    pub fn clock(&self, now: u64) -> u64 {
        (START + now).strict_add_signed(self.clocks[self.primary])
    }

    /// Steps the primary's clock.
    pub fn step_clock(&mut self, by: i64) {
        self.clocks[self.primary] += by;
        self.stepped += u64::try_from(by).unwrap_or(0);
    }

    /// Writes a record on both servers, before the run.
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

    /// The same, or that of the data that was lost.
    pub fn last_field(&self, record: &[u8], field: &[u8]) -> Option<&Bytes> {
        self.backup.as_ref().map_or_else(|| self.field(record, field), |backup| backup.field(record, field))
    }

    /// Returns whether a fault of the server may begin: none is under way.
    pub fn is_sound(&self, now: u64) -> bool {
        self.is_alive && self.has_replica && self.hangs_until <= now && !self.is_lost()
    }

    /// Returns whether it has lost all data, which is not restored yet.
    pub fn is_lost(&self) -> bool {
        self.backup.is_some()
    }

    /// Fields of a record.
    pub fn fields(&self, record: &[u8]) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.running.database.fields(record).into_iter().flatten()
    }

    /// Notes a trouble that lasts until a time.
    pub fn note_trouble(&mut self, until: u64) {
        self.troubled_until = self.troubled_until.max(until);
    }

    /// Writes outside of scripts.
    pub fn write(&mut self, write: Write, now: u64) {
        self.running.write(write);
        self.send_writes(now);
    }

    /// Runs a script on the primary.
    pub fn run(&mut self, scripts: &Scripts, script: Script, keys: &[&[u8]], arguments: &[&[u8]], now: u64) -> Reply {
        self.running.micros = self.clock(now);
        if let Script::Heartbeat = script {
            return self.run_heartbeat(scripts, keys, arguments, now);
        }
        let reply = scripts.run(script, &mut self.running, keys, arguments);
        self.send_writes(now);
        reply
    }

    /// Occupies the server with a command that arrives now, and has read so many fields. Returns the time until it is
    /// done, and for how long the server is busy with what arrived in this second.
    pub fn occupy(&mut self, base: u64, now: u64) -> (u64, u64) {
        let fields = std::mem::take(&mut self.running.fields_read);
        let cost = base + fields * FIELD_COST_NS / 1000;
        self.busy_until = self.busy_until.max(now) + cost;
        let second = now / 1_000_000;
        let before = if self.busy.0 == second { self.busy.1 } else { 0 };
        self.busy = (second, before + cost);
        (self.busy_until - now, self.busy.1)
    }

    /// Time at which the replica has what is written now. Writes do not overtake each other.
    pub fn replicated_at(&self, now: u64) -> u64 {
        self.stream.back().map_or(0, |(due, _)| *due).max(now + self.lag)
    }

    /// Runs the heartbeat: in a large fleet its twin alone, which is much faster.
    fn run_heartbeat(&mut self, scripts: &Scripts, keys: &[&[u8]], arguments: &[&[u8]], now: u64) -> Reply {
        let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse().unwrap();
        let [lifetime, seen, claimed] = [1, 2, 3].map(|place| number(arguments[place]));
        let told = Told { lifetime, seen, claimed, believes_lost_registry: scripts.believes_lost_registry };
        let Running { database, micros, .. } = &self.running;
        let (reply, writes) = heartbeat(database, *micros, [keys[0], keys[1]], arguments[0], &told);
        let entries = database.fields(keys[0]).map_or(0, |entries| entries.len());
        if entries > CHECKED_ENTRIES {
            self.running.fields_read += entries as u64;
            writes.into_iter().for_each(|write| {
                self.running.write(write);
            });
        } else {
            let script = scripts.run(Script::Heartbeat, &mut self.running, keys, arguments);
            assert!(matches!(script, Reply::Packed(packed) if packed == reply), "the twin replies otherwise");
            assert_eq!(self.running.writes, writes, "the twin writes otherwise");
        }
        self.send_writes(now);
        Reply::Packed(reply)
    }

    fn send_writes(&mut self, now: u64) {
        if self.has_replica {
            let due = self.replicated_at(now);
            self.stream.extend(self.running.writes.drain(..).map(|write| (due, write)));
            self.replicate(now);
        }
        self.running.writes.clear();
    }

    /// Applies what has reached the replica.
    fn replicate(&mut self, now: u64) {
        while self.stream.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, write)) = self.stream.pop_front() {
                self.replica.apply(write);
            }
        }
    }

    /// Ends the primary. What the replica has not got by now is lost.
    pub fn kill(&mut self, now: u64) {
        self.end_stream(now);
        self.is_alive = false;
    }

    /// Ends the replication, of which something may be on its way.
    pub fn end_stream(&mut self, now: u64) {
        self.replicate(now);
        self.stream.clear();
    }

    /// Loses all data on primary and replica: by a restart without it, or as by `FLUSHALL`.
    pub fn lose_data(&mut self, is_restart: bool) {
        self.running.database = Database::default();
        self.backup = Some(std::mem::take(&mut self.replica));
        if is_restart {
            self.begin_lossy_history();
        }
    }

    /// Is started on the data that the replica had.
    pub fn restore_data(&mut self, now: u64) {
        let Some(backup) = self.backup.take() else { return };
        self.running.database = backup;
        self.restored = Some(now);
        self.begin_lossy_history();
        self.add_replica();
    }

    fn begin_lossy_history(&mut self) {
        self.history += 1;
        self.lossy_history = self.history;
    }

    /// The field as the replica has it, before it is promoted.
    pub fn replica_field(&self, record: &[u8], field: &[u8]) -> Option<&Bytes> {
        self.replica.field(record, field)
    }

    /// Promotes the replica.
    pub fn promote(&mut self) {
        self.running.database = std::mem::take(&mut self.replica);
        let before = self.clocks[self.primary];
        self.primary = 1 - self.primary;
        self.stepped += u64::try_from(self.clocks[self.primary] - before).unwrap_or(0);
        self.begin_lossy_history();
        self.has_replica = false;
        self.is_alive = true;
    }

    /// Starts the primary again where it was, with everything that it had: it writes all changes to its disk.
    pub fn restart(&mut self) {
        self.history += 1;
        self.is_alive = true;
        self.add_replica();
    }

    /// Takes these records out, on both servers.
    pub fn take_records(&mut self, records: &[&[u8]]) -> Vec<(Bytes, Vec<(Bytes, Bytes)>)> {
        let of_record = |write: &Write| match write {
            Write::Set { record, .. } | Write::Remove { record, .. } | Write::Delete { record } => Bytes::clone(record),
        };
        self.stream.retain(|(_, write)| !records.contains(&&*of_record(write)));
        let mut taken = Vec::new();
        for record in records {
            let fields = self.running.database.fields(record).into_iter().flatten();
            taken.push((Bytes::from(*record), fields.map(|(name, value)| (name.clone(), value.clone())).collect()));
            for database in [&mut self.running.database, &mut self.replica] {
                database.apply(Write::Delete { record: Bytes::from(*record) });
            }
        }
        taken
    }

    /// Takes records over, on both servers.
    pub fn put_records(&mut self, records: Vec<(Bytes, Vec<(Bytes, Bytes)>)>) {
        for (record, fields) in records {
            for (field, value) in fields {
                self.seed(&record, &field, &value);
            }
        }
    }

    /// The machine that failed is back, and has copied everything.
    pub fn add_replica(&mut self) {
        self.replica = self.running.database.clone();
        self.stream.clear();
        self.has_replica = true;
    }
}

/// The number at this place of a packed value.
pub fn number_at(packed: &[u8], place: usize) -> f64 {
    f64::from_le_bytes(packed[place * 8..place * 8 + 8].try_into().unwrap())
}
