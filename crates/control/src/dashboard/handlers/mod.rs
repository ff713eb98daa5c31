//! Page handlers: load data from `management`, or perform the form's operation, and render.
//!
//! - Handlers of signing in and out take the [`Dashboard`]; they work without a session. All others take a
//!   [`PageContext`], which has the signed-in user.
//! - `management` authorizes: a handler shows whatever it returns to this user, and decides nothing about permissions.

use std::error::Error as _;

use http::StatusCode;

use super::Dashboard;
use super::endpoints::{PageEndpoint, SignInEndpoint};
use super::pages::{Layout, NavEntry, OrgChoice, Timestamp, Viewer};
use super::request_examples::RequestExamples;
use super::response::{self, DashboardResponse};
use crate::management;
use crate::management::{Actor, ErrorKind, Management, ManagementError, SignedInUser};
use crate::request::ControlRequest;
use domain::clock::Micros;
use domain::key::KeyId;
use domain::page::{PageLimit, PageQuery};

mod sign_in;
mod provider;
mod silent;
mod overview;
mod keys;
mod key;
mod create_key;
mod new_key;
mod policy_form;
mod key_policy;
mod selected_keys;
mod revoke_key;
mod rotate_key;
mod audit;
mod users;
mod people;
mod sessions;
mod tokens;
mod create_token;

/// Value of the parameter `done` for a key that too few replicas have confirmed.
const UNCONFIRMED: &str = "unconfirmed";

/// The result of a handler.
type HandlerResult = Result<DashboardResponse, ManagementError>;

/// A request for a page, with the user who sent it and what its handler needs.
pub(super) struct PageContext<'a> {
    management: &'a Management,
    request: &'a ControlRequest,
    user: &'a SignedInUser,
    /// The user, as the actor of operations.
    actor: Actor,
    /// Path that all pages are below, without a slash at its end.
    base: &'a str,
    request_examples: &'a RequestExamples,
}

/// Handles a step of signing in or out. `value` is the segment at the place of the route's braces.
pub(super) async fn sign_in(
    dashboard: &Dashboard,
    request: &ControlRequest,
    endpoint: SignInEndpoint,
    value: &str,
) -> HandlerResult {
    dashboard.check_origin(request)?;
    match endpoint {
        SignInEndpoint::ShowProviders => dashboard.show_providers(request).await,
        SignInEndpoint::FindProvider => dashboard.find_provider(request).await,
        SignInEndpoint::BeginSignIn => dashboard.begin_sign_in(request, value).await,
        // A callback redeems its sign-in, so `HEAD` is not safe here.
        SignInEndpoint::FinishSignIn if request.is_head() => {
            Err(ManagementError::MethodNotAllowed("GET, HEAD".to_owned()))
        }
        SignInEndpoint::FinishSignIn => dashboard.finish_sign_in(request, value).await,
        SignInEndpoint::ShowLink => dashboard.show_link(request, value).await,
        SignInEndpoint::RedeemLink => dashboard.redeem_link(request, value).await,
        SignInEndpoint::SignOut => dashboard.sign_out(request).await,
        SignInEndpoint::ShowSignedOut => dashboard.show_signed_out(),
        SignInEndpoint::ChooseOrg => dashboard.choose_org(request).await,
    }
}

/// Handles a page or form for signed-in users. `value` is the segment at the place of the route's braces.
pub(super) async fn page(
    dashboard: &Dashboard,
    request: &ControlRequest,
    endpoint: PageEndpoint,
    value: &str,
) -> HandlerResult {
    dashboard.check_origin(request)?;
    let user = dashboard.require_user(request).await?;
    let counted = dashboard.count_request(&user, endpoint.counting(), request.now)?;
    let result = perform(dashboard, request, &user, endpoint, value).await;
    let status = result.as_ref().map_or_else(|error| error.kind().status(), |response| response.status());
    dashboard.uncount_failed_revocation(counted, status);
    result
}

