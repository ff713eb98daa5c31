//! Admission: reads the credential, finds the route, and asks the state for one decision.
//!
//! - All or nothing: when a request is denied, nothing was taken for it.
//! - A key of our own format is checked by its checksum first, so garbage costs no hash and no look-up.
//! - A request that no listed route matches is decided like any other, with a permission that nobody has: bad keys are
//!   told so, good ones learn that there is no such route.

pub mod bearer;
mod routes;
mod settings;

use std::sync::Arc;

use http::request::Parts;

use crate::clock::Micros;
use crate::identity::Principal;
use crate::key::{self, KeyDigest, KeyId};
use crate::metrics::Metrics;
use crate::quota::Standing;
use crate::state::{Admitted, Ask, Decision, Refusal, State, Unavailable};

use bearer::Flaw;
pub use routes::{Route, Routes};
pub use settings::RouteSettings;

/// Decides who may enter.
#[derive(Debug)]
pub struct Admission {
    state: Arc<State>,
    routes: Routes,
    metrics: Metrics,
}

/// What is said of a request.
#[derive(Debug)]
pub struct Ruling<'a> {
    /// What the request is.
    pub route: &'a Route,
    /// Whether it may.
    pub verdict: Result<Admitted, Denial>,
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
    /// The state's refusal.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whose key it is, when it is known.
        principal: Option<Arc<Principal>>,
        /// Where they stand, when they are authenticated.
        standing: Option<Standing>,
    },
    /// The state does not answer.
    StateUnavailable,
}

impl Admission {
    /// Admission by these routes and this state.
    pub fn new(state: Arc<State>, routes: Routes, metrics: Metrics) -> Self {
        Self { state, routes, metrics }
    }

    /// What this request is, and whether it may.
    pub async fn rule(&self, head: &Parts, now: Micros) -> Ruling<'_> {
        let route = self.routes.find(head);
        let verdict = match presented(head) {
            Ok(presented) => self.decide(&presented, route, now).await,
            Err(flaw) => Err(self.flawed(flaw)),
        };
        Ruling { route, verdict }
    }

    async fn decide(&self, presented: &Presented, route: &Route, now: Micros) -> Result<Admitted, Denial> {
        let Presented { digest, id } = presented;
        let ask = Ask { digest, id: *id, required: route.permission.as_ref(), now };
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
            Ok(Decision::Refused { refusal, principal, standing }) => {
                self.count(refusal, route);
                Err(Denial::Refused { refusal, principal, standing })
            }
            Err(unavailable) => Err(self.unanswered(unavailable)),
        }
    }

    fn flawed(&self, flaw: Flaw) -> Denial {
        let auth = &self.metrics.auth;
        let (counter, denial) = match flaw {
            Flaw::Missing => (&auth.missing, Denial::NoCredential),
            Flaw::Repeated => (&auth.malformed, Denial::BadCredential("There is more than one Authorization field.")),
            Flaw::Empty => (&auth.malformed, Denial::BadCredential("The bearer token is empty.")),
            Flaw::Malformed => (&auth.malformed, Denial::Malformed),
        };
        counter.inc();
        denial
    }

    fn unanswered(&self, unavailable: Unavailable) -> Denial {
        let errors = &self.metrics.state.errors;
        let counter = match unavailable {
            Unavailable::Late => &errors.late,
            Unavailable::Unreachable => &errors.unreachable,
            Unavailable::Refused => &errors.refused,
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

/// What a key is recognized by, and found by.
struct Presented {
    digest: KeyDigest,
    /// The id that it names, when it is of our own format.
    id: Option<KeyId>,
}

/// The presented key.
fn presented(head: &Parts) -> Result<Presented, Flaw> {
    let token = bearer::token(&head.headers)?;
    let id = key::parse(token);
    if id.is_none() && looks_like_ours(token) {
        return Err(Flaw::Malformed);
    }
    Ok(Presented { digest: KeyDigest::of(token), id })
}

/// Whether a token is shaped like a key of ours. Imported keys of older systems have shapes of their own.
fn looks_like_ours(token: &[u8]) -> bool {
    token.len() == key::KEY_LENGTH && token.starts_with(key::PREFIX.as_bytes())
}
