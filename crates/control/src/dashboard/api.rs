//! The API of management for programs in a browser that has a web session: one mount of [`api`](crate::api).
//!
//! - The session cookie is the only credential; an API key cannot manage keys.
//! - A request that changes something must come from a page of this origin (CSRF).
//! - Requests are counted with those of the pages: withdrawals apart, and what ends all other sessions not at all.

use http::StatusCode;
use http::header::AUTHORIZATION;
use uuid::Uuid;

use super::Dashboard;
use super::counting::Counting;
use super::response::{self, DashboardResponse};
use crate::api::{self, Answer, Mount, Weight, document, find};
use crate::management;
use crate::management::{Actor, ManagementError, RouteError, SignedInUser};
use crate::request::ControlRequest;

/// Segments of the path of the API below the dashboard's.
const PATH: [&str; 2] = ["api", "v1"];
/// The same as a text.
const BASE: &str = "api/v1";

/// Path of the API on the origin of a dashboard.
pub(super) fn base(dashboard: &str) -> String {
    format!("{dashboard}/{BASE}")
}

/// Returns `true` if a path below the dashboard's belongs to the API: errors there are problems, and pages elsewhere.
pub(super) fn is_api(segments: &[&str]) -> bool {
    segments.first() == Some(&PATH[0])
}

/// Serves the API's description to anybody, and performs calls.
pub(super) async fn respond(dashboard: &Dashboard, request: &ControlRequest, segments: &[&str]) -> DashboardResponse {
    if let [_, "openapi.json"] | [_, "v1", "openapi.json"] = segments {
        return match request.route_method() {
            // Relative to its address, of which there are two.
            "GET" if segments.len() == 2 => {
                response::build(StatusCode::OK, "application/json", document(Mount::Browser))
            }
            "GET" => {
                let here = document(Mount::Browser).replacen(r#"[{"url":"v1"}]"#, r#"[{"url":"."}]"#, 1);
                response::build(StatusCode::OK, "application/json", here)
            }
            _ => problem(dashboard, request.id, &RouteError::new(["GET"].into_iter()).into()),
        };
    }
    let performed = perform(dashboard, request, segments).await;
    performed.unwrap_or_else(|error| problem(dashboard, request.id, &error))
}

async fn perform(
    dashboard: &Dashboard,
    request: &ControlRequest,
    segments: &[&str],
) -> Result<DashboardResponse, ManagementError> {
    let below = segments.strip_prefix(&PATH).ok_or(ManagementError::NotFound)?;
    let found = find(Mount::Browser, request.route_method(), below)?;
    let user = authenticate(dashboard, request).await?;
    dashboard.check_origin(request)?;
    let counting = match found.route.weight {
        Weight::Counted => Counting::Request,
        Weight::Withdrawal => Counting::Revocation,
        Weight::Free => Counting::Never,
    };
    let counted = dashboard.count_request(&user, counting, request.now)?;
    let performed = dashboard.api.perform(Actor::User(Box::new(user)), request, &found).await;
    let status = performed.as_ref().map_or_else(|error| error.kind().status(), Answer::status);
    dashboard.uncount_failed_revocation(counted, status);
    let answer = performed?;
    let ends_session = answer.ends_session;
    let response = response::secured(dashboard.api.respond(request, answer));
    Ok(if ends_session { response::without_session(response) } else { response })
}

/// The user whose session a request presents.
async fn authenticate(dashboard: &Dashboard, request: &ControlRequest) -> Result<SignedInUser, ManagementError> {
    let digest = request.session?;
    let Some(digest) = digest else {
        // The client tries an API key, and should learn that none is accepted here.
        let has_key = request.headers.contains_key(AUTHORIZATION);
        return Err(if has_key { ManagementError::KeyNotAccepted } else { ManagementError::SignedOut });
    };
    let found =
        management::authenticate_session(&dashboard.management, &digest, request.client.clone(), request.now).await?;
    found.ok_or(ManagementError::SessionEnded)
}

/// The response to a call that was not performed.
pub(super) fn problem(dashboard: &Dashboard, id: Uuid, error: &ManagementError) -> DashboardResponse {
    response::secured(api::problem(dashboard.management.problem_types(), id, Mount::Browser, error))
}
