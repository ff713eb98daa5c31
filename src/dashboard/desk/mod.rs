//! What is behind the pages: each asks management what it shows, or has it do what a form says.

use std::error::Error as _;

use http::StatusCode;

use super::answer::{self, Answer};
use super::failed::Failed;
use super::pages::{self, Frame, OrgChoice, Section, When};
use super::visit::Visit;
use super::{Dashboard, OK, Samples};
use crate::clock::Micros;
use crate::management::{Actor, ErrorKind, Management, Operation, Reply, SignedInUser};

mod keys;
mod key;
mod change;
mod sessions;

/// What a page needs to be made: who asks, what, and whom.
pub(super) struct Desk<'a> {
    management: &'a Management,
    visit: &'a Visit,
    person: &'a SignedInUser,
    actor: Actor,
    /// The path that all pages are below.
    base: &'a str,
    /// What a new key can be tried at.
    samples: &'a Samples,
}

/// The answer to what belongs to a signed-in person.
pub(super) async fn answer(dashboard: &Dashboard, visit: &Visit, segments: &[&str]) -> Result<Answer, Failed> {
    let known = matches!(segments, [""] | ["keys" | "sessions", ..]);
    if !known {
        return Err(Failed::NotFound);
    }
    let person = dashboard.person(visit).await?.ok_or(Failed::SignedOut)?;
    let desk = Desk {
        management: &dashboard.management,
        visit,
        actor: Actor::User(Box::new(person.clone())),
        person: &person,
        base: &dashboard.settings.path,
        samples: &dashboard.samples,
    };
    desk.answer(segments).await
}

impl Desk<'_> {
    async fn answer(&self, segments: &[&str]) -> Result<Answer, Failed> {
        match (self.visit.verb(), segments) {
            ("GET", [""]) => Ok(answer::see_other(&format!("{}/keys", self.base))),
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
            (_, [""] | ["keys" | "sessions"] | ["keys", _]) => Err(Failed::Method("GET, HEAD")),
            (_, ["keys", _, "revoke" | "rotate"]) => Err(Failed::Method("GET, HEAD, POST")),
            (_, ["sessions", _, "end"]) => Err(Failed::Method("POST")),
            _ => Err(Failed::NotFound),
        }
    }

    /// Has something done for the person.
    async fn perform(&self, operation: Operation) -> Result<Reply, Failed> {
        Ok(self.management.perform_as(&self.actor, operation, self.visit.now).await?)
    }

    /// What the journal says; none when it cannot be read, which is no reason to show nothing else.
    fn if_readable<T>(&self, read: Result<T, Failed>, what: &'static str) -> Result<Option<T>, Failed> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(Failed::Management(error)) if error.kind() == ErrorKind::Unavailable => {
                let cause = error.source().map(ToString::to_string);
                tracing::warn!(request_id = %self.visit.id, %error, cause, "{what} is not shown");
                Ok(None)
            }
            Err(failed) => Err(failed),
        }
    }

    /// The chosen organization, as operations name it.
    fn org(&self) -> String {
        self.person.org.id.to_string()
    }

    async fn frame(&self, section: Section) -> Result<Frame, Failed> {
        let names = self.management.accessible_orgs(self.person).await?;
        let choice = |(id, name): (crate::identity::OrgId, String)| OrgChoice {
            id: id.to_string(),
            name,
            current: id == self.person.org.id,
        };
        let person = pages::Person {
            email: self.person.user.email.clone(),
            admin: self.person.is_admin(),
            org: self.person.org.name.clone(),
            orgs: names.into_iter().map(choice).collect(),
        };
        Ok(Frame { base: self.base.to_owned(), person: Some(person), section, notice: self.notice() })
    }

    /// What was just done, as the page before says.
    fn notice(&self) -> Option<String> {
        let said = match self.visit.parameter("done")? {
            "revoked" => "The key is revoked: it is refused from now on.",
            "ended" => "The session is ended.",
            _ => return None,
        };
        Some(said.to_owned())
    }

    fn when(&self, text: &str) -> When {
        When::of(text.parse().unwrap_or(Micros(0)), self.visit.now)
    }
}

/// A page that was asked for.
fn page(page: &impl askama::Template) -> Result<Answer, Failed> {
    Ok(answer::page(OK, page.render()?))
}

/// A form that is shown again, with what is wrong with it.
fn form_again(page: &impl askama::Template, error: bool) -> Result<Answer, Failed> {
    let status = if error { StatusCode::UNPROCESSABLE_ENTITY } else { OK };
    Ok(answer::page(status, page.render()?))
}
