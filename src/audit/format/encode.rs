//! Encoding of the events of a use as compact lines, straight into the buffer of the journal.
//!
//! ```text
//! u⇥ID⇥TIME⇥NUMBER⇥FLAGS⇥METHOD⇥KEY⇥USER⇥ORG⇥IP⇥USER AGENT⇥ACTION⇥METHOD⇥PATH            a use
//! r⇥… as in a use …⇥OUTCOME⇥STATUS⇥DURATION⇥REQUEST BYTES⇥RESPONSE BYTES                  a record
//! o⇥ID⇥OUTCOME⇥STATUS⇥DURATION⇥REQUEST BYTES⇥RESPONSE BYTES                               an outcome
//! ```
//!
//! Fields are separated by tabs (⇥), and the frame follows them. No text has a tab or a newline: both are escaped, like all
//! control characters (`escape`).
//!
//! - An id of a use, user or organization is its 128 bits (`id_text`), without a prefix; the id of a key is its nine
//!   characters.
//! - `TIME` is the number of microseconds after the millisecond in the id (RFC 9562, section 5.7), with a sign when negative:
//!   the last digits of the time.
//! - `FLAGS` is `p` for a use that was admitted while the shared state was away.
//! - The first `METHOD` is that of authentication: `k` for a key, `s` for a session, `a` for the admin socket.
//! - An absent value is an empty field. An empty `User-Agent` is `\`, which no escaped text is.
//! - Outcomes have their names from the contract. Durations are in microseconds.
//! - Readers ignore fields after the last one that they know.

use std::borrow::Cow;
use std::net::IpAddr;

use super::escape::{self, escape_capped};
use super::event::OutcomeEvent;
use super::frame::{self, Line};
use super::id_text;
use super::record::{Use, UseEnd};
use crate::clock::Micros;
use crate::identity::AuthMethod;

/// Text of a user agent that is there and empty.
pub(crate) const EMPTY_TEXT: &str = "\\";

/// Line of a use; of a record, when the use ended where it began. Its texts are escaped before the journal's lock is taken.
pub(crate) struct UseLine<'a> {
    opening: &'a Use<'a>,
    end: Option<UseEnd>,
    user_agent: Option<Cow<'a, str>>,
    action: Cow<'a, str>,
    method: Cow<'a, str>,
    path: Cow<'a, str>,
}

impl<'a> UseLine<'a> {
    /// The line of a use that begins.
    pub(crate) fn of_use(opening: &'a Use<'a>) -> Self {
        Self {
            opening,
            end: None,
            user_agent: opening.user_agent.map(|agent| escape_capped(agent, escape::USER_AGENT_CAP)),
            action: escape_capped(opening.action.as_bytes(), escape::ACTION_CAP),
            method: escape_capped(opening.method.as_bytes(), escape::METHOD_CAP),
            path: escape_capped(opening.path.as_bytes(), escape::PATH_CAP),
        }
    }

    /// The line of a use that ended where it began.
    pub(crate) fn of_record(opening: &'a Use<'a>, end: UseEnd) -> Self {
        Self { end: Some(end), ..Self::of_use(opening) }
    }
}

impl Line for UseLine<'_> {
    fn write_line(&self, n: u64, out: &mut Vec<u8>) {
        let opening = self.opening;
        let start = out.len();
        out.push(if self.end.is_some() { b'r' } else { b'u' });
        push_id(out, Some(opening.id.as_u128()));
        push_time(out, opening);
        push_number(out, opening.number);
        push_text(out, if opening.provisional { "p" } else { "" });
        push_text(out, auth_letter(opening.auth_method));
        push_text(out, opening.key_id.as_ref().map_or("", |key| key.as_str()));
        push_id(out, opening.user_id.map(|user| u128::from_be_bytes(*user.as_bytes())));
        push_id(out, opening.org_id.map(|org| u128::from_be_bytes(*org.as_bytes())));
        push_address(out, opening.ip);
        push_text(
            out,
            self.user_agent.as_deref().map_or("", |agent| if agent.is_empty() { EMPTY_TEXT } else { agent }),
        );
        push_text(out, &self.action);
        push_text(out, &self.method);
        push_text(out, &self.path);
        if let Some(end) = self.end {
            push_end(out, &OutcomeEvent::new(opening.id, end));
        }
        frame::finish_compact(out, start, n);
    }
}

impl Line for OutcomeEvent {
    fn write_line(&self, n: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(b'o');
        push_id(out, Some(self.id.as_u128()));
        push_end(out, self);
        frame::finish_compact(out, start, n);
    }
}

/// The time in the id of a use: its first 48 bits, in milliseconds.
pub(crate) fn time_in_id(id: u128) -> Micros {
    Micros((id >> 80) as u64 * 1000)
}

/// The letter of a method of authentication.
pub(crate) fn auth_letter(method: AuthMethod) -> &'static str {
    match method {
        AuthMethod::ApiKey => "k",
        AuthMethod::Session => "s",
        AuthMethod::AdminSocket => "a",
    }
}

fn push_end(out: &mut Vec<u8>, end: &OutcomeEvent) {
    push_text(out, end.outcome.name());
    push_number(out, end.status.map(u64::from));
    push_number(out, end.duration_us);
    push_number(out, end.request_bytes);
    push_number(out, end.response_bytes);
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'\t');
    out.extend_from_slice(text.as_bytes());
}

fn push_id(out: &mut Vec<u8>, id: Option<u128>) {
    out.push(b'\t');
    if let Some(id) = id {
        out.extend_from_slice(&id_text::encode(id));
    }
}

fn push_number(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(b'\t');
    if let Some(number) = number {
        frame::push_decimal(out, number);
    }
}

/// Wraps around, so that any time comes back, whatever the id is.
fn push_time(out: &mut Vec<u8>, opening: &Use<'_>) {
    let since = opening.time.0.wrapping_sub(time_in_id(opening.id.as_u128()).0).cast_signed();
    out.push(b'\t');
    if since < 0 {
        out.push(b'-');
    }
    frame::push_decimal(out, since.unsigned_abs());
}

fn push_address(out: &mut Vec<u8>, ip: Option<IpAddr>) {
    out.push(b'\t');
    match ip {
        Some(IpAddr::V4(ip)) => {
            for (i, octet) in ip.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                frame::push_decimal(out, octet.into());
            }
        }
        Some(IpAddr::V6(ip)) => out.extend_from_slice(ip.to_string().as_bytes()),
        None => {}
    }
}
