//! The pages on the way in and out.

use askama::Template;

use super::layout::Layout;
use super::timestamp::Timestamp;

/// Where a person chooses how to sign in: one button per provider, field `return_to`.
#[derive(Clone, Debug, Template)]
#[template(path = "sign_in.html")]
pub struct SignInPage {
    /// What is around it.
    pub layout: Layout,
    /// The providers, in the order of the configuration.
    pub providers: Vec<ProviderChoice>,
    /// Whether sign-in links are made here.
    pub links: bool,
    /// The path to go on with.
    pub return_to: String,
}

/// An identity provider.
#[derive(Clone, Debug)]
pub struct ProviderChoice {
    /// Its name in addresses.
    pub name: String,
    /// What people call it.
    pub label: String,
}

/// The step to a provider's own page, on another origin. `form-action 'self'` keeps a form from being redirected there,
/// so this page leads there by itself.
#[derive(Clone, Debug, Template)]
#[template(path = "leaving.html")]
pub struct LeavingPage {
    /// What is around it.
    pub layout: Layout,
    /// What people call the place.
    pub label: String,
    /// Its address.
    pub url: String,
    /// Whether the person is signing out there, and not in.
    pub signing_out: bool,
}

/// The question that a sign-in link asks, so that opening it alone, as previews of messages do, uses nothing up. The
/// answer is a form sent to the page's own address.
#[derive(Clone, Debug, Template)]
#[template(path = "link.html")]
pub struct LinkPage {
    /// What is around it.
    pub layout: Layout,
    /// Who would be signed in.
    pub email: String,
    /// To which organization.
    pub org: String,
    /// Until when the link works.
    pub expires: Timestamp,
}

/// The end.
#[derive(Clone, Debug, Template)]
#[template(path = "signed_out.html")]
pub struct SignedOutPage {
    /// What is around it.
    pub layout: Layout,
}
