//! Encoding of the events of a use as compact lines, straight into the buffer of the journal.
//!
//! ```text
//! u⇥ID⇥TIME⇥NUMBER⇥FLAGS⇥METHOD⇥KEY⇥USER⇥ORG⇥IP⇥USER AGENT⇥ACTION⇥METHOD⇥PATH[⇥TRACE[⇥BUDGET]]   a use
//! r⇥… as in a use …⇥OUTCOME⇥STATUS⇥DURATION⇥REQUEST BYTES⇥RESPONSE BYTES[⇥TRACE]         a record
//! c⇥… as in a use …⇥ACTOR⇥SUBJECT[⇥TOKEN]                                               a change by management
//! o⇥ID⇥OUTCOME⇥STATUS⇥DURATION⇥REQUEST BYTES⇥RESPONSE BYTES[⇥COST⇥BUDGET]                 an outcome
//! ```
//!
//! Fields are separated by tabs (⇥), and the frame follows them. No text has a tab or a newline: both are escaped, like
//! all control characters (`escape`).
//!
//! - An id of a use, user or organization is its 128 bits (`id_text`), without a prefix; the id of a key is its nine
//!   characters.
//! - `TIME` is the number of microseconds after the millisecond in the id (RFC 9562, section 5.7), with a sign when
//!   negative: the last digits of the time.
//! - `FLAGS` is `p` for a use that was admitted while the shared state was away; and then its cost, if that is not one:
//!   the tokens that it took, or `m` and units that it reserved for one token.
//! - The first `METHOD` is that of authentication: `k` for a key, `s` for a session, `a` for the admin socket, `t` for
//!   a management token.
//! - Phrases of browsers in a user agent are a backslash and a capital letter (`phrases`).
//! - `TRACE` is the id of the request's trace, as the other ids. It is there only when requests are traced.
//! - `ACTOR` is who makes a change, as in records; `SUBJECT` is the id of the user who is acted on.
//! - `TOKEN` is the id of the management token with which a program makes a change, in its ten characters. It is there
//!   only for changes by programs.
//! - An absent value is an empty field. An empty `User-Agent` is `\`, which no escaped text is.
//! - `BUDGET` is there only where the caller has a budget, as its subject, the start of the period and units: of a use,
//!   what the subject had reserved by then; of an outcome, what had come back to it. `COST` is what the use cost then.
//! - Outcomes have their names from the contract. Durations are in microseconds.
//! - Readers ignore fields after the last one that they know.

use std::borrow::Cow;

use super::escape::{self, escape_text};
use super::event::OutcomeEvent;
use super::field;
use super::frame::{self, Line};
use super::prepared::{self, PreparedFields};
use super::record::{ChangeUse, Settled, Use, UseEnd};
use domain::clock::Micros;
use domain::trace_context::TraceId;

/// Line of a use; of a record, when the use ended where it began. Its texts are escaped before the
/// journal's lock is taken.
pub struct UseLine<'a> {
    opening: &'a Use<'a>,
    end: Option<UseEnd>,
    /// The connection's, if it has any.
    prepared: Option<&'a PreparedFields>,
    action: Cow<'a, str>,
    method: Cow<'a, str>,
    path: Cow<'a, str>,
}

/// Line of a change by management that begins.
pub(crate) struct ChangeLine<'a> {
    change: &'a ChangeUse<'a>,
    opening: UseLine<'a>,
    actor: Cow<'a, str>,
}

impl<'a> UseLine<'a> {
    /// The line of a use that begins.
    pub fn of_use(opening: &'a Use<'a>, prepared: Option<&'a PreparedFields>) -> Self {
        Self {
            opening,
            end: None,
            prepared,
            action: escape_text(opening.action, escape::ACTION_CAP),
            method: escape_text(opening.method, escape::METHOD_CAP),
            path: escape_text(opening.path, escape::PATH_CAP),
        }
    }

    /// The line of a use that ended where it began.
    pub(crate) fn of_record(opening: &'a Use<'a>, end: UseEnd) -> Self {
        Self { end: Some(end), ..Self::of_use(opening, None) }
    }
}

impl<'a> ChangeLine<'a> {
    pub(crate) fn new(change: &'a ChangeUse<'a>) -> Self {
        let actor = escape_text(change.actor, escape::ACTOR_CAP);
        Self { change, opening: UseLine::of_use(&change.opening, None), actor }
    }
}

impl Line for UseLine<'_> {
    fn write_line(&self, n: u64, out: &mut Vec<u8>) {
        let opening = self.opening;
        let start = out.len();
        out.push(if self.end.is_some() { b'r' } else { b'u' });
        field::push_id(out, Some(opening.id.as_u128()));
        // Wraps around, so that any time comes back, whatever the id is.
        let since = opening.time.0.wrapping_sub(time_in_id(opening.id.as_u128()).0).cast_signed();
        field::push_signed(out, since);
        field::push_number(out, opening.number);
        field::push_flags(out, opening.provisional, opening.cost);
        match self.prepared {
            Some(prepared) => prepared.push(opening, out),
            None => prepared::push_fields(opening, out),
        }
        field::push_text(out, &self.action);
        field::push_text(out, &self.method);
        field::push_text(out, &self.path);
        if let Some(end) = self.end {
            push_end(out, &OutcomeEvent::new(opening.id, end));
        }
        if opening.trace_id.is_some() || opening.budget.is_some() {
            field::push_id(out, opening.trace_id.map(TraceId::bits));
        }
        if let Some(budget) = opening.budget {
            field::push_text(out, &budget.to_string());
        }
        frame::finish_compact(out, start, n);
    }
}

impl Line for ChangeLine<'_> {
    fn write_line(&self, n: u64, out: &mut Vec<u8>) {
        debug_assert!(self.change.opening.trace_id.is_none(), "changes are not traced");
        let start = out.len();
        // The line of a use, without its frame: writing that of a request has no step that is there for changes.
        self.opening.write_line(n, out);
        let fields = out[start..].strip_suffix(b"\n").and_then(frame::body_of);
        let Some(length) = fields.map(<[u8]>::len) else { unreachable!("a whole line was written") };
        out.truncate(start + length);
        out[start] = b'c';
        field::push_text(out, &self.actor);
        field::push_id(out, self.change.subject.map(|user| u128::from_be_bytes(*user.as_bytes())));
        if let Some(token) = self.change.token_id {
            field::push_text(out, token.as_str());
        }
        frame::finish_compact(out, start, n);
    }
}

impl Line for OutcomeEvent {
    fn write_line(&self, n: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(b'o');
        field::push_id(out, Some(self.id.as_u128()));
        push_end(out, self);
        if let Some(Settled { cost, returned }) = self.settled {
            field::push_number(out, Some(cost));
            field::push_text(out, &returned.to_string());
        }
        frame::finish_compact(out, start, n);
    }
}

/// The time in the id of a use: its first 48 bits, in milliseconds.
pub(crate) fn time_in_id(id: u128) -> Micros {
    Micros((id >> 80) as u64 * 1000)
}

fn push_end(out: &mut Vec<u8>, end: &OutcomeEvent) {
    field::push_text(out, end.outcome.name());
    field::push_number(out, end.status.map(u64::from));
    field::push_number(out, end.duration_us);
    field::push_number(out, end.request_bytes);
    field::push_number(out, end.response_bytes);
}
