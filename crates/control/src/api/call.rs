//! A call of the API: who makes it, its request, and the segments of its path.

use std::pin::Pin;

use super::{Answer, Api, input};
use crate::json_input;
use crate::management::{Actor, Management, ManagementError};
use crate::request::ControlRequest;
use domain::clock::Micros;
use domain::identity::SessionId;
use domain::key::KeyId;
use domain::management_token::TokenId;
use domain::page::PageQuery;

/// An operation under way.
type Performed<'a> = Pin<Box<dyn Future<Output = Result<Answer, ManagementError>> + Send + 'a>>;
/// The function that performs a call.
pub(super) type Operation = for<'a> fn(&'a Call<'a>) -> Performed<'a>;

/// The records that the calls of a row change: where the result of one with an idempotency key is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// All organizations: one is created.
    Installation,
    /// The organization in the path, with its users, keys and rules.
    Org,
    /// The key in the path.
    Key,
    /// Management tokens.
    Tokens,
    /// None that has a tag or is remembered: sessions, links, the state as a whole; and rows that only read.
    None,
}

/// A call, authenticated.
pub(super) struct Call<'a> {
    pub(super) api: &'a Api,
    pub(super) actor: &'a Actor,
    pub(super) request: &'a ControlRequest,
    pub(super) subject: Subject,
    /// The member of its answer that has a secret.
    pub(super) secret: Option<&'static str>,
    /// The segments at the places of the braces, still percent-encoded.
    values: &'a [&'a str],
}

impl<'a> Call<'a> {
    pub(super) fn new(
        api: &'a Api,
        actor: &'a Actor,
        request: &'a ControlRequest,
        (subject, secret): (Subject, Option<&'static str>),
        values: &'a [&'a str],
    ) -> Self {
        Self { api, actor, request, subject, secret, values }
    }

    /// Management, which its function calls.
    pub(super) fn management(&self) -> &'a Management {
        &self.api.management
    }

    /// Time of its arrival.
    pub(super) fn now(&self) -> Micros {
        self.request.now
    }

    /// The page of a list that it asks for.
    pub(super) fn page(&self) -> Result<PageQuery, ManagementError> {
        Ok(json_input::page_query(self.request)?)
    }

    /// The organization in the path: an id or a name.
    pub(super) fn org(&self) -> Result<String, ManagementError> {
        input::reference(self.value(0))
    }

    /// The reference below an organization in the path: a user by id or address, a rule by name, a key by digest.
    pub(super) fn member(&self) -> Result<String, ManagementError> {
        input::reference(self.value(1))
    }

    /// The key in the path.
    pub(super) fn key(&self) -> Result<KeyId, ManagementError> {
        json_input::decode_id(self.value(0)).ok_or(ManagementError::NotKeyId)
    }

    /// The management token in the path.
    pub(super) fn token(&self) -> Result<TokenId, ManagementError> {
        json_input::decode_id(self.value(0)).ok_or(ManagementError::NotTokenId)
    }

    /// The web session in the path.
    pub(super) fn session(&self) -> Result<SessionId, ManagementError> {
        json_input::decode_id(self.value(0)).ok_or(ManagementError::NotSessionId)
    }

    /// The organization that the query names; of a signed-in person who names none, the chosen one.
    pub(super) fn org_of_query(&self) -> Option<String> {
        let chosen = || self.actor.signed_in().map(|user| user.org.id.to_string());
        self.request.parameter("org").map(str::to_owned).or_else(chosen)
    }

    /// The segment at the place of the braces of this number.
    fn value(&self, index: usize) -> &str {
        self.values.get(index).copied().unwrap_or_default()
    }
}
