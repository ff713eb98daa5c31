//! Signing in without a click: where the only identity provider has a live session of the user, opening the dashboard
//! is enough (`prompt=none`, OpenID Connect Core 1.0, section 3.1.2.1).
//!
//! A loop is impossible, and a sign-out stays one:
//!
//! - There is one try for each visit: the browser gets a cookie with it that rules out another one,
//!   until the user signs in.
//! - A try that fails leads to the sign-in page by an address that rules out another one, too, whatever
//!   became of the cookie.
//! - Signing out sets the cookie for a year. A browser with the cookie of a session that has ended does not try either:
//!   who left a computer alone is not signed in again by the next person at it.

use super::HandlerResult;
use crate::dashboard::Dashboard;
use crate::dashboard::response::{self, DashboardResponse};
use crate::oidc::Prompt;
use crate::request::ControlRequest;
use domain::session;

/// Parameter of the sign-in page's address after a try that failed.
const TRIED: &str = "tried";

impl Dashboard {
    /// Leads to the provider without showing a page, where that may succeed; `None`: the sign-in page is to be shown.
    pub(super) async fn try_silently(&self, request: &ControlRequest, return_to: &str) -> Option<DashboardResponse> {
        let [provider] = &self.settings.providers[..] else { return None };
        if !may_try(request) || self.count_attempt(request).is_err() {
            return None;
        }
        match self.lead_to_provider(request, &provider.oidc.name, return_to, Prompt::Never).await {
            Ok(page) => Some(response::without_silent_sign_in(page)),
            Err(error) => {
                tracing::info!(request_id = %request.id, error = error.in_full(), "no sign-in without a click");
                None
            }
        }
    }

    /// The sign-in page after a try that failed. `return_to` was validated when the try began.
    pub(super) fn redirect_after_try(&self, return_to: &str) -> HandlerResult {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("return_to", return_to).append_pair(TRIED, "1");
        Ok(response::see_other(&format!("{}/sign-in?{}", self.settings.path, query.finish())))
    }
}

/// Returns whether a request opens the dashboard in a browser that may try.
fn may_try(request: &ControlRequest) -> bool {
    let field = |name| request.headers.get(name).map(|value| value.as_bytes());
    // Fetch Metadata: a page that a person opens, and neither a frame nor a page that is loaded ahead.
    let opens_page = field("sec-fetch-mode") == Some(b"navigate") && field("sec-fetch-dest") == Some(b"document");
    opens_page
        && field("sec-purpose").is_none()
        && !request.is_head()
        && request.session == Ok(None)
        && request.parameter(TRIED).is_none()
        && session::read_cookie(&request.headers, session::NO_SILENT_COOKIE_NAME) == Ok(None)
}
