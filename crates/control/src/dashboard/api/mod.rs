//! The management API: the operations of the pages as JSON, for programs in a browser that has a web session.
//!
//! - The session cookie is the only credential; an API key cannot manage keys.
//! - A request that changes something must come from a page of this origin (CSRF).
//! - Each endpoint calls one function of `management` as the signed-in user, and decides nothing itself.
//! - Lists are `{"items": […], "nextCursor": …}`. Bodies have the members of the command line's `--json`. Every error
//!   is a problem (RFC 9457) with the request's id.
//! - `docs/openapi.json` describes the API, and is served without a session. Tests compare it with routes and errors.

use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::Dashboard;
use super::endpoints::ApiEndpoint;
use super::error::DashboardError;
use super::response::{self, DashboardResponse};
use super::routes::API;
use crate::json_input;
use crate::management::{
    Activity, Actor, KeyQuery, Management, ManagementError, NewKeyRequest, Rotation, SecretSource, Session,
    SignedInUser, User,
};
use crate::request::ControlRequest;
use domain::page::PageQuery;

mod error;
mod input;

pub(super) use error::ApiError;

/// The API's description (OpenAPI 3.1).
const DOCUMENT: &str = include_str!("../../../../../docs/openapi.json");

/// Serves the API's description.
pub(super) fn document() -> DashboardResponse {
    response::build(StatusCode::OK, "application/json", DOCUMENT)
}

/// Performs an operation of the API. `query` has the parameters that the route accepts, `id` the id in the path.
pub(super) async fn respond(
    dashboard: &Dashboard,
    request: &ControlRequest,
    endpoint: ApiEndpoint,
    query: Option<&[&str]>,
    id: &str,
) -> DashboardResponse {
    let result = async {
        let user = authenticate(dashboard, request).await?;
        dashboard.check_origin(request)?;
        let counted = dashboard.count_request(&user, endpoint.counting(), request.now)?;
        let performed = match json_input::check_query(request, query.unwrap_or_default()).map_err(ApiError::from) {
            Ok(()) => ApiCall::new(dashboard, request, &user).perform(endpoint, id).await,
            Err(error) => Err(error),
        };
        let status = performed.as_ref().map_or_else(ApiError::status, DashboardResponse::status);
        dashboard.uncount_failed_revocation(counted, status);
        performed
    };
    result.await.unwrap_or_else(|error| error.response(request.id))
}

/// The user whose session a request presents.
async fn authenticate(dashboard: &Dashboard, request: &ControlRequest) -> Result<SignedInUser, ApiError> {
    let user = dashboard.user(request).await?;
    user.ok_or(match request.session {
        Ok(Some(_)) => ApiError::SessionEnded,
        // The client tries an API key, and should learn that none is accepted here.
        _ if request.headers.contains_key(AUTHORIZATION) => ApiError::KeyNotAccepted,
        _ => ApiError::NoSession,
    })
}

/// An authenticated request.
struct ApiCall<'a> {
    dashboard: &'a Dashboard,
    management: &'a Management,
    request: &'a ControlRequest,
    user: &'a SignedInUser,
    /// The user, as the actor of operations.
    actor: Actor,
    /// Id of the chosen organization.
    org: String,
}

impl<'a> ApiCall<'a> {
    fn new(dashboard: &'a Dashboard, request: &'a ControlRequest, user: &'a SignedInUser) -> Self {
        let actor = Actor::User(Box::new(user.clone()));
        let org = user.org.id.to_string();
        Self { dashboard, management: &dashboard.management, request, user, actor, org }
    }

    async fn perform(&self, endpoint: ApiEndpoint, id: &str) -> Result<DashboardResponse, ApiError> {
        let management = self.management;
        let actor = &self.actor;
        let org = &*self.org;
        let now = self.request.now;
        let body = match endpoint {
            ApiEndpoint::ShowSession => self.session().await?,
            ApiEndpoint::ChooseOrg => self.choose_org().await?,
            ApiEndpoint::SignOut => return self.sign_out().await,
            ApiEndpoint::ShowOrg => json!({ "org": management.show_org(actor, org, now).await? }),
            ApiEndpoint::ListUsers => json!(management.list_users(actor, org, &self.page()?, now).await?),
            ApiEndpoint::ListKeys => {
                json!(management.list_keys(actor, org, &KeyQuery::default(), &self.page()?, now).await?)
            }
            ApiEndpoint::CreateKey => return self.create_key().await,
            ApiEndpoint::ShowKey => json!({ "key": management.show_key(actor, input::key(id)?, now).await? }),
            ApiEndpoint::SetKey => self.set_key(id).await?,
            ApiEndpoint::DisableKey => {
                json!({ "key": management.disable_key(actor, input::key(id)?, false, now).await? })
            }
            ApiEndpoint::EnableKey => json!({ "key": management.enable_key(actor, input::key(id)?, now).await? }),
            ApiEndpoint::RevokeKey => json!({ "key": management.revoke_key(actor, input::key(id)?, now).await? }),
            ApiEndpoint::RotateKey => self.rotate_key(id).await?,
            ApiEndpoint::ListUses => self.uses(id).await?,
            ApiEndpoint::Explain => {
                json!({ "explanation": management.explain_key(actor, input::key(id)?, now).await? })
            }
            ApiEndpoint::Activity => self.activity(id).await?,
            ApiEndpoint::ListChanges => json!(management.list_changes(actor, org, &self.page()?, now).await?),
            ApiEndpoint::ListSessions => {
                json!(management.list_sessions(actor, Some(org), false, &self.page()?, now).await?)
            }
            ApiEndpoint::EndOtherSessions => json!({ "ended": management.end_other_sessions(self.user, now).await? }),
            ApiEndpoint::EndSession => {
                json!({ "session": management.end_session(actor, input::session(id)?, now).await? })
            }
            ApiEndpoint::ListTokens => json!(management.list_tokens(actor, Some(org), &self.page()?, now).await?),
            ApiEndpoint::CreateToken => return self.create_token().await,
            ApiEndpoint::RevokeToken => {
                let with_descendants = json_input::boolean(self.request, "with_descendants")?.unwrap_or(false);
                let token = management.revoke_token(actor, input::token(id)?, with_descendants, now).await?;
                json!({ "token": token })
            }
        };
        Ok(json_response(StatusCode::OK, &body))
    }

