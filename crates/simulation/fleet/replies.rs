//! Replies of Redis that reach a gateway, and replies that are lost, by what was asked.

use redis::Value;
use redis_client::CommandError;
use state::ChangeError;
use state::redis::{ASSERTION_RETRY, SlotReportReply, decode_read};

use super::event::{Answer, Event, Pending, Process};
use super::lua::Reply;
use super::revocations::micros;
use super::world::World;

impl World {
    /// A reply has arrived in time, or late.
    pub fn complete(&mut self, process: Process, shard: usize, pending: Pending, answer: Answer) {
        match (pending, answer) {
            (pending, Answer::Refused) => self.lose(process, shard, pending, refused()),
            (Pending::Read { request }, Answer::Script(reply)) => match decode_read(value(reply)) {
                Ok(found) => {
                    let now = self.gateways[process.gateway].steady(self.now);
                    self.go_on(request, |steps, shared, asked| steps.after_read(shared, asked, found.as_ref(), now));
                }
                Err(error) => self.fail(request, &error.into()),
            },
            (Pending::Decide(pending), Answer::Script(reply)) => {
                self.complete_decide(process, *pending, Ok(value(reply)));
            }
            (Pending::Status(pending), Answer::Script(reply)) => {
                self.complete_status(process, *pending, Ok(value(reply)));
            }
            (Pending::Report { visited, subject, report }, answer) => {
                let reply = slot_reply(&answer);
                report.complete(Ok(reply));
                self.note_slots(process, subject, reply);
                drop(visited);
            }
            (Pending::Resync { subject, resync, request, visited }, answer) => {
                drop(visited);
                self.complete_resync(process, subject, (resync, request), slot_reply(&answer));
            }
            (Pending::Register { beat, seen }, answer) => {
                self.complete_register(process, beat, seen, packed(&answer).unwrap());
            }
            (Pending::Sign, answer) => self.note_sign(process, shard, packed(&answer).unwrap()),
            (Pending::ReadLog(read), Answer::Log(values)) => self.complete_read_log(process, read, values),
            (Pending::Revocation { number }, Answer::Changed(replicas)) => {
                self.complete_revocation(number, Ok(replicas))
            }
            (Pending::Revocation { number }, Answer::NoKey) => {
                let key = self.directory.keys[self.revoking[number].key].id;
                self.complete_revocation(number, Err(ChangeError::NoKey(key).into()));
            }
            (Pending::Identity { reading, purpose }, Answer::Identity(found, is_missed)) => {
                self.complete_identity(process, purpose, reading, (found, is_missed));
            }
            (Pending::Confirm { request, step }, answer) => self.complete_confirmation(request, step, answer),
            (Pending::Assert { kept, history }, _) => self.complete_assertion(process, shard, &kept, history),
            _ => {}
        }
    }

    /// There is no reply, or none that is believed: the command failed with an error.
    pub fn lose(&mut self, process: Process, shard: usize, pending: Pending, error: CommandError) {
        let now = self.now;
        match pending {
            Pending::Read { request } => self.fail(request, &error.into()),
            Pending::Decide(pending) => self.complete_decide(process, *pending, Err(error)),
            Pending::Status(pending) => self.complete_status(process, *pending, Err(error)),
            Pending::Report { report, .. } => report.complete(Err(error)),
            Pending::Resync { subject, request, .. } => {
                self.end_resync(process, subject);
                request.into_iter().for_each(|(request, _)| self.fail(request, &CommandError::Lost(None).into()));
            }
            Pending::Register { .. } => self.retry_register(process),
            Pending::ReadLog(_) => self.end_reading(process),
            Pending::Revocation { number } => self.complete_revocation(number, Err(error.into())),
            Pending::Identity { purpose, .. } => self.lose_identity(purpose, error),
            Pending::Confirm { request, .. } => self.refuse(request, "unavailable"),
            Pending::Assert { .. } => self.queue.add(now + micros(ASSERTION_RETRY), Event::Assert(process, shard)),
            Pending::Deregister | Pending::Sign | Pending::Missed => {}
        }
    }
}

/// The error of a command that its server refused.
fn refused() -> CommandError {
    CommandError::Refused(std::io::Error::other("refused by the server").into())
}

/// A script's reply, as the client of the product gets it.
fn value(reply: Reply) -> Value {
    let text = |bytes: &super::database::Bytes| Value::BulkString(bytes.to_vec());
    match reply {
        Reply::Packed(packed) => Value::BulkString(packed),
        Reply::Records(records) => {
            Value::Array(records.iter().map(|fields| Value::Array(fields.iter().map(text).collect())).collect())
        }
        Reply::Number => Value::Nil,
    }
}

fn slot_reply(answer: &Answer) -> SlotReportReply {
    packed(answer).and_then(SlotReportReply::decode).unwrap()
}

/// A script's packed reply.
fn packed(answer: &Answer) -> Option<&[u8]> {
    match answer {
        Answer::Script(Reply::Packed(packed)) => Some(packed),
        _ => None,
    }
}
