//! Admission: finds the route, reads the credential, and asks the state for one decision.
//!
//! - All or nothing: a denied request took no token and no slot.
//! - A key of keygate's own format is checked by its checksum first, so that garbage costs no hash and no look-up.
//! - A web session is decided like a key of its user. It is read from the state for each request, so that a session
//!   that was ended anywhere is refused from the next request on.
//! - A request that no listed route matches is refused with 404, but only after its credential was accepted: a caller
//!   with an invalid key does not learn which routes exist.

pub mod bearer;
pub mod key_field;
pub mod websocket_key;
mod credential;
mod routes;
mod route_tree;
mod host;
mod path;
mod coverage;
mod cors;
mod settings;

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::request::Parts;

use domain::clock::Micros;
use domain::head_fields::{CredentialFields, FieldSet};
use domain::identity::Principal;
use domain::key::KeyDigest;
use domain::quota::RateLimitStatus;
use domain::refusal::{Limit, Refusal};
use domain::session::TokenDigest;
use platform::metrics::Metrics;
use state::{Admitted, DecideRequest, Decision, State, Unavailable, session_quota_digest};

pub(crate) use cors::preflight_method;
pub use cors::{CorsPolicy, CorsSettings};
pub use coverage::{Bypass, bypasses, hidden_routes, narrower_route};
use credential::{Credential, Places};
pub use host::HostPattern;
pub use path::{Ambiguity, Segment, comparable, literal_error, pattern_segments};
pub use routes::{MeteredCost, Route, Routes};
pub use settings::{CostMember, CostSource, RouteSettings, ServedResource};

/// Authenticates and authorizes requests.
#[derive(Debug)]
pub struct Admission {
    state: Arc<State>,
    routes: Routes,
    /// Fields, beside `Authorization`, that may carry a key.
    credentials: CredentialFields,
    /// Origin of the pages whose users may use web sessions; none: sessions are no credential.
    session_origin: Option<Box<str>>,
    metrics: Metrics,
}

/// Denied request. Nothing was taken for it.
#[derive(Debug)]
pub struct Denial {
    /// Reason.
    pub refusal: Refusal,
    /// Owner of the key or session, when it exists.
    pub principal: Option<Arc<Principal>>,
    /// Rate-limit status, when the caller is authenticated.
    pub rate_limit: Option<RateLimitStatus>,
}

impl Admission {
    /// Admission by these routes and this state, with API keys in `Authorization` as the only credentials.
    pub fn new(state: Arc<State>, routes: Routes, metrics: Metrics) -> Self {
        Self { state, routes, credentials: CredentialFields::NONE, session_origin: None, metrics }
    }

    /// The same, with API keys also in these fields.
    #[must_use]
    pub fn with_fields(self, credentials: CredentialFields) -> Self {
        Self { credentials, ..self }
    }

    /// The same, with web sessions as credentials, too: for requests from pages of this origin.
    #[must_use]
    pub fn with_sessions(self, origin: &str) -> Self {
        Self { session_origin: Some(origin.into()), ..self }
    }

    /// The digest of the key that a request presents, whatever it is for; none of one without a key, or with two.
    pub fn presented_key(&self, head: &Parts) -> Option<KeyDigest> {
        let fields = FieldSet::of_request(&head.headers, &self.credentials);
        let places =
            Places { fields: &self.credentials, pass_authorization: false, websocket: false, session_origin: None };
        match credential::read(head, fields, places) {
            Ok(Credential::Key(key)) => Some(key.digest),
            _ => None,
        }
    }

    /// Finds the route of a request.
    pub fn find_route(&self, head: &Parts) -> &Route {
        self.routes.find(head)
    }

    /// Finds the route of a request as if it had this method.
    pub fn find_route_for(&self, head: &Parts, method: &Method) -> &Route {
        self.routes.find_for(head, method)
    }

    /// The policy of the route of a request; of a preflight, of the route that it asks for. None without a policy.
    pub fn cors_policy(&self, head: &Parts) -> Option<&Arc<CorsPolicy>> {
        self.routes.cors_policy(head)
    }

    /// The methods with routes to the path of a preflight that its origin may use. `asked` is the one that it asks for.
    pub fn methods_for(&self, head: &Parts, asked: Method) -> Vec<Method> {
        self.routes.methods_for(head, asked)
    }

