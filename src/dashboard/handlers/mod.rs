//! What is behind the pages: each asks management what it shows, or has it do what a form says.

use std::error::Error as _;

use http::StatusCode;

use super::error::DashboardError;
use super::pages::{self, Layout, NavEntry, OrgChoice, Timestamp};
use super::request::DashboardRequest;
use super::response::{self, DashboardResponse};
use super::{CurlExamples, Dashboard, OK};
use crate::clock::Micros;
use crate::management::{Actor, ErrorKind, Management, Operation, Reply, SignedInUser};

mod keys;
mod key;
mod key_forms;
mod sessions;

/// What a page needs to be made: who asks, what, and whom.
pub(super) struct PageContext<'a> {
    management: &'a Management,
    request: &'a DashboardRequest,
    person: &'a SignedInUser,
    actor: Actor,
    /// The path that all pages are below.
    base: &'a str,
    /// What a new key can be tried at.
    curl_examples: &'a CurlExamples,
}

/// The answer to what belongs to a signed-in person.
pub(super) async fn answer(
    dashboard: &Dashboard,
    request: &DashboardRequest,
    segments: &[&str],
) -> Result<DashboardResponse, DashboardError> {
    let known = matches!(segments, [""] | ["keys" | "sessions", ..]);
    if !known {
        return Err(DashboardError::NotFound);
    }
    let person = dashboard.person(request).await?.ok_or(DashboardError::SignedOut)?;
    let desk = PageContext {
        management: &dashboard.management,
        request,
        actor: Actor::User(Box::new(person.clone())),
        person: &person,
        base: &dashboard.settings.path,
        curl_examples: &dashboard.curl_examples,
    };
    desk.answer(segments).await
}

impl PageContext<'_> {
    async fn answer(&self, segments: &[&str]) -> Result<DashboardResponse, DashboardError> {
        match (self.request.verb(), segments) {
            ("GET", [""]) => Ok(response::see_other(&format!("{}/keys", self.base))),
            ("GET", ["keys"]) => self.keys().await,
            ("GET", ["keys", "new"]) => self.offer_create().await,
            ("POST", ["keys", "new"]) => self.create().await,
            ("GET", ["keys", id]) => self.key(id).await,
            ("GET", ["keys", id, "revoke"]) => self.offer_revoke(id, None).await,
            ("POST", ["keys", id, "revoke"]) => self.revoke(id).await,
            ("GET", ["keys", id, "rotate"]) => self.offer_rotate(id, None).await,
            ("POST", ["keys", id, "rotate"]) => self.rotate(id).await,
            ("GET", ["sessions"]) => self.sessions().await,
            ("POST", ["sessions", id, "end"]) => self.end_session(id).await,
            (_, [""] | ["keys" | "sessions"] | ["keys", _]) => Err(DashboardError::Method("GET, HEAD")),
            (_, ["keys", _, "revoke" | "rotate"]) => Err(DashboardError::Method("GET, HEAD, POST")),
            (_, ["sessions", _, "end"]) => Err(DashboardError::Method("POST")),
            _ => Err(DashboardError::NotFound),
        }
    }

    /// Has something done for the person.
    async fn perform(&self, operation: Operation) -> Result<Reply, DashboardError> {
        Ok(self.management.perform_as(&self.actor, operation, self.request.now).await?)
    }

    /// What the journal says; none when it cannot be read, which is no reason to show nothing else.
    fn if_readable<T>(&self, read: Result<T, DashboardError>, what: &'static str) -> Result<Option<T>, DashboardError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(DashboardError::Management(error)) if error.kind() == ErrorKind::Unavailable => {
                let cause = error.source().map(ToString::to_string);
                tracing::warn!(request_id = %self.request.id, %error, cause, "{what} is not shown");
                Ok(None)
            }
            Err(failed) => Err(failed),
        }
    }

    /// The chosen organization, as operations name it.
    fn org(&self) -> String {
        self.person.org.id.to_string()
    }

    async fn layout(&self, section: NavEntry) -> Result<Layout, DashboardError> {
        let names = self.management.accessible_orgs(self.person).await?;
        let choice = |(id, name): (crate::identity::OrgId, String)| OrgChoice {
            id: id.to_string(),
            name,
            current: id == self.person.org.id,
        };
        let person = pages::Viewer {
            email: self.person.user.email.clone(),
            admin: self.person.is_admin(),
            org: self.person.org.name.clone(),
            orgs: names.into_iter().map(choice).collect(),
        };
        Ok(Layout { base: self.base.to_owned(), person: Some(person), section, notice: self.notice() })
    }

    /// What was just done, as the page before says.
    fn notice(&self) -> Option<String> {
        let said = match self.request.parameter("done")? {
            "revoked" => "The key is revoked: it is refused from now on.",
            "ended" => "The session is ended.",
            _ => return None,
        };
        Some(said.to_owned())
    }

    fn when(&self, time: Micros) -> Timestamp {
        Timestamp::of(time, self.request.now)
    }
}

/// A page that was asked for.
fn page(page: &impl askama::Template) -> Result<DashboardResponse, DashboardError> {
    Ok(response::page(OK, page.render()?))
}

/// A form that is shown again, with what is wrong with it.
fn form_again(page: &impl askama::Template, error: bool) -> Result<DashboardResponse, DashboardError> {
    let status = if error { StatusCode::UNPROCESSABLE_ENTITY } else { OK };
    Ok(response::page(status, page.render()?))
}