    /// The page of a list that the request asks for.
    fn page(&self) -> Result<PageQuery, ApiError> {
        json_input::page_query(self.request).map_err(|error| ManagementError::from(error).into())
    }

    /// The user, their session, role, and chosen and other organizations.
    async fn session(&self) -> Result<Value, ApiError> {
        let now = self.request.now;
        Ok(json!({
            "orgs": self.management.member_orgs(self.user).await?,
            "org": self.management.show_org(&self.actor, &self.org, now).await?,
            "session": Session::from(self.user.session.clone()),
            // A service never signs in.
            "user": User::new(self.user.user.clone(), None),
            "role": if self.user.is_admin() { "admin" } else { "member" },
        }))
    }

    async fn choose_org(&self) -> Result<Value, ApiError> {
        let input::ChooseOrgBody { org } = json_input::body(self.request)?;
        self.management.choose_org(self.user, &org, self.request.now).await?;
        // The user differs in each organization: their record there has other permissions.
        let user = authenticate(self.dashboard, self.request).await?;
        ApiCall::new(self.dashboard, self.request, &user).session().await
    }

    async fn sign_out(&self) -> Result<DashboardResponse, ApiError> {
        self.management.sign_out(self.user, self.request.now).await?;
        let mut response = response::build(StatusCode::NO_CONTENT, "application/json", "");
        response.headers_mut().remove(CONTENT_TYPE);
        Ok(response::without_session(response))
    }

    async fn create_key(&self) -> Result<DashboardResponse, ApiError> {
        let input::CreateKeyBody { name, user, policy } = json_input::body(self.request)?;
        let user = user.unwrap_or_else(|| self.user.user.id.to_string());
        let request = NewKeyRequest { user: &user, name: &name, policy };
        let secret = SecretSource::Generated;
        let created = self.management.create_key(&self.actor, &self.org, request, secret, self.request.now).await?;
        let location = format!("{}/{API}/keys/{}", self.dashboard.settings.path, created.key.id);
        let mut response = json_response(StatusCode::CREATED, &json!(created));
        let location = HeaderValue::try_from(location).expect("paths and ids are visible ASCII");
        response.headers_mut().insert(LOCATION, location);
        Ok(response)
    }

    async fn create_token(&self) -> Result<DashboardResponse, ApiError> {
        let body: input::CreateTokenBody = json_input::body(self.request)?;
        let settings = body.into_settings(&self.org);
        let created = self.management.create_token(&self.actor, settings, self.request.now).await?;
        Ok(json_response(StatusCode::CREATED, &json!(created)))
    }

    async fn set_key(&self, id: &str) -> Result<Value, ApiError> {
        let key = input::key(id)?;
        let input::SetKeyBody { policy } = json_input::body(self.request)?;
        Ok(json!({ "key": self.management.set_key(&self.actor, key, policy, self.request.now).await? }))
    }

    async fn rotate_key(&self, id: &str) -> Result<Value, ApiError> {
        let input::RotateKeyBody { overlap_seconds, expected_rotated } = json_input::optional_body(self.request)?;
        let overlap = overlap_seconds.map(|seconds| Duration::from_secs(seconds.0));
        let rotation = Rotation::new(overlap);
        let rotation = expected_rotated.map_or(rotation, |rotated| rotation.after(rotated));
        let key = input::key(id)?;
        Ok(json!(self.management.rotate_key(&self.actor, key, rotation, self.request.now).await?))
    }

    async fn uses(&self, id: &str) -> Result<Value, ApiError> {
        let key = input::key(id)?;
        let filter = json_input::use_filter(self.request)?;
        Ok(json!(self.management.list_uses(&self.actor, key, filter, &self.page()?, self.request.now).await?))
    }

    async fn activity(&self, id: &str) -> Result<Value, ApiError> {
        let keys = vec![input::key(id)?];
        let report = self.management.key_activity(&self.actor, &self.org, keys, self.request.now).await?;
        // The report has one entry for each requested key.
        let activity: Activity = report.keys.into_values().next().ok_or(DashboardError::Internal)?;
        let mut body = json!({ "activity": activity, "gateway": report.gateway });
        if let Some(view) = report.view {
            body["view"] = json!(view);
        }
        Ok(body)
    }
}

fn json_response(status: StatusCode, body: &Value) -> DashboardResponse {
    response::build(status, "application/json", body.to_string())
}