    /// Decides whether the request's caller may use its route, which is not a public one. `fields` are those of the
    /// head, `client` is the address of the caller. An admitted request has taken a token and a slot.
    ///
    /// # Errors
    /// [`Denial`]: the reason, and the caller as far as it is known.
    pub async fn authorize(
        &self,
        head: &Parts,
        fields: FieldSet,
        route: &Route,
        client: &IpAddr,
        now: Micros,
    ) -> Result<Admitted, Denial> {
        let places = Places {
            fields: &self.credentials,
            pass_authorization: route.pass_authorization,
            websocket: route.upgrade.iter().any(|protocol| protocol == "websocket"),
            session_origin: self.session_origin.as_deref(),
        };
        match credential::read(head, fields, places) {
            Ok(Credential::Key(key)) => {
                let access = route.access();
                let client = Some(client);
                let decided = self
                    .decide(DecideRequest { digest: &key.digest, id: key.id, access, cost: route.cost, client, now })
                    .await;
                decided.map_err(|denial| denial.of_path(head.uri.path()))
            }
            Ok(Credential::Session(digest)) => {
                let decided = Box::pin(self.decide_session(&digest, route, now)).await;
                decided.map_err(|denial| denial.of_path(head.uri.path()))
            }
            Err(refusal) => Err(self.deny(refusal)),
        }
    }

    /// Reads the session, then decides as for a key of its user in the chosen organization.
    async fn decide_session(&self, digest: &TokenDigest, route: &Route, now: Micros) -> Result<Admitted, Denial> {
        let timer = self.metrics.state.session.start_timer();
        let session = self.state.session(digest, self.state.time(now)).await;
        timer.observe_duration();
        let session = session.map_err(|unavailable| self.deny_unavailable(unavailable))?;
        let found = session.and_then(|session| Some((session.user()?, session)));
        let Some((user, session)) = found else { return Err(self.deny(Refusal::NoSession)) };
        let digest = session_quota_digest(user);
        let request =
            DecideRequest { digest: &digest, id: None, access: route.access(), cost: route.cost, client: None, now };
        let decided = self.decide(request).await;
        match decided {
            Ok(admitted) => {
                let validity = admitted.validity.of_session(session.id, session.valid_until());
                Ok(Admitted { validity, ..admitted })
            }
            // The user, and with it the record that meters its sessions, is gone: to the caller, so is the session.
            Err(denial) if denial.principal.is_none() && denial.refusal == Refusal::Unknown => {
                Err(Denial::new(Refusal::NoSession))
            }
            Err(denial) => Err(denial),
        }
    }

    async fn decide(&self, request: DecideRequest<'_>) -> Result<Admitted, Denial> {
        let timer = self.metrics.state.decide.start_timer();
        let decision = self.state.decide(request).await;
        timer.observe_duration();
        match decision {
            Ok(Decision::Admitted(admitted)) => {
                self.metrics.auth.ok.inc();
                self.metrics.limits.key_allowed.inc();
                self.metrics.limits.org_allowed.inc();
                if admitted.rate_limit.key_slots.is_some() {
                    self.metrics.limits.key_concurrent_allowed.inc();
                }
                Ok(admitted)
            }
            Ok(Decision::Denied { refusal, principal, rate_limit }) => {
                let has_key_slot = rate_limit.as_ref().is_some_and(|status| status.key_slots.is_some());
                if refusal == Refusal::TooManyInFlight && has_key_slot {
                    self.metrics.limits.key_concurrent_allowed.inc();
                }
                Err(Denial { principal, rate_limit, ..self.deny(refusal) })
            }
            Err(unavailable) => Err(self.deny_unavailable(unavailable)),
        }
    }

    /// Counts the denial.
    fn deny(&self, refusal: Refusal) -> Denial {
        self.metrics.auth.count_refusal(refusal);
        let limits = &self.metrics.limits;
        match refusal.row().limit {
            None => {}
            // Both are looked at before slots; the metrics of the bucket have both.
            Some(Limit::Rate | Limit::Budget) => limits.key_denied.inc(),
            // Slots are checked last, those of the key before those of the organization: a token was there.
            Some(Limit::KeyConcurrency) => {
                limits.key_allowed.inc();
                limits.key_concurrent_denied.inc();
            }
            Some(Limit::Concurrency) => {
                limits.key_allowed.inc();
                limits.org_denied.inc();
            }
        }
        Denial::new(refusal)
    }

    /// Counts the failure of the state.
    fn deny_unavailable(&self, unavailable: Unavailable) -> Denial {
        let errors = &self.metrics.state.errors;
        let counter = match unavailable {
            Unavailable::TimedOut => &errors.late,
            Unavailable::Unreachable => &errors.unreachable,
            Unavailable::ErrorReply => &errors.refused,
            Unavailable::Overloaded => &errors.overloaded,
            Unavailable::Lost => &errors.lost,
        };
        counter.inc();
        Denial::new(Refusal::StateUnavailable)
    }
}

impl Denial {
    /// The same denial, which says where no route leads to a path because servers read it in different ways.
    fn of_path(self, path: &str) -> Self {
        match self.refusal {
            Refusal::NotFound if comparable(path).is_err() => Self { refusal: Refusal::AmbiguousPath, ..self },
            _ => self,
        }
    }

    /// Denial of a caller who is not known.
    fn new(refusal: Refusal) -> Self {
        Self { refusal, principal: None, rate_limit: None }
    }
}
