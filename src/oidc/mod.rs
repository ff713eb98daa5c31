//! OpenID Connect, as a relying party: people sign in where their company already has them.
//!
//! ```text
//! Provider::begin    the address to send the browser to, and what must be remembered until it comes back
//! Provider::finish   what it came back with, exchanged and verified: who it is
//! Provider::sign_out_url   where to send it to be signed out there as well
//! ```
//!
//! - Authorization code flow (OpenID Connect Core 1.0, section 3.1) with PKCE S256 (RFC 7636), `state` and `nonce` of 256
//!   bits each, and the `iss` of the response (RFC 9207).
//! - ID tokens are believed only when signed, by a key of the provider, with an asymmetric algorithm of our list.
//! - The documents of a provider are read when they are needed first, kept for an hour, and may then change in all they
//!   say: its keys are read again as soon as a token names one that we do not know.
//! - No state of a sign-in is kept here, and no task outlives a call: a [`Provider`] serves any number of runtimes.
//! - No token, code, verifier or secret is in any text that an [`Error`] has.
//!
//! Parsing and verifying tokens and keys, and the address to sign in at, are `openidconnect`'s. The requests are our own:
//! what a provider says that we do not need must not be able to fail a sign-in, and what it says wrongly has a name.

mod provider;
mod settings;
mod authorization_request;
mod authorization_response;
mod code_exchange;
mod id_token;
mod userinfo;
mod verified_identity;
mod document_cache;
mod metadata;
mod http;
mod error;

pub use authorization_request::{AuthorizationRequest, PendingAuthorization};
pub use authorization_response::{AuthorizationResponse, InvalidAuthorizationResponse};
pub use error::{Error, Fault, InvalidProviderResponse, ProviderEndpoint};
pub use http::HttpError;
pub use provider::Provider;
pub use settings::{InvalidIssuer, Settings};
pub use verified_identity::VerifiedIdentity;
