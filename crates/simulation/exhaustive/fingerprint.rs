//! Fingerprint of a world: of all that its future depends on, the same for both orders of the gateways.
//!
//! It is made of what the product shows of itself (`Debug`), the records, the messages in flight and the oracle. Names
//! that the product makes at random stand for themselves: each is replaced by its place.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::gateway::GATEWAYS;
use crate::messages::{Call, Message, Pending};
use crate::requests::Request;
use crate::world::World;

/// Names that the product has made at random, in the order of their appearance.
type Names = Vec<[u8; 8]>;

impl World {
    /// The fingerprint, of the order of the gateways that has the smaller one.
    pub fn fingerprint(&self) -> u64 {
        let gateways = [0, 1].map(|gateway| self.text_of_gateway(gateway));
        let of_order = |order: [usize; GATEWAYS]| {
            let mut hasher = DefaultHasher::new();
            self.text(order, &gateways).hash(&mut hasher);
            hasher.finish()
        };
        of_order([0, 1]).min(of_order([1, 0]))
    }

    fn text_of_gateway(&self, number: usize) -> String {
        let gateway = &self.gateways[number];
        let cached = gateway.decisions.cached(&self.directory.digest);
        let resyncing = gateway.resyncing.iter().map(|(subject, waiting)| (subject, waiting.len()));
        let mut text = format!("{} {} {:?} {cached:?}", gateway.start, self.is_linked(number), gateway.decisions);
        let resyncing: Vec<_> = resyncing.collect();
        write!(text, "{:?} {:?} {resyncing:?}", gateway.kept, gateway.follower).unwrap();
        if self.scene.reads_identity {
            let failovers = gateway.seen_failovers();
            let (is_verified, memory) = (gateway.is_verified(), gateway.identity.memory());
            let is_broken = gateway.identity.is_broken();
            write!(text, "{is_verified} {is_broken} {memory:?} {failovers} {:?}", gateway.listed).unwrap();
        }
        text
    }

    /// All that the future depends on, with the gateways in this order.
    fn text(&self, order: [usize; GATEWAYS], gateways: &[String; GATEWAYS]) -> Vec<u8> {
        let place = |gateway: usize| order.iter().position(|one| *one == gateway).expect("it is one of them");
        let mut names = Names::new();
        let mut text = format!("{} {} {} ", self.now, self.server.clock, self.server.is_lost());
        order.iter().for_each(|gateway| text.push_str(&masked(&gateways[*gateway], &mut names)));
        let (requests, numbers) = self.texts_of_requests(place);
        let mut messages: Vec<String> = self
            .messages
            .iter()
            .flatten()
            .map(|message| self.text_of_message(message, place(message.gateway), &numbers, &mut names))
            .collect();
        messages.sort_unstable();
        let changes: Vec<_> = self.changes.iter().map(|change| (change.text(), place(change.gateway))).collect();
        let used = self.text_of_used();
        write!(text, "{requests:?} {messages:?} {changes:?} {used} {}", self.oracle.text(order)).unwrap();
        let mut text = text.into_bytes();
        self.add_records(place, &names, &mut text);
        text
    }

    /// The requests in an order of their own, and the number of each in it.
    fn texts_of_requests(&self, place: impl Fn(usize) -> usize) -> (Vec<String>, Vec<usize>) {
        let text = |request: &Request| {
            let Request { gateway, credential, phase, failovers, is_provisional, is_awaited, .. } = request;
            let (steps, denied) = (&request.steps, request.denied.is_some());
            let (began, late) = (request.began.text(&place), &request.late);
            let reserved = request.permit.as_ref().and_then(state::Permit::reservation);
            let reserved = reserved.map(|reservation| (reservation.start(), reservation.units));
            format!(
                "{} {credential:?} {phase:?} {began} {failovers} {steps:?} {denied} {late:?} {reserved:?} \
                 {is_provisional} {is_awaited}",
                place(*gateway)
            )
        };
        let texts: Vec<_> = self.requests.iter().map(|request| request.as_ref().map_or(String::new(), text)).collect();
        let mut sorted: Vec<usize> = (0..texts.len()).collect();
        sorted.sort_by_key(|number| &texts[*number]);
        let mut numbers = vec![0; texts.len()];
        sorted.iter().enumerate().for_each(|(at, number)| numbers[*number] = at);
        (sorted.into_iter().map(|number| texts[number].clone()).collect(), numbers)
    }

