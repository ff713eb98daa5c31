//! Network between gateways and shards: links, commands and replies, partitions, and servers that do not answer.
//!
//! It is a model of `crates/redis-client/src`: deadlines, the breaker, and the pauses before connecting are those of
//! the product. What is sent into a partition arrives when it ends, also when the gateway has given it up by then.

use redis_client::CommandError;

use super::database::Write;
use super::event::{Answer, Call, Command, Event, Pending, Process};
use super::gateway::DEADLINE;
use super::identity::count_change;
use super::shard::Shard;
use super::subjects::Subject;
use super::withdrawal::{log_entry, withdrawal};
use super::world::World;

/// Late replies in a row that open the breaker, as in `crates/redis-client/src/link.rs`.
const BREAKER_THRESHOLD: u32 = 5;
/// As `Settings::connections` divides the lease.
const LATE_REPLY_TIMEOUT: u64 = 5_000_000;
/// Time of the server for a script, beside the fields that it reads in a loop (`docs/capacity.md` has the measurement).
const SCRIPT_COST: u64 = 6;

impl World {
    /// Time that a message takes: a fraction of a millisecond, and rarely as long as a deadline.
    pub fn latency(&mut self) -> u64 {
        let tail = if self.network.one_in(4000) { self.network.below(150_000) } else { 0 };
        100 + self.network.exponential(150.0) + tail
    }

    /// Sends a command; returns what was to be done with the reply when the link is down.
    pub fn send(&mut self, process: Process, shard: usize, call: Call, pending: Pending) -> Result<u64, Pending> {
        let link = &self.gateways[process.gateway].links[shard];
        if !link.is_up {
            return Err(pending);
        }
        let connection = link.connection;
        let history = link.history;
        let id = self.id();
        let org = self.org_of_command(&pending);
        let command = Command {
            process,
            shard,
            connection,
            history,
            call,
            org,
            answer: None,
            is_dropped: false,
            answer_numbers: Vec::new(),
            sent: self.now,
            pending: Some(pending),
        };
        self.commands.insert(id, command);
        self.gateways[process.gateway].sent.insert(id);
        let latency = self.latency();
        self.queue.add(self.now + latency, Event::Arrive(id));
        self.queue.add(self.now + DEADLINE, Event::Late(id));
        Ok(id)
    }

    fn remove_command(&mut self, id: u64) -> Option<Command> {
        let command = self.commands.remove(&id)?;
        self.gateways[command.process.gateway].sent.remove(&id);
        Some(command)
    }

    /// A command reaches its server, which runs it.
    pub fn arrive(&mut self, id: u64) {
        let Some(command) = self.commands.get(&id) else { return };
        let process = command.process;
        let number = command.shard;
        let shard = &self.shards[number];
        let waits_until = shard.hangs_until.max(self.gateways[process.gateway].cut_until[number]);
        if waits_until > self.now {
            let latency = self.latency();
            return self.queue.add(waits_until + latency, Event::Arrive(id));
        }
        // Its server is no more.
        if !shard.is_alive || shard.history != command.history {
            match self.commands.get_mut(&id) {
                Some(command) if command.pending.is_some() => command.is_dropped = true,
                _ => drop(self.remove_command(id)),
            }
            return;
        }
        if self.is_redirected(id) {
            return;
        }
        let Some(mut command) = self.commands.remove(&id) else { return };
        let (answer, extra) = if self.refuses(&command) { (Answer::Refused, 0) } else { self.run_call(&command) };
        self.note_change_on(number, &command, &answer);
        command.answer = Some(answer);
        let subjects = command.pending.as_ref().map(|pending| self.subjects_of_pending(pending));
        let numbered = |subject| (subject, self.checks.slots.answer_number(subject));
        command.answer_numbers = subjects.unwrap_or_default().into_iter().map(numbered).collect();
        self.commands.insert(id, command);
        let latency = self.latency() + extra;
        self.queue.add(self.now + latency, Event::Answer(id));
    }

    /// The subjects whose slots a reply tells.
    pub fn subjects_of_pending(&self, pending: &Pending) -> Vec<Subject> {
        match pending {
            Pending::Decide(pending) => self.directory.subjects_of_key(pending.key).collect(),
            Pending::Status(pending) => self.directory.subjects_of_key(pending.key).collect(),
            Pending::Report { subject, .. } | Pending::Resync { subject, .. } => vec![*subject],
            _ => Vec::new(),
        }
    }

