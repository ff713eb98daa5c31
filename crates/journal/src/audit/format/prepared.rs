//! Fields of a use that seldom change on a connection, encoded once: those of its caller, and of the client.

use std::cell::RefCell;
use std::net::IpAddr;

use super::escape::{self, escape_capped};
use super::field;
use super::phrases;
use super::record::Use;
use domain::identity::{AuthMethod, OrgId, UserId};
use domain::key::KeyId;

/// Bytes of the fields of a caller: four tabs, a letter, the id of a key, and two ids of 22 characters.
const CALLER_LENGTH: usize = 4 + 1 + 9 + 2 * 22;

/// Bytes of the address of a client, of version 4, and two tabs.
const ADDRESS_LENGTH: usize = 2 + 15;

/// Fields of the last use of a connection, as they are in its line: those of the caller, and those of the client.
///
/// They are compared with those of the next use, and encoded again when one of them has changed: a connection usually
/// has one client, and often one caller. Where a client has many keys, its own fields stay.
#[derive(Debug, Default)]
pub struct PreparedFields(RefCell<Option<Box<Prepared>>>);

#[derive(Debug)]
struct Prepared {
    caller: Caller,
    client: Client,
    /// The fields from the method of authentication to the organization.
    caller_text: Vec<u8>,
    /// The fields of the address and the user agent.
    client_text: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Caller {
    method: AuthMethod,
    key_id: Option<KeyId>,
    user_id: Option<UserId>,
    org_id: Option<OrgId>,
}

#[derive(Debug)]
struct Client {
    ip: Option<IpAddr>,
    user_agent: Option<Vec<u8>>,
}

impl PreparedFields {
    /// Appends the fields of a use.
    pub(crate) fn push(&self, opening: &Use<'_>, out: &mut Vec<u8>) {
        let mut prepared = self.0.borrow_mut();
        let prepared = match &mut *prepared {
            Some(prepared) => {
                prepared.renew(opening);
                prepared
            }
            none => none.insert(Box::new(Prepared::new(opening))),
        };
        out.extend_from_slice(&prepared.caller_text);
        out.extend_from_slice(&prepared.client_text);
    }
}

impl Prepared {
    fn new(opening: &Use<'_>) -> Self {
        let mut caller_text = Vec::with_capacity(CALLER_LENGTH);
        push_caller(opening, &mut caller_text);
        let agent_length = opening.user_agent.map_or(0, <[u8]>::len).min(escape::USER_AGENT_CAP);
        let mut client_text = Vec::with_capacity(ADDRESS_LENGTH + agent_length);
        push_client(opening, &mut client_text);
        Self { caller: Caller::of(opening), client: Client::of(opening), caller_text, client_text }
    }

    /// Encodes again what has changed, into the buffers that are there.
    fn renew(&mut self, opening: &Use<'_>) {
        let caller = Caller::of(opening);
        if self.caller != caller {
            self.caller = caller;
            self.caller_text.clear();
            push_caller(opening, &mut self.caller_text);
        }
        if !self.client.is_of(opening) {
            self.client = Client::of(opening);
            self.client_text.clear();
            push_client(opening, &mut self.client_text);
        }
    }
}

impl Caller {
    fn of(opening: &Use<'_>) -> Self {
        let Use { auth_method: method, key_id, user_id, org_id, .. } = *opening;
        Self { method, key_id, user_id, org_id }
    }
}

impl Client {
    fn of(opening: &Use<'_>) -> Self {
        Self { ip: opening.ip, user_agent: opening.user_agent.map(<[u8]>::to_vec) }
    }

    fn is_of(&self, opening: &Use<'_>) -> bool {
        self.ip == opening.ip && self.user_agent.as_deref() == opening.user_agent
    }
}

/// Appends the fields of a use from the method of authentication to the user agent.
pub(crate) fn push_fields(opening: &Use<'_>, out: &mut Vec<u8>) {
    push_caller(opening, out);
    push_client(opening, out);
}

/// Appends the fields of a use from the method of authentication to the organization.
fn push_caller(opening: &Use<'_>, out: &mut Vec<u8>) {
    field::push_text(out, field::auth_letter(opening.auth_method));
    field::push_text(out, opening.key_id.as_ref().map_or("", |key| key.as_str()));
    field::push_id(out, opening.user_id.map(|user| u128::from_be_bytes(*user.as_bytes())));
    field::push_id(out, opening.org_id.map(|org| u128::from_be_bytes(*org.as_bytes())));
}

/// Appends the fields of a use from the address to the user agent.
fn push_client(opening: &Use<'_>, out: &mut Vec<u8>) {
    field::push_address(out, opening.ip);
    let agent = opening.user_agent.map(|agent| escape_capped(agent, escape::USER_AGENT_CAP));
    let short = agent.as_deref().map(phrases::shorten);
    // An empty one is told from an absent one.
    field::push_text(
        out,
        short.as_deref().map_or("", |agent| if agent.is_empty() { field::EMPTY_TEXT } else { agent }),
    );
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use domain::budget::Cost;
    use domain::clock::Micros;

    #[test]
    fn fields_are_those_of_the_use_whatever_was_prepared_before() {
        let opening = Use {
            id: Uuid::nil(),
            time: Micros(1),
            number: None,
            key_id: Some("mZvzkepCv".parse().unwrap()),
            user_id: Some([1; 16].into()),
            org_id: Some([2; 16].into()),
            auth_method: AuthMethod::ApiKey,
            ip: Some([192, 0, 2, 1].into()),
            user_agent: Some(b"curl/8.5.0"),
            action: "a",
            method: "GET",
            path: "/",
            provisional: false,
            cost: Cost::ONE,
            budget: None,
            trace_id: None,
        };
        let variants = [
            opening.clone(),
            Use { key_id: Some("mZvzkepCw".parse().unwrap()), ..opening.clone() },
            Use { user_id: Some([3; 16].into()), ..opening.clone() },
            Use { org_id: None, ..opening.clone() },
            Use { auth_method: AuthMethod::Session, ..opening.clone() },
            Use { ip: Some([192, 0, 2, 2].into()), ..opening.clone() },
            Use { user_agent: Some(b"curl/8.5.1"), ..opening.clone() },
            Use { user_agent: Some(b""), ..opening.clone() },
            Use { user_agent: None, ..opening.clone() },
        ];
        let prepared = PreparedFields::default();
        for before in &variants {
            for opening in [before, before].into_iter().chain(&variants) {
                let mut given = Vec::new();
                let mut expected = Vec::new();
                prepared.push(opening, &mut given);
                push_fields(opening, &mut expected);
                assert_eq!(given, expected, "{opening:?} after {before:?}");
            }
        }
    }
}
