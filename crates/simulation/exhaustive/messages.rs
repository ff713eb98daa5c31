//! Messages to the server, and their replies.
//!
//! Each goes its own way: a gateway has several connections. One that its gateway has given up may still arrive, as
//! from the buffer of a broken connection; one to a primary that is gone never does.

use std::sync::Arc;

use redis::Value;
use redis_client::CommandError;
use state::identity::Reading;
use state::redis::{
    CachedKey, DecideInput, Kept, LateAnswer, PendingReport, Resync, SlotReportReply, SlotSubject, VisitedLease,
};

use crate::database::{Bytes, Write};
use crate::directory::{Credential, Withdrawal};
use crate::gateway::ResyncFor;
use crate::identity::Confirming;
use crate::lua::{Reply, Script};
use crate::world::World;

pub struct Message {
    pub gateway: usize,
    /// Processes of the gateway before the one that sent it.
    pub start: u32,
    pub history: u32,
    pub call: Call,
    pub answer: Option<Answer>,
    /// None once the gateway has given it up.
    pub pending: Option<Pending>,
}

/// Command that the server runs.
#[derive(Debug)]
pub enum Call {
    Script(Script, Vec<Bytes>, Vec<Vec<u8>>),
    /// Reads a session or a management token.
    Find(Credential),
    /// Writes the records of a change, as the transaction of `crates/state/src/redis/directory` does.
    Change(Withdrawal),
    /// Appends a change to the log of revocations, as `directory/revocation_log.rs` does.
    Append(Withdrawal),
    ReadIdentity,
    Confirm(Confirming),
}

/// Reply of the server.
#[derive(Debug)]
pub enum Answer {
    Script(Reply),
    Field(Option<Vec<u8>>),
    Changed,
    Identity(Option<state::StateIdentity>, bool),
    Exists(bool),
    Orgs(Vec<domain::key::OrgTag>),
    Refused,
}

/// Purpose of a message: the gateway's use of its reply.
#[derive(Debug)]
pub enum Pending {
    Read(usize),
    Decide(Box<PendingDecide>),
    Find(usize),
    Status { listed: Arc<CachedKey>, entry: Arc<CachedKey>, input: DecideInput, attempts: usize },
    Report(Visited, PendingReport),
    Resync { subject: SlotSubject, resync: Resync, request: Option<ResyncFor>, visited: Option<Visited> },
    Change(usize),
    Assert(Vec<Kept>, Arc<str>),
    Identity(Reading, usize),
    Confirm(usize, Confirming),
}

impl Message {
    /// Its purpose, in a word.
    pub fn purpose(&self) -> String {
        match (&self.pending, &self.call) {
            (Some(Pending::Read(request) | Pending::Find(request)), _) => format!("reading for /{request}"),
            (Some(Pending::Decide(pending)), _) => format!("decision of /{}", pending.request),
            (Some(Pending::Status { .. }), _) => "report".to_owned(),
            (Some(Pending::Report(..)), _) => "report of slots".to_owned(),
            (Some(Pending::Resync { .. }), _) => "resync".to_owned(),
            (Some(Pending::Assert(..)), _) => "assertion".to_owned(),
            (Some(Pending::Identity(..) | Pending::Confirm(..)), _) => "reading of the state".to_owned(),
            (Some(Pending::Change(_)), Call::Append(_)) => "entry in the log".to_owned(),
            (Some(Pending::Change(_)), _) => "change".to_owned(),
            (None, Call::Script(script, ..)) => format!("late {script:?}"),
            (None, _) => "late message".to_owned(),
        }
    }
}

impl Pending {
    /// Of a request that was decided without the reply.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Decide(pending) if pending.is_late)
    }
}

/// A decide call in flight.
#[derive(Debug)]
pub struct PendingDecide {
    pub request: usize,
    pub entry: Arc<CachedKey>,
    pub input: DecideInput,
    pub late: Arc<LateAnswer>,
    /// The request was decided without the reply.
    pub is_late: bool,
    /// It was admitted then.
    pub is_local: bool,
}

