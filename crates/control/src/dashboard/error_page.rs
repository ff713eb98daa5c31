//! Error pages, and the redirect of signed-out users to the sign-in page.

use askama::Template as _;
use uuid::Uuid;

use super::Dashboard;
use super::error::DashboardError;
use super::error_text::ErrorText;
use super::pages::{ErrorPage, Layout, NextStep};
use super::response::{self, DashboardResponse};
use crate::request::ControlRequest;

impl Dashboard {
    /// The error page, without what depends on the request.
    pub(super) fn error_page(&self, id: Uuid, error: &DashboardError) -> DashboardResponse {
        let text = error.text();
        error.log(id, text.status);
        let next = if error.leads_to_sign_in() { NextStep::SignIn } else { NextStep::Keys };
        match render(&self.settings.path, &text, next, id) {
            Ok(page) => response::page(text.status, page),
            // The page cannot be rendered, which may be the error itself.
            Err(_) => response::build(text.status, "text/plain; charset=utf-8", format!("{}\n", text.description)),
        }
    }

    /// The response to a request that failed: the error page with the fields that its status requires, or for a page
    /// opened without a session a redirect to the sign-in page, which leads back.
    pub(super) fn error_response(&self, request: &ControlRequest, error: &DashboardError) -> DashboardResponse {
        let page = self.error_page(request.id, error);
        match error {
            // A form cannot be sent again after signing in, so only what was opened is redirected.
            DashboardError::SignedOut if request.route_method() == "GET" => {
                response::see_other(&self.sign_in_address(request))
            }
            DashboardError::SignedOut => response::with_challenge(page),
            DashboardError::MethodNotAllowed(methods) => response::with_allow(page, methods),
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

fn render(base: &str, text: &ErrorText, next: NextStep, id: Uuid) -> askama::Result<String> {
    let page = ErrorPage {
        layout: Layout::without_viewer(base),
        status: text.status.as_u16(),
        title: text.title.to_owned(),
        description: text.description.clone(),
        advice: text.advice.to_owned(),
        next,
        request_id: id.to_string(),
    };
    page.render()
}
