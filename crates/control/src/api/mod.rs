//! One API of management: the operations on organizations, users, keys, tokens and sessions as JSON over HTTP.
//!
//! `routes` is its one table; each row's function is the operation. It is mounted three times, with the same paths
//! and records:
//!
//! - on the admin socket, for the operator, by the credentials of the peer: `/v1/…`;
//! - on listeners for management, for programs, by a token: `/v1/…`;
//! - on the origin of the dashboard, for signed-in people, by the cookie of their session: `/settings/api/v1/…`.
//!
//! A mount knows who calls, and counts their calls. The rest is here, in this order: the row by method and path, the
//! parameters of the query, the conditions (`If-Match`, `Idempotency-Key`), the operation once, and what the caller
//! knows already (`If-None-Match`).
//!
//! - Records have entity tags (RFC 9110, section 8.8.3); a change with `If-Match` is made only if the record still has
//!   its tag. A `POST` with an `Idempotency-Key` is made once within a day, however often it is sent.
//! - Lists are `{"items": […], "nextCursor": …}`; every error is a problem (RFC 9457).

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use uuid::Uuid;

use crate::json_input;
use crate::management::{Actor, Management, ManagementError};
use crate::request::ControlRequest;
use call::Call;
use domain::identity::X_REQUEST_ID;
use idempotency::InProgress;
use state_export::ExportTurns;

mod mount;
mod routes;
mod call;
mod orgs;
mod users;
mod keys;
mod csv;
mod apply;
mod tokens;
mod sessions;
mod audit;
mod quota;
mod input;
mod response;
mod problem;
mod idempotency;
mod state_export;
mod document;

pub(crate) use document::document;
pub(crate) use mount::{COOKIE_CHALLENGE, Mount};
pub(crate) use problem::problem;
pub(crate) use response::{Answer, build};
pub(crate) use routes::{Found, Weight, find};

/// The API at one of its mounts. Clones share what is under way.
#[derive(Clone, Debug)]
pub struct Api {
    management: Arc<Management>,
    /// Path before those of the table, such as `/v1`.
    base: Arc<str>,
    /// Calls with idempotency keys that are being made.
    in_progress: InProgress,
    /// Turns to export the state.
    exports: ExportTurns,
}

impl Api {
    /// The API below a path, such as `/v1`.
    pub fn new(management: &Arc<Management>, base: &str) -> Self {
        let in_progress = InProgress::default();
        Self { management: Arc::clone(management), base: base.into(), in_progress, exports: ExportTurns::default() }
    }

    /// Management, which it calls.
    pub(crate) fn management(&self) -> &Arc<Management> {
        &self.management
    }

    /// Performs a call for an actor, or answers it with the result of the same call of before.
    ///
    /// # Errors
    /// Those of the operation, and of what is wrong with the call.
    pub(crate) async fn perform(
        &self,
        actor: Actor,
        request: &ControlRequest,
        found: &Found<'_>,
    ) -> Result<Answer, ManagementError> {
        let Found { route, values } = found;
        json_input::check_query(request, route.query)?;
        let conditions = idempotency::conditions(route.subject, request, &actor)?;
        let actor = actor.with_conditions(conditions);
        let call = Call::new(self, &actor, request, (route.subject, route.secret), values);
        self.perform_once(&call, route.operation).await
    }

    /// The response to a call of the operator, by the admin socket or in the process of a command.
    pub async fn serve_operator(&self, operator: Actor, request: Request<Bytes>) -> Response<Bytes> {
        let id = Uuid::now_v7();
        let (head, body) = request.into_parts();
        let is_below = head.uri.path().strip_prefix(&*self.base).is_some_and(|below| below.starts_with('/'));
        let request = ControlRequest::new(&self.base, (id, self.management.now()), None, head, body);
        let performed = async {
            let segments = if is_below { request.segments() } else { return Err(ManagementError::NotFound) };
            let found = find(Mount::Socket, request.route_method(), &segments)?;
            self.perform(operator, &request, &found).await
        };
        let response = match performed.await {
            Ok(answer) => self.respond(&request, answer),
            Err(error) => problem(self.management.problem_types(), id, Mount::Socket, &error),
        };
        with_id(id, response)
    }

    /// The response to a call of the operator whose body could not be read.
    pub(crate) fn refuse_operator(&self, error: &ManagementError) -> Response<Bytes> {
        let id = Uuid::now_v7();
        with_id(id, problem(self.management.problem_types(), id, Mount::Socket, error))
    }

    /// The response to a call: its answer, or 304 to a client that has the record already.
    pub(crate) fn respond(&self, request: &ControlRequest, answer: Answer) -> Response<Bytes> {
        let response = answer.into_response(&self.base);
        if request.method.is_safe() { response::unless_known(&request.headers, response) } else { response }
    }
}

fn with_id(id: Uuid, mut response: Response<Bytes>) -> Response<Bytes> {
    let id = HeaderValue::try_from(id.to_string()).expect("hexadecimal digits and dashes");
    response.headers_mut().insert(X_REQUEST_ID, id);
    response
}