/// A lease that is being visited.
pub struct Visited(pub VisitedLease);

impl std::fmt::Debug for Visited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visited")
    }
}

impl World {
    /// Sends a message; returns its purpose when the gateway is not connected.
    pub fn send(&mut self, gateway: usize, call: Call, pending: Pending) -> Result<usize, Pending> {
        if !self.is_linked(gateway) {
            return Err(pending);
        }
        let history = self.server.history;
        let start = self.gateways[gateway].start;
        let message = Message { gateway, start, history, call, answer: None, pending: Some(pending) };
        let free = self.messages.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.messages.push(None);
            self.messages.len() - 1
        });
        self.messages[number] = Some(message);
        Ok(number)
    }

    /// Sends a message that is delivered at once; nothing is sent when the gateway is not connected.
    pub fn send_now(&mut self, gateway: usize, call: Call, pending: Pending) {
        match self.send(gateway, call, pending) {
            Ok(number) => {
                self.arrive(number);
                self.answer(number);
            }
            Err(pending) => self.lose(gateway, pending, CommandError::Unreachable),
        }
    }

    pub fn can_arrive(&self, message: &Message) -> bool {
        message.answer.is_none() && message.history == self.server.history
    }

    /// A message reaches the server, which runs it.
    pub fn arrive(&mut self, number: usize) {
        let Some(mut message) = self.messages[number].take() else { return };
        if !self.can_arrive(&message) {
            self.messages[number] = Some(message);
            return;
        }
        let answer = self.run_call(&message);
        message.answer = Some(answer);
        self.messages[number] = Some(message);
    }

    fn run_call(&mut self, message: &Message) -> Answer {
        match &message.call {
            Call::Script(script, keys, arguments) => {
                let call = (*script, &keys[..], &arguments[..]);
                let before = self.before_script(message);
                let reply = self.server.run(&self.scripts, self.now, &self.directory.key_record, call);
                self.check_script(message, &reply, before);
                Answer::Script(reply)
            }
            Call::Find(credential) => {
                let (record, field) = self.directory.place_of(*credential);
                Answer::Field(self.server.field(record, field).map(|found| found.to_vec()))
            }
            Call::Change(withdrawal) => {
                let directory = std::rc::Rc::clone(&self.directory);
                if self.server.field(&directory.key_record, b"live").is_none() {
                    return Answer::Refused;
                }
                let writes = directory.writes(*withdrawal, &mut self.server);
                self.server.write(writes);
                Answer::Changed
            }
            Call::Append(withdrawal) => self.append_to_log(*withdrawal),
            Call::ReadIdentity => self.read_identity(),
            Call::Confirm(step) => self.answer_confirmation(*step),
        }
    }

    fn append_to_log(&mut self, withdrawal: Withdrawal) -> Answer {
        let log = &self.directory.log;
        if self.server.field(log, b"identity").is_none() {
            return Answer::Refused;
        }
        let number = |field| self.server.field(log, field).map_or(0, |text| text_of(text).parse::<u64>().unwrap());
        let (changes, next) = ((number(b"changes") + 1).to_string(), (number(b"last") + 1).to_string());
        let token = self.server.history;
        let entry = format!("{token:x} {}", self.directory.log_entry(withdrawal));
        let fields = [(&b"changes"[..], &changes), (next.as_bytes(), &entry), (b"last", &next)];
        let writes = fields.map(|(field, value)| Write::set(log, field, value.as_bytes())).to_vec();
        self.server.write(writes);
        Answer::Changed
    }

    /// A reply reaches its gateway.
    pub fn answer(&mut self, number: usize) {
        let Some(message) = self.messages[number].take_if(|message| message.answer.is_some()) else { return };
        let (Some(answer), Some(pending)) = (message.answer, message.pending) else { return };
        self.complete(message.gateway, pending, answer);
    }

    /// A gateway takes a reply for lost.
    pub fn give_up(&mut self, number: usize) {
        let Some(message) = &mut self.messages[number] else { return };
        let gateway = message.gateway;
        let Some(pending) = message.pending.take() else { return };
        self.lose(gateway, pending, CommandError::Lost(None));
    }

    fn complete(&mut self, gateway: usize, pending: Pending, answer: Answer) {
        match (pending, answer) {
            (pending, Answer::Refused) => self.lose(gateway, pending, refused()),
            (Pending::Read(request), Answer::Script(reply)) => self.complete_read(request, value(reply)),
            (Pending::Decide(pending), Answer::Script(reply)) => {
                self.complete_decide(gateway, *pending, Ok(value(reply)));
            }
            (Pending::Find(request), Answer::Field(found)) => self.complete_find(request, found),
            (Pending::Status { listed, entry, input, attempts }, Answer::Script(reply)) => {
                self.complete_status(gateway, (listed, entry, input, attempts), Ok(value(reply)));
            }
            (Pending::Report(visited, report), Answer::Script(reply)) => {
                report.complete(Ok(slot_reply(&reply)));
                drop(visited);
            }
            (Pending::Resync { subject, resync, request, visited }, Answer::Script(reply)) => {
                drop(visited);
                self.complete_resync(gateway, subject, (resync, request), slot_reply(&reply));
            }
            (Pending::Change(number), Answer::Changed) => self.complete_change(number, Ok(())),
            (Pending::Assert(kept, history), _) => self.complete_assertion(gateway, &kept, history),
            (Pending::Identity(reading, request), Answer::Identity(found, is_missed)) => {
                self.complete_identity(gateway, Some(request), reading, (found, is_missed));
            }
            (Pending::Confirm(request, step), answer) => self.complete_confirmation(request, step, answer),
            (pending, answer) => unreachable!("{answer:?} to {pending:?}"),
        }
    }

    /// There is no reply.
    pub fn lose(&mut self, gateway: usize, pending: Pending, error: CommandError) {
        match pending {
            Pending::Read(request) => self.fail(request, &error.into()),
            Pending::Decide(pending) => self.complete_decide(gateway, *pending, Err(error)),
            Pending::Status { listed, entry, input, attempts } => {
                self.complete_status(gateway, (listed, entry, input, attempts), Err(error));
            }
            Pending::Report(visited, report) => {
                report.complete(Err(error));
                drop(visited);
            }
            Pending::Resync { subject, request, visited, .. } => {
                drop(visited);
                self.end_resync(gateway, subject);
                request.into_iter().for_each(|(request, _)| self.fail(request, &CommandError::Lost(None).into()));
            }
            Pending::Change(number) => self.complete_change(number, Err(error)),
            Pending::Assert(..) => {}
            Pending::Find(request) | Pending::Identity(_, request) | Pending::Confirm(request, _) => {
                self.refuse(request, "unavailable");
            }
        }
    }
}

pub fn text_of(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap()
}

/// The error of a command that the server refused.
fn refused() -> CommandError {
    CommandError::Refused(std::io::Error::other("refused by the server").into())
}

/// A script's reply, as the client of the product gets it.
pub fn value(reply: Reply) -> Value {
    let text = |bytes: &Bytes| Value::BulkString(bytes.to_vec());
    match reply {
        Reply::Packed(packed) => Value::BulkString(packed),
        Reply::Records(records) => {
            Value::Array(records.iter().map(|fields| Value::Array(fields.iter().map(text).collect())).collect())
        }
        Reply::Number => Value::Nil,
    }
}

pub fn slot_reply(reply: &Reply) -> SlotReportReply {
    let Reply::Packed(packed) = reply else { unreachable!("a slot report has a packed reply") };
    SlotReportReply::decode(packed).unwrap()
}