    fn text_of_message(&self, message: &Message, place: usize, numbers: &[usize], names: &mut Names) -> String {
        let start = message.start;
        let is_current = message.history == self.server.history;
        let mut text = format!("{place} {start} {is_current} {:?} ", message.answer);
        let number = |request: &usize| numbers.get(*request).copied();
        match &message.pending {
            None => text.push_str("over"),
            Some(Pending::Decide(pending)) => {
                let (request, is_late, input) = (number(&pending.request), pending.is_late, &pending.input);
                let (is_local, late) = (pending.is_local, &pending.late);
                write!(text, "decide {request:?} {is_late} {is_local} {late:?} {input:?} {:?}", pending.entry).unwrap();
            }
            Some(Pending::Read(request) | Pending::Find(request)) => {
                write!(text, "read {:?}", number(request)).unwrap()
            }
            Some(Pending::Identity(reading, request)) => write!(text, "{reading:?} {:?}", number(request)).unwrap(),
            Some(Pending::Confirm(request, step)) => write!(text, "{step:?} {:?}", number(request)).unwrap(),
            Some(Pending::Resync { subject, resync, request, visited }) => {
                let request = request.as_ref().and_then(|(request, _)| number(request));
                write!(text, "resync {subject:?} {resync:?} {request:?} {}", visited.is_some()).unwrap();
            }
            Some(Pending::Change(change)) => write!(text, "change {change}").unwrap(),
            Some(Pending::Report(_, report)) => write!(text, "{report:?}").unwrap(),
            Some(Pending::Status { entry, input, attempts, .. }) => {
                write!(text, "status {attempts} {input:?} {entry:?}").unwrap();
            }
            Some(Pending::Assert(kept, _)) => {
                kept.iter().for_each(|kept| write!(text, "assert {:?}", kept.revocation).unwrap());
            }
        }
        let mut text = masked(&text, names);
        match &message.call {
            // The first argument is the name of the process, and one of an assertion the version that it writes.
            Call::Script(script, keys, arguments) => {
                let arguments = arguments[1..].iter().map(|argument| self.masked_argument(argument, names));
                write!(text, "{script:?} {} {:?}", keys.len(), arguments.collect::<Vec<_>>()).unwrap();
            }
            call => write!(text, "{call:?}").unwrap(),
        }
        text
    }

    /// An argument in which a random name, which begins or ends it, is replaced.
    fn masked_argument(&self, argument: &[u8], names: &mut Names) -> Vec<u8> {
        let mut masked = argument.to_vec();
        let last = argument.len().saturating_sub(8);
        for at in if last > 0 { vec![0, last] } else { vec![0] } {
            let Some(name) = argument[at..].first_chunk::<8>() else { continue };
            if name.iter().all(u8::is_ascii_alphanumeric) {
                masked[at..at + 8].copy_from_slice(&(place_of(*name, names) as u64).to_le_bytes());
            }
        }
        masked
    }

    /// The records, sorted; of those of gateways the names by their places.
    fn add_records(&self, place: impl Fn(usize) -> usize, names: &Names, text: &mut Vec<u8>) {
        for database in self.server.databases() {
            let mut lines: Vec<Vec<u8>> = Vec::new();
            for (record, fields) in database.records() {
                for (field, value) in fields {
                    let mut line = record.to_vec();
                    line.push(b' ');
                    match self.field_name(record, field, &place, names) {
                        Some(name) => line.extend(name),
                        None => continue,
                    }
                    line.push(b' ');
                    line.extend_from_slice(value);
                    lines.push(line);
                }
            }
            lines.sort_unstable();
            lines.iter().for_each(|line| text.extend_from_slice(line));
            text.push(b'|');
        }
        for group in &self.server.recent {
            write!(GroupText(text), "{}", group.uses).unwrap();
            for write in &group.writes {
                let (record, field, value) = write.parts();
                text.extend_from_slice(record);
                let field = field.and_then(|field| self.field_name(record, field, &place, names));
                text.extend(field.unwrap_or_default());
                text.extend_from_slice(value.map_or(&[][..], |value| value));
            }
        }
    }

    /// A field by the place of its gateway, or of its random name; none under a name that nothing uses any more.
    fn field_name(
        &self,
        record: &[u8],
        field: &[u8],
        place: impl Fn(usize) -> usize,
        names: &Names,
    ) -> Option<Vec<u8>> {
        if let [b'h', b':', b'g', number, rest @ ..] = field {
            return Some([b"gateway ", &[b'0' + place(usize::from(number - b'0')) as u8][..], rest].concat());
        }
        if record != self.directory.reported {
            return Some(field.to_vec());
        }
        let at = names.iter().position(|name| field.starts_with(name))?;
        Some([&[b'0' + at as u8][..], &field[8..]].concat())
    }
}

struct GroupText<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for GroupText<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn place_of(name: [u8; 8], names: &mut Names) -> usize {
    names.iter().position(|one| *one == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

/// The text with the places of random names instead of them.
fn masked(text: &str, names: &mut Names) -> String {
    const BEFORE: &str = "name: [";
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEFORE) {
        let (before, after) = rest.split_at(at + BEFORE.len());
        masked.push_str(before);
        let end = after.find(']').expect("a list ends");
        let bytes: Vec<u8> = after[..end].split(", ").map(|byte| byte.parse().expect("a byte")).collect();
        let name: [u8; 8] = bytes.try_into().expect("a name has eight bytes");
        if name != [0; 8] {
            write!(masked, "{}", place_of(name, names)).unwrap();
        }
        rest = &after[end..];
    }
    masked.push_str(rest);
    masked
}
