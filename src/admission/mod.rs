//! Admission: reads the credential, finds the route, and asks the state for one decision.
//!
//! - All or nothing: when a request is denied, nothing was taken for it.
//! - A key of our own format is checked by its checksum first, so garbage costs no hash and no look-up.
//! - A web session decides as a key of its person would; it is read anew for each request.
//! - A request that no listed route matches is decided like any other, with a permission that nobody has: bad keys are
//!   told so, good ones learn that there is no such route.

pub mod bearer;
mod credential;
mod routes;
mod settings;

use std::sync::Arc;

use http::request::Parts;

use crate::clock::Micros;
use crate::identity::Principal;
use crate::metrics::Metrics;
use crate::quota::RateLimitStatus;
use crate::session::TokenDigest;
use crate::state::{Admitted, DecideRequest, Decision, Refusal, State, Unavailable, session_quota_digest};

use credential::{Credential, CredentialError};
pub use routes::{Route, Routes};
pub use settings::RouteSettings;

/// Decides who may enter.
#[derive(Debug)]
pub struct Admission {
    state: Arc<State>,
    routes: Routes,
    /// The origin of the pages whose users may use web sessions; none: sessions are no credential.
    sessions: Option<Box<str>>,
    metrics: Metrics,
}

/// What is said of a request.
#[derive(Debug)]
pub struct Authorization<'a> {
    /// What the request is.
    pub route: &'a Route,
    /// Whether it may.
    pub result: Result<Admitted, Denial>,
}

/// Why a request is denied.
#[derive(Debug)]
pub enum Denial {
    /// No credential, or one of another scheme.
    NoCredential,
    /// Two credentials, or an empty one.
    BadCredential(&'static str),
    /// A credential that cannot be a key.
    Malformed,
    /// A session that has ended, or never was.
    NoSession,
    /// A session's cookie on an unsafe request that no page of ours sent.
    CrossSite,
    /// The state's refusal.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whose key it is, when it is known.
        principal: Option<Arc<Principal>>,
        /// Where they stand, when they are authenticated.
        rate_limit: Option<RateLimitStatus>,
    },
    /// The state does not answer.
    StateUnavailable,
}

impl Admission {
    /// Admission by these routes and this state.
    pub fn new(state: Arc<State>, routes: Routes, metrics: Metrics) -> Self {
        Self { state, routes, sessions: None, metrics }
    }

    /// The same, where web sessions are credentials, too: those of pages of this origin.
    #[must_use]
    pub fn with_sessions(self, origin: &str) -> Self {
        Self { sessions: Some(origin.into()), ..self }
    }

    /// What this request is, and whether it may.
    pub async fn authorize(&self, head: &Parts, now: Micros) -> Authorization<'_> {
        let route = self.routes.find(head);
        let result = match credential::of(head, self.sessions.as_deref()) {
            Ok(Credential::Key(key)) => {
                self.decide(
                    DecideRequest { digest: &key.digest, id: key.id, required: route.permission.as_ref(), now },
                    route,
                )
                .await
            }
            Ok(Credential::Session(digest)) => self.decide_session(&digest, route, now).await,
            Err(error) => Err(self.deny_credential(error)),
        };
        Authorization { route, result }
    }

    /// Reads the session, then decides as for a key of the person in the chosen organization. The session is read in each
    /// request, so that one that was ended anywhere is refused from the next request on.
    async fn decide_session(&self, digest: &TokenDigest, route: &Route, now: Micros) -> Result<Admitted, Denial> {
        let timer = self.metrics.state.session.start_timer();
        let session = self.state.session(digest, now).await;
        timer.observe_duration();
        let user = session.map_err(|unavailable| self.unanswered(unavailable))?.and_then(|session| session.user());
        let Some(user) = user else { return Err(self.no_session()) };
        let digest = session_quota_digest(user);
        match self
            .decide(DecideRequest { digest: &digest, id: None, required: route.permission.as_ref(), now }, route)
            .await
        {
            Err(Denial::Refused { principal: None, .. }) => Err(Denial::NoSession),
            decided => decided,
        }
    }

    async fn decide(&self, ask: DecideRequest<'_>, route: &Route) -> Result<Admitted, Denial> {
        let timer = self.metrics.state.decide.start_timer();
        let decision = self.state.decide(ask).await;
        timer.observe_duration();
        match decision {
            Ok(Decision::Admitted(admitted)) => {
                self.metrics.auth.ok.inc();
                self.metrics.limits.key_allowed.inc();
                self.metrics.limits.org_allowed.inc();
                Ok(admitted)
            }
            Ok(Decision::Denied { refusal, principal, rate_limit }) => {
                self.count(refusal, route);
                Err(Denial::Refused { refusal, principal, rate_limit })
            }
            Err(unavailable) => Err(self.unanswered(unavailable)),
        }
    }

    fn deny_credential(&self, error: CredentialError) -> Denial {
        let auth = &self.metrics.auth;
        let bad = |detail| (&auth.malformed, Denial::BadCredential(detail));
        let (counter, denial) = match error {
            CredentialError::Bearer(bearer::BearerError::Missing) => (&auth.missing, Denial::NoCredential),
            CredentialError::Bearer(bearer::BearerError::Repeated) => {
                bad("There is more than one Authorization field.")
            }
            CredentialError::Bearer(bearer::BearerError::Empty) => bad("The bearer token is empty."),
            CredentialError::Bearer(bearer::BearerError::Malformed) => (&auth.malformed, Denial::Malformed),
            CredentialError::Ambiguous => bad("There is more than one session cookie."),
            CredentialError::Method => bad("A session may not be used with this method."),
            CredentialError::CrossSite => (&auth.cross_site, Denial::CrossSite),
        };
        counter.inc();
        denial
    }

    fn no_session(&self) -> Denial {
        self.metrics.auth.no_session.inc();
        Denial::NoSession
    }

    fn unanswered(&self, unavailable: Unavailable) -> Denial {
        let errors = &self.metrics.state.errors;
        let counter = match unavailable {
            Unavailable::TimedOut => &errors.late,
            Unavailable::Unreachable => &errors.unreachable,
            Unavailable::ErrorReply => &errors.refused,
            Unavailable::Overloaded => &errors.overloaded,
        };
        counter.inc();
        Denial::StateUnavailable
    }

    fn count(&self, refusal: Refusal, route: &Route) {
        let (auth, limits) = (&self.metrics.auth, &self.metrics.limits);
        match refusal {
            Refusal::Unknown => auth.unknown.inc(),
            Refusal::Revoked => auth.revoked.inc(),
            Refusal::Expired => auth.expired.inc(),
            Refusal::UserRemoved => auth.user_removed.inc(),
            Refusal::OrgSuspended => auth.suspended.inc(),
            Refusal::Forbidden if route.exists => auth.forbidden.inc(),
            Refusal::Forbidden => auth.ok.inc(),
            Refusal::RateLimited => {
                auth.ok.inc();
                limits.key_denied.inc();
            }
            Refusal::TooManyInFlight => {
                auth.ok.inc();
                limits.key_allowed.inc();
                limits.org_denied.inc();
            }
        }
    }
}
