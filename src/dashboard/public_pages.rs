//! The pages for those who are not signed in, and those that say why there is no other.

use askama::{Error, Template as _};
use uuid::Uuid;

use super::error::ErrorText;
use super::pages::{
    ErrorPage, Layout, LeavingPage, LinkPage, NavEntry, NextStep, ProviderChoice, SignInPage, SignedOutPage, Timestamp,
};
use super::settings::{ProviderSettings, Settings};
use crate::clock::Micros;
use crate::management::LinkPreview;

/// Where to sign in.
pub(super) fn sign_in(settings: &Settings, return_to: String, ended: bool) -> Result<String, Error> {
    let choice = |provider: &ProviderSettings| ProviderChoice {
        name: provider.oidc.name.clone(),
        label: provider.oidc.label.clone(),
    };
    let providers = settings.providers.iter().map(choice).collect();
    let notice = ended.then(|| "Your session has ended. Sign in to go on.".to_owned());
    let layout = Layout { notice, ..layout(&settings.path) };
    SignInPage { layout, providers, links: settings.links, return_to }.render()
}

/// On the way to an identity provider. It is no redirect, because browsers hold `form-action` against where a form's
/// answer redirects to as well.
pub(super) fn leaving(base: &str, label: &str, url: String, signing_out: bool) -> Result<String, Error> {
    LeavingPage { layout: layout(base), label: label.to_owned(), url, signing_out }.render()
}

/// Before a link is taken.
pub(super) fn link(base: &str, offer: LinkPreview, now: Micros) -> Result<String, Error> {
    let LinkPreview { email, org, expires } = offer;
    LinkPage { layout: layout(base), email, org, expires: Timestamp::of(expires, now) }.render()
}

/// After the end of a session.
pub(super) fn signed_out(base: &str) -> Result<String, Error> {
    SignedOutPage { layout: layout(base) }.render()
}

/// Why there is no other page.
pub(super) fn failure(base: &str, words: &ErrorText, back: NextStep, id: Uuid) -> Result<String, Error> {
    let page = ErrorPage {
        layout: layout(base),
        status: words.status.as_u16(),
        title: words.title.to_owned(),
        happened: words.happened.clone(),
        advice: words.advice.to_owned(),
        back,
        request_id: id.to_string(),
    };
    page.render()
}

/// What is around a page of nobody.
fn layout(base: &str) -> Layout {
    Layout { base: base.to_owned(), person: None, section: NavEntry::Elsewhere, notice: None }
}
