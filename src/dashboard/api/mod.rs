//! The management API: the same operations as the pages', as JSON, for programs in a browser that has a session.
//!
//! - Only a web session opens it, by its cookie. API keys never manage keys.
//! - What changes something must come from a page of this origin, as the browser says.
//! - Each endpoint is one operation of `management`, done as the person whose session it is; nothing is decided here.
//! - Answers are those of `keygate … --json`; every "no" is a problem (RFC 9457) with the request's id.
//! - `docs/openapi.json` describes all of it, is served without a session, and is held against the routes by a test.

use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::Dashboard;
use super::error::DashboardError;
use super::request::DashboardRequest;
use super::response::{self, DashboardResponse};
use crate::management::{Actor, Operation, Reply, Session, SignedInUser, User};
use crate::session;

mod routes;
mod input;
mod error;

pub(super) use error::ApiError;
use routes::{Endpoint, RouteMatch};

/// The API's description (OpenAPI 3.1).
const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

/// Answers what is below `api` in the dashboard's path.
pub(super) async fn answer(dashboard: &Dashboard, request: &DashboardRequest, segments: &[&str]) -> DashboardResponse {
    let answered = match segments {
        ["openapi.json"] => document(request),
        ["v1", rest @ ..] => dashboard.call(request, rest).await,
        _ => Err(ApiError::Nowhere),
    };
    answered.unwrap_or_else(|refusal| refusal.answer(request.id))
}

fn document(request: &DashboardRequest) -> Result<DashboardResponse, ApiError> {
    match request.verb() {
        "GET" => Ok(response::of(StatusCode::OK, "application/json", DOCUMENT)),
        _ => Err(ApiError::Method("GET, HEAD".to_owned())),
    }
}

/// A request whose sender is known.
struct ApiCall<'a> {
    dashboard: &'a Dashboard,
    request: &'a DashboardRequest,
    actor: Actor,
    person: &'a SignedInUser,
}

impl Dashboard {
    async fn call(&self, request: &DashboardRequest, segments: &[&str]) -> Result<DashboardResponse, ApiError> {
        let RouteMatch { route, id } = routes::find(request.verb(), segments)?;
        let person = self.caller(request).await?;
        if !session::is_own_doing(&request.method, &request.headers, &self.settings.origin) {
            return Err(DashboardError::CrossSite.into());
        }
        input::check_query(request, route)?;
        let actor = Actor::User(Box::new(person.clone()));
        ApiCall { dashboard: self, request, actor, person: &person }.answer(route.endpoint, id).await
    }

    /// The person whose session a request presents; a key is no session.
    async fn caller(&self, request: &DashboardRequest) -> Result<SignedInUser, ApiError> {
        let person = self.person(request).await?;
        person.ok_or(match request.session {
            Ok(Some(_)) => ApiError::EndedSession,
            _ if request.headers.contains_key(AUTHORIZATION) => ApiError::KeysDoNotManage,
            _ => ApiError::NoSession,
        })
    }
}