    /// Runs a command; returns the reply, and the time for which the server holds it back.
    fn run_call(&mut self, command: &Command) -> (Answer, u64) {
        let now = self.now;
        let shard = &mut self.shards[command.shard];
        match &command.call {
            Call::Script { script, keys, arguments } => {
                let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
                let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
                let before = self.before_script(command);
                let shard = &mut self.shards[command.shard];
                let reply = shard.run(&self.scripts, *script, &keys, &arguments, now);
                let (done, busy) = shard.occupy(SCRIPT_COST, now);
                self.checks.capacity.note(busy as f64 / 1e6, now, || {
                    format!("shard {}: {:.1} % of a second", command.shard, busy as f64 / 1e4)
                });
                self.note_script(command, &reply);
                self.note_reservation(&command.call, &reply);
                self.check_absences(command, before);
                (Answer::Script(reply), done)
            }
            Call::ReadLog { fields } => {
                let value =
                    |field: &String| shard.field(&self.log_record, field.as_bytes()).map(|value| value.to_vec());
                (Answer::Log(fields.iter().map(value).collect()), 0)
            }
            Call::RevokeKey { key, durable } => {
                let directory_key = &self.directory.keys[*key];
                let Some(live) = shard.field(&directory_key.record, b"live").cloned() else {
                    return (Answer::NoKey, 0);
                };
                let version = self.chance.next().to_le_bytes();
                let new = [&version[..], &live[8..]].concat();
                for (field, value) in withdrawal(*key) {
                    shard.write(Write::set(&directory_key.record, field, value.as_bytes()), now);
                }
                shard.write(Write::set(&directory_key.record, b"live", &new), now);
                wait(shard, *durable, now)
            }
            Call::AppendLog { key, durable, identity } => {
                let found = shard.field(&self.log_record, b"identity");
                if identity.as_ref().is_some_and(|id| found.is_none_or(|found| **found != *id.as_str().as_bytes())) {
                    return (Answer::Refused, 0);
                }
                count_change(shard, &self.log_record, now);
                let last = shard.field(&self.log_record, b"last");
                let last: u64 = last.map_or(0, |text| String::from_utf8_lossy(text).parse().unwrap());
                let next = (last + 1).to_string();
                let token = self.chance.next();
                let entry = format!("{token:x} {}", log_entry(*key, self.directory.keys[*key].id));
                shard.write(Write::set(&self.log_record, next.as_bytes(), entry.as_bytes()), now);
                shard.write(Write::set(&self.log_record, b"last", next.as_bytes()), now);
                wait(shard, *durable, now)
            }
            call => (self.answer_about_identity(command.shard, call), 0),
        }
    }

    /// A reply reaches its gateway.
    pub fn answer(&mut self, id: u64) {
        let Some(command) = self.commands.get(&id) else { return };
        let process = command.process;
        let shard = command.shard;
        let connection = command.connection;
        let cut = self.gateways[process.gateway].cut_until[shard];
        if cut > self.now {
            let latency = self.latency();
            return self.queue.add(cut + latency, Event::Answer(id));
        }
        let Some(mut command) = self.remove_command(id) else { return };
        let (Some(pending), Some(answer)) = (command.pending.take(), command.answer.take()) else { return };
        if !self.is_live(process) {
            return;
        }
        let server = &self.shards[shard];
        if matches!(answer, Answer::Changed(_)) && (!server.is_alive || server.history != command.history) {
            // The primary died while it waited for its replica.
            return self.lose(process, shard, pending, CommandError::Lost(None));
        }
        let link = &mut self.gateways[process.gateway].links[shard];
        if link.connection == connection {
            link.late = 0;
        }
        for (subject, number) in command.answer_numbers {
            self.checks.slots.note_answer(subject, process.gateway, number);
        }
        self.complete(process, shard, pending, answer);
    }

    /// A command has no reply within the deadline.
    pub fn note_late(&mut self, id: u64) {
        let now = self.now;
        let Some(command) = self.commands.get(&id) else { return };
        let process = command.process;
        let shard = command.shard;
        let connection = command.connection;
        let Some(pending) = &command.pending else { return };
        // A visit to a lease is given up after twice the deadline; other replies are waited for.
        let is_visit = matches!(pending, Pending::Report { .. } | Pending::Resync { visited: Some(_), .. });
        let pause = if is_visit { DEADLINE } else { LATE_REPLY_TIMEOUT };
        self.queue.add(self.now + pause, Event::GiveUp(id));
        if !self.is_live(process) {
            return;
        }
        let link = &mut self.gateways[process.gateway].links[shard];
        if link.connection == connection && link.is_up {
            link.late += 1;
            link.troubled = now;
            if link.late >= BREAKER_THRESHOLD {
                self.link_down(process, shard, connection);
            }
        }
    }

    /// The gateway takes the reply for lost.
    pub fn give_up(&mut self, id: u64) {
        let Some(command) = self.commands.get_mut(&id) else { return };
        let process = command.process;
        let shard = command.shard;
        let Some(pending) = command.pending.take() else { return };
        if command.is_dropped {
            self.remove_command(id);
        }
        if self.is_live(process) {
            self.lose(process, shard, pending, CommandError::Lost(None));
        }
    }
}

/// `WAIT`: the reply is held back until the replica has the write.
fn wait(shard: &Shard, durable: bool, now: u64) -> (Answer, u64) {
    match (durable, shard.has_replica) {
        (false, _) => (Answer::Changed(0), 0),
        (true, true) => (Answer::Changed(1), shard.replicated_at(now) - now),
        // The time-out of `durability`.
        (true, false) => (Answer::Changed(0), 1_000_000),
    }
}
