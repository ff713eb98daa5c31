//! The error page, and the redirect of signed-out users to the sign-in page.

use askama::Template;
use uuid::Uuid;

use super::Dashboard;
use super::pages::Layout;
use super::response::{self, DashboardResponse};
use crate::management::ManagementError;
use crate::request::ControlRequest;

/// An error page.
#[derive(Clone, Debug, Template)]
#[template(path = "error.html")]
pub(super) struct ErrorPage {
    /// Page frame.
    pub(super) layout: Layout,
    /// Status of the response.
    pub(super) status: u16,
    /// A few words, as a heading.
    pub(super) title: &'static str,
    /// Description of the error.
    pub(super) description: String,
    /// Advice.
    pub(super) advice: &'static str,
    /// The button leads to the sign-in page, and not to the table of keys.
    pub(super) leads_to_sign_in: bool,
    /// Request id, which the operator finds in the log.
    pub(super) request_id: String,
}

impl Dashboard {
    /// The error page, without what depends on the request. Logs a failure of the server once, with the request id that
    /// users can quote; errors of identity providers were logged where the sign-in failed.
    pub(super) fn error_page(&self, id: Uuid, error: &ManagementError) -> DashboardResponse {
        let row = error.row();
        let status = row.kind.status();
        if status.is_server_error() && error.provider_error().is_none() {
            let cause = error.in_full();
            tracing::warn!(request_id = %id, reason = row.code, cause, "a request to the dashboard failed");
        }
        let page = ErrorPage {
            layout: Layout::without_viewer(&self.settings.path),
            status: status.as_u16(),
            title: row.title,
            description: error.page_description(),
            advice: row.advice,
            leads_to_sign_in: row.leads_to_sign_in,
            request_id: id.to_string(),
        };
        match page.render() {
            Ok(html) => response::page(status, html),
            // The page cannot be rendered, which may be the error itself.
            Err(_) => response::build(status, "text/plain; charset=utf-8", format!("{}\n", page.description)),
        }
    }

    /// The response to a request that failed: the error page with the fields that its status requires, or for a page
    /// opened without a session a redirect to the sign-in page, which leads back.
    pub(super) fn error_response(&self, request: &ControlRequest, error: &ManagementError) -> DashboardResponse {
        let page = self.error_page(request.id, error);
        match error {
            // A form cannot be sent again after signing in, so only what was opened is redirected.
            ManagementError::SignedOut if request.route_method() == "GET" => {
                response::see_other(&self.sign_in_address(request))
            }
            ManagementError::SignedOut => response::with_challenge(page),
            ManagementError::MethodNotAllowed(methods) => response::with_allow(page, methods),
            error => response::with_retry_after(page, error.retry_after()),
        }
    }

    /// The sign-in page's path, with the requested path and query as `return_to`.
    fn sign_in_address(&self, request: &ControlRequest) -> String {
        let mut return_to = format!("{}/{}", self.settings.path, request.path);
        if !request.query.is_empty() {
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&request.query).finish();
            return_to = format!("{return_to}?{query}");
        }
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("return_to", &return_to).finish();
        format!("{}/sign-in?{query}", self.settings.path)
    }
}