async fn perform(
    dashboard: &Dashboard,
    request: &ControlRequest,
    user: &SignedInUser,
    endpoint: PageEndpoint,
    value: &str,
) -> HandlerResult {
    let context = PageContext {
        management: &dashboard.management,
        request,
        actor: Actor::User(Box::new(user.clone())),
        user,
        base: &dashboard.settings.path,
        request_examples: &dashboard.request_examples,
    };
    match endpoint {
        PageEndpoint::Home => {
            let first = if context.user.is_admin() { "overview" } else { "keys" };
            Ok(response::see_other(&format!("{}/{first}", context.base)))
        }
        PageEndpoint::ShowOverview => overview::show_overview(&context).await,
        PageEndpoint::ListKeys => keys::list_keys(&context).await,
        PageEndpoint::SearchKeys => keys::search_keys(&context).await,
        PageEndpoint::ShowCreateKey => create_key::show_create_key(&context).await,
        PageEndpoint::CreateKey => create_key::create_key(&context).await,
        PageEndpoint::ShowKey => key::show_key(&context, value).await,
        PageEndpoint::ShowSelectedKeys => selected_keys::show_selected_keys(&context).await,
        PageEndpoint::ChangeSelectedKeys => selected_keys::change_selected_keys(&context).await,
        PageEndpoint::ShowKeyPolicy => key_policy::show_key_policy(&context, value).await,
        PageEndpoint::SetKeyPolicy => key_policy::set_key_policy(&context, value).await,
        PageEndpoint::DisableKey => key_policy::disable_key(&context, value).await,
        PageEndpoint::EnableKey => key_policy::enable_key(&context, value).await,
        PageEndpoint::ShowRevokeKey => revoke_key::show_revoke_key(&context, value, None).await,
        PageEndpoint::RevokeKey => revoke_key::revoke_key(&context, value).await,
        PageEndpoint::ShowNewKey => new_key::show_new_key(&context, value).await,
        PageEndpoint::ShowRotateKey => rotate_key::show_rotate_key(&context, value).await,
        PageEndpoint::RotateKey => rotate_key::rotate_key(&context, value).await,
        PageEndpoint::ListChanges => audit::list_changes(&context).await,
        PageEndpoint::ListUsers => users::list_users(&context).await,
        PageEndpoint::ShowAddUser => people::show_add_user(&context).await,
        PageEndpoint::AddUser => people::add_user(&context).await,
        PageEndpoint::ShowUser => people::show_user(&context, value).await,
        PageEndpoint::PermitUser => people::permit_user(&context, value).await,
        PageEndpoint::CreateLink => people::create_link(&context, value).await,
        PageEndpoint::RemoveUser => people::remove_user(&context, value).await,
        PageEndpoint::ShowSuspendUser => users::show_suspend_user(&context, value).await,
        PageEndpoint::SuspendUser => users::suspend_user(&context, value).await,
        PageEndpoint::ResumeUser => users::resume_user(&context, value).await,
        PageEndpoint::ListSessions => sessions::list_sessions(&context).await,
        PageEndpoint::EndOtherSessions => sessions::end_other_sessions(&context).await,
        PageEndpoint::EndSession => sessions::end_session(&context, value).await,
        PageEndpoint::ListTokens => tokens::list_tokens(&context).await,
        PageEndpoint::ShowCreateToken => create_token::show_create_token(&context).await,
        PageEndpoint::CreateToken => create_token::create_token(&context).await,
        PageEndpoint::ShowNewToken => new_key::show_new_token(&context, value).await,
        PageEndpoint::ShowRevokeToken => tokens::show_revoke_token(&context, value).await,
        PageEndpoint::RevokeToken => tokens::revoke_token(&context, value).await,
    }
}

impl PageContext<'_> {
    /// Turns a journal that cannot be read, or not now, into `None`: the rest of the page is shown without it. `what`
    /// names the data in the log.
    fn if_readable<T>(
        &self,
        read: Result<T, ManagementError>,
        what: &'static str,
    ) -> Result<Option<T>, ManagementError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TooMany) => {
                let cause = error.source().map(ToString::to_string);
                tracing::warn!(request_id = %self.request.id, %error, cause, "page shown without {what}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The chosen organization, as operations take it.
    fn org(&self) -> String {
        self.user.org.id.to_string()
    }

    async fn layout(&self, nav: NavEntry) -> Result<Layout, ManagementError> {
        let orgs = management::accessible_orgs(self.management, self.user).await?;
        let choice = |(id, name): (domain::identity::OrgId, String)| OrgChoice {
            id: id.to_string(),
            name,
            current: id == self.user.org.id,
        };
        let viewer = Viewer {
            email: self.user.user.email.clone(),
            admin: self.user.is_admin(),
            org: self.user.org.name.clone(),
            orgs: orgs.into_iter().map(choice).collect(),
        };
        Ok(Layout { base: self.base.to_owned(), viewer: Some(viewer), nav, notice: self.notice() })
    }

    /// The confirmation of a form that redirected to this page, by its parameter `done`.
    fn notice(&self) -> Option<String> {
        let text = match self.request.parameter("done")? {
            "revoked" => "The key is revoked. Requests with it are refused from now on.",
            "set" => "The policy of the key is changed. It holds from the next request on.",
            "revoked-selected" => "The selected keys are revoked. Requests with them are refused from now on.",
            "disabled-selected" => {
                "The selected keys are disabled. Requests with them are refused until they are enabled."
            }
            "shown" => "A new key is shown on one page, once. If it was not saved, rotate the key.",
            UNCONFIRMED => {
                "The key is made, but too few replicas confirmed it in time: a failover may undo it. Look whether it \
                 is still there before you rely on it."
            }
            "suspended" => "The user is suspended. Requests of the user are refused from now on.",
            "added" => "The person is added. Send a sign-in link, if there is no provider to sign in with.",
            "permitted" => "The permissions are changed. They hold from the next request on.",
            "removed" => "The person is removed. Requests of the person are refused from now on.",
            "resumed" => "The user is resumed. The keys work again; the user has to sign in anew.",
            "ended" => "The session is ended.",
            "ended-others" => "All your other sessions are ended.",
            "revoked-token" => "The token is revoked. Calls with it are refused from now on.",
            "shown-token" => {
                "A new token is shown on one page, once. If it was not saved, revoke it and create another one."
            }
            _ => return None,
        };
        Some(text.to_owned())
    }

    /// The page of a list that the request asks for, by the parameter `cursor`; the first one by default.
    fn page_query(&self, limit: PageLimit) -> PageQuery {
        let cursor = self.request.parameter("cursor").filter(|cursor| !cursor.is_empty());
        PageQuery { cursor: cursor.map(str::to_owned), limit }
    }

    fn timestamp(&self, time: Micros) -> Timestamp {
        Timestamp::new(time, self.request.now)
    }
}

/// Renders a page.
fn render(page: &impl askama::Template) -> HandlerResult {
    Ok(response::page(StatusCode::OK, page.render()?))
}

/// Renders a form; with an error in it, the status is 422.
fn render_form(page: &impl askama::Template, has_error: bool) -> HandlerResult {
    let status = if has_error { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(response::page(status, page.render()?))
}

/// The key id in a path. A text that cannot be an id names no page.
fn key_id(text: &str) -> Result<KeyId, ManagementError> {
    text.parse().map_err(|_| ManagementError::NotFound)
}