impl ApiCall<'_> {
    async fn answer(&self, endpoint: Endpoint, id: Option<&str>) -> Result<DashboardResponse, ApiError> {
        match endpoint {
            Endpoint::ShowSession => self.show_session().await,
            Endpoint::ChooseOrg => self.choose_org().await,
            Endpoint::SignOut => self.sign_out().await,
            Endpoint::CreateKey => self.create_key().await,
            Endpoint::Activity => self.activity(id).await,
            endpoint => {
                let reply = self.perform(self.operation(endpoint, id)?).await?;
                Ok(json(StatusCode::OK, &untagged(&reply)))
            }
        }
    }

    /// The operation that an endpoint is a face of; of one's own session, what there is to know.
    fn operation(&self, endpoint: Endpoint, id: Option<&str>) -> Result<Operation, ApiError> {
        let org = self.person.org.id.to_string();
        Ok(match endpoint {
            Endpoint::ShowSession | Endpoint::ChooseOrg | Endpoint::SignOut => Operation::ListOrgs {},
            Endpoint::ShowOrg => Operation::ShowOrg { org },
            Endpoint::ListUsers => Operation::ListUsers { org },
            Endpoint::ListKeys => Operation::ListKeys { org },
            Endpoint::CreateKey => {
                let input::CreateKeyBody { name, user } = input::body(self.request)?;
                Operation::CreateKey { org, user: user.unwrap_or_else(|| self.person.user.id.to_string()), name }
            }
            Endpoint::ShowKey => Operation::ShowKey { key: input::key(id)? },
            Endpoint::RevokeKey => Operation::RevokeKey { key: input::key(id)? },
            Endpoint::RotateKey => {
                let rotation: input::RotateKeyBody = input::optional_body(self.request)?;
                let overlap = rotation.overlap_seconds.map(|seconds| Duration::from_secs(seconds.0));
                Operation::RotateKey { key: input::key(id)?, overlap }
            }
            Endpoint::ListUses => Operation::ListUses { key: input::key(id)?, uses: input::uses(self.request)? },
            Endpoint::Explain => Operation::Explain { key: input::key(id)? },
            Endpoint::Activity => Operation::Activity { org, keys: vec![input::key(id)?] },
            Endpoint::ListSessions => Operation::ListSessions { org: Some(org) },
            Endpoint::EndSession => Operation::EndSession { session: input::session(id)? },
        })
    }

    async fn perform(&self, operation: Operation) -> Result<Reply, ApiError> {
        Ok(self.dashboard.management.perform_as(&self.actor, operation, self.request.now).await?)
    }

    /// Who somebody is, and where they act.
    async fn show_session(&self) -> Result<DashboardResponse, ApiError> {
        let mut shown = untagged(&self.perform(Operation::ListOrgs {}).await?);
        let org = self.perform(self.operation(Endpoint::ShowOrg, None)?).await?;
        shown["org"] = untagged(&org)["org"].take();
        shown["session"] = json!(Session::from(self.person.session.clone()));
        shown["user"] = json!(User::from(self.person.user.clone()));
        shown["role"] = json!(if self.person.is_admin() { "admin" } else { "member" });
        Ok(json(StatusCode::OK, &shown))
    }

    async fn choose_org(&self) -> Result<DashboardResponse, ApiError> {
        let input::ChooseOrgBody { org } = input::body(self.request)?;
        self.dashboard.management.choose_org(self.person, &org, self.request.now).await?;
        let chosen = self.dashboard.caller(self.request).await?;
        let actor = Actor::User(Box::new(chosen.clone()));
        ApiCall { actor, person: &chosen, ..*self }.show_session().await
    }

    async fn sign_out(&self) -> Result<DashboardResponse, ApiError> {
        self.dashboard.management.sign_out(self.person, self.request.now).await?;
        let mut answer = response::of(StatusCode::NO_CONTENT, "application/json", "");
        answer.headers_mut().remove(CONTENT_TYPE);
        Ok(response::without_session(answer))
    }

    /// What a key did lately: what management says of several, of one.
    async fn activity(&self, id: Option<&str>) -> Result<DashboardResponse, ApiError> {
        let reply = self.perform(self.operation(Endpoint::Activity, id)?).await?;
        let Reply::Activity { keys, gateway } = reply else { return Err(DashboardError::Internal.into()) };
        let activity = keys.into_values().next().ok_or(DashboardError::Internal)?;
        Ok(json(StatusCode::OK, &json!({ "activity": activity, "gateway": gateway })))
    }

    async fn create_key(&self) -> Result<DashboardResponse, ApiError> {
        let reply = self.perform(self.operation(Endpoint::CreateKey, None)?).await?;
        let mut answer = json(StatusCode::CREATED, &untagged(&reply));
        if let Reply::NewKey { key, .. } = reply {
            let location = format!("{}/api/v1/keys/{}", self.dashboard.settings.path, key.id);
            let location = HeaderValue::try_from(location).expect("paths and ids are visible ASCII");
            answer.headers_mut().insert(LOCATION, location);
        }
        Ok(answer)
    }
}

fn untagged(reply: &Reply) -> Value {
    reply.untagged().expect("replies are structs with text keys")
}

fn json(status: StatusCode, value: &Value) -> DashboardResponse {
    response::of(status, "application/json", value.to_string())
}
