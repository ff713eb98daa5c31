//! The pages of signing in and out.

use askama::Template;

use super::layout::Layout;
use super::timestamp::Timestamp;

/// The choice of identity providers: a button for each that is listed, and a form that finds others by an email
/// address. Fields: `return_to`, `email`.
#[derive(Clone, Debug, Template)]
#[template(path = "sign_in.html")]
pub struct SignInPage {
    /// Page frame.
    pub layout: Layout,
    /// Providers with a button, in the order of the configuration.
    pub providers: Vec<ProviderChoice>,
    /// True if any provider is configured.
    pub has_providers: bool,
    /// True if there are providers that are found by an email address.
    pub by_email: bool,
    /// The address that was submitted.
    pub email: String,
    /// Error in the address.
    pub error: Option<&'static str>,
    /// True if sign-in links are accepted.
    pub links: bool,
    /// Path to go to after signing in.
    pub return_to: String,
}

/// An identity provider.
#[derive(Clone, Debug)]
pub struct ProviderChoice {
    /// Name in paths.
    pub name: String,
    /// Name on the button.
    pub label: String,
}

/// The step to a provider's own page, on another origin. The page refreshes to the provider's address: a redirect would
/// be blocked by `form-action 'self'`, which browsers apply to redirects of forms as well.
#[derive(Clone, Debug, Template)]
#[template(path = "leaving.html")]
pub struct LeavingPage {
    /// Page frame.
    pub layout: Layout,
    /// The provider's label.
    pub label: String,
    /// Address at the provider.
    pub url: String,
    /// True if the user is signing out at the provider, rather than in.
    pub signing_out: bool,
}

/// The confirmation before a sign-in link is redeemed, so that link previews do not use it up. The form is submitted to
/// the page's own address.
#[derive(Clone, Debug, Template)]
#[template(path = "link.html")]
pub struct LinkPage {
    /// Page frame.
    pub layout: Layout,
    /// Email address of the user that the link signs in.
    pub email: String,
    /// Name of the organization.
    pub org: String,
    /// Expiry of the link.
    pub expires: Timestamp,
}

/// The page after signing out.
#[derive(Clone, Debug, Template)]
#[template(path = "signed_out.html")]
pub struct SignedOutPage {
    /// Page frame.
    pub layout: Layout,
}
