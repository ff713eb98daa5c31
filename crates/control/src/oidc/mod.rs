//! OpenID Connect, as a relying party: users sign in with the identity provider of their company.
//!
//! ```text
//! Provider::begin_sign_in    builds the authorization request: the address to send the browser to
//! Provider::finish_sign_in   takes the authorization response, exchanges the code, and verifies the user's ID token
//! Provider::sign_out_url     the address to send the browser to, to sign the user out at the provider as well
//! Issuer::verify             verifies a token of a CI, which is exchanged for a key
//! ```
//!
//! - Authorization code flow (OpenID Connect Core 1.0, section 3.1) with PKCE S256 (RFC 7636), `state` and `nonce` of
//!   256 bits each, and the `iss` of the response (RFC 9207).
//! - An ID token is accepted only when it is signed, by a key of the provider, with an asymmetric
//!   algorithm of our list.
//! - A provider's discovery document and key set are read when they are first needed and cached for an hour. The key
//!   set is read again as soon as a token names an unknown key.
//! - No state of a sign-in is kept here, and no task outlives a call: a [`Provider`] serves any number of runtimes.
//! - No [`Error`] has a token, code, verifier or secret in its text.
//!
//! `aws-lc-rs` verifies signatures. The rest is our own, so that a member of a response that is not needed cannot fail
//! a sign-in, and one that is wrong has a name.

mod provider;
mod settings;
mod authorization_request;
mod authorization_response;
mod code_exchange;
mod jws;
mod jwt_verifier;
mod id_token;
mod verified_identity;
mod issuer;
mod subject_token;
mod key_set;
mod unfit_key;
mod key_cache;
mod document_cache;
mod metadata;
mod http;
mod error;
mod invalid_response;

pub use authorization_request::{AuthorizationRequest, PendingAuthorization, Prompt};
pub use authorization_response::AuthorizationResponse;
pub use document_cache::Examination;
pub use error::{Error, Fault};
pub(crate) use http::HttpClient;
pub use http::HttpError;
pub use invalid_response::{ErrorDescription, InvalidAuthorizationResponse, InvalidProviderResponse, ProviderEndpoint};
pub use issuer::Issuer;
pub(crate) use key_cache::KeyCache;
pub use provider::Provider;
pub(crate) use settings::parse_issuer;
pub use settings::{InvalidIssuer, Settings};
pub use subject_token::{SubjectToken, SubjectTokenError};
pub use unfit_key::UnfitKey;
pub use verified_identity::VerifiedIdentity;
