//! What a page says when it cannot show what was asked for.

use askama::Template;

use super::frame::Frame;

/// What happened, what to do, and the way back.
#[derive(Clone, Debug, Template)]
#[template(path = "message.html")]
pub struct MessagePage {
    /// What is around it.
    pub frame: Frame,
    /// What happened.
    pub trouble: Trouble,
    /// The request id.
    pub request_id: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is no session, or it has ended.
    SessionExpired,
    /// The identity provider of this label does not answer.
    ProviderUnavailable(String),
    /// The provider or the gateway refused to sign the person in, for this reason: a whole sentence.
    SignInRefused(String),
    /// Sign-in came back too late, or in another browser than it began in.
    SignInLost,
    /// The person belongs to no organization here.
    NoOrganization,
    /// The person may not do this.
    NotAllowed,
    /// There is no such page, key or session for this person.
    NotFound,
    /// The state does not answer.
    StateUnavailable,
    /// The audit does not take records, or cannot be read.
    AuditUnavailable,
    /// A form was not as the page made it, for this reason: a whole sentence.
    BadForm(String),
    /// It cannot be with things as they are, for this reason: a whole sentence.
    Conflict(String),
    /// A sign-in link that was used, or is too old.
    LinkGone,
    /// A form that another site sent.
    CrossSite,
    /// The gateway failed.
    Internal,
}

/// A message, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<'a> {
    /// The status it is sent with.
    pub status: u16,
    /// What it is called.
    pub title: &'a str,
    /// What happened.
    pub happened: &'a str,
    /// What to do about it.
    pub advice: &'a str,
    /// Where the way back leads.
    pub back: Back,
}

/// The way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// To the table of keys.
    Keys,
    /// To the page where people sign in.
    SignIn,
}

impl Trouble {
    /// The status it is sent with.
    pub fn status(&self) -> u16 {
        self.words().status
    }

    /// The message.
    #[rustfmt::skip]
    pub fn words(&self) -> Words<'_> {
        use Back::{Keys, SignIn};
        match self {
            Self::SessionExpired => words(401, "Your session has ended",
                "You were signed out, or have not been here for a while.",
                "Sign in again. What was not saved has to be entered again.", SignIn),
            Self::ProviderUnavailable(_) => words(503, "Your identity provider does not answer",
                "Nobody can be signed in through it right now. Your API keys work as before.",
                "Try again in a minute. If it is urgent, ask the operator of this service for a sign-in link.", SignIn),
            Self::SignInRefused(reason) => words(403, "You could not be signed in", reason,
                "Try again. If it stays like this, tell an admin of your organization the request ID below.", SignIn),
            Self::SignInLost => words(400, "This sign-in cannot be finished",
                "It took too long, was finished already, or began in another browser.",
                "Begin again, and finish in the same browser.", SignIn),
            Self::NoOrganization => words(403, "You belong to no organization here",
                "You were recognized, but no organization has you as a user.",
                "Ask an admin of your organization to add you, then sign in again.", SignIn),
            Self::NotAllowed => words(403, "You may not do this",
                "This is for admins of the organization.",
                "Ask one of them, or manage the keys that are your own.", Keys),
            Self::NotFound => words(404, "There is nothing here",
                "The address is wrong, or what it led to is not yours to see.",
                "Check the address and the organization that you are in.", Keys),
            Self::StateUnavailable => words(503, "This cannot be done right now",
                "The gateway cannot reach the place where keys and sessions are kept. If you changed something, it may not have been made.",
                "Try again in a minute, and look in the table of keys whether it was made.", Keys),
            Self::AuditUnavailable => words(503, "This cannot be recorded right now",
                "Every change is recorded in the audit. That is not possible now, so nothing was changed.",
                "Try again in a minute. If it stays like this, tell the operator of this service.", Keys),
            Self::BadForm(reason) => words(400, "This form could not be read", reason,
                "Go back, reload the page and try again.", Keys),
            Self::Conflict(reason) => words(409, "This is not possible any more", reason,
                "Look at how things are now, then decide again.", Keys),
            Self::LinkGone => words(410, "This sign-in link does not work any more",
                "A link works once, and for five minutes only.",
                "Ask for another one, or sign in another way.", SignIn),
            Self::CrossSite => words(403, "This request came from another site",
                "Your browser said that another site sent it in your name, so nothing was done.",
                "If you meant to do it, do it on this site's own pages.", Keys),
            Self::Internal => words(500, "The gateway failed",
                "It could not finish this page. What you asked for may or may not have been done.",
                "Try again. If it stays like this, tell the operator of this service the request ID below.", Keys),
        }
    }

    /// Whose absence it is, where it is that of a provider.
    pub fn provider(&self) -> Option<&str> {
        match self {
            Self::ProviderUnavailable(label) => Some(label),
            _ => None,
        }
    }
}

impl Back {
    /// Whether it leads to the page where people sign in.
    pub fn is_sign_in(self) -> bool {
        self == Self::SignIn
    }
}

fn words<'a>(status: u16, title: &'a str, happened: &'a str, advice: &'a str, back: Back) -> Words<'a> {
    Words { status, title, happened, advice, back }
}
