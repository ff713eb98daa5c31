//! Question of one decision: the request, and the access that its route grants.

use std::net::IpAddr;

use domain::budget::Cost;
use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::policy::KeyPolicy;
use domain::key::{KeyDigest, KeyId};
use domain::refusal::Refusal;

/// Request for one decision.
#[derive(Clone, Copy, Debug)]
pub struct DecideRequest<'a> {
    /// SHA-256 of the presented key.
    pub digest: &'a KeyDigest,
    /// Key id within the presented key, when the key has our own format. A hint where to look
    /// first: the digest decides.
    pub id: Option<KeyId>,
    /// Access that the requested route grants.
    pub access: RouteAccess<'a>,
    /// Cost of the request: it takes all of that from the key's bucket and its budget, or nothing.
    pub cost: Cost,
    /// Address of the client; none when it is not known: then it is in none of a key's networks.
    pub client: Option<&'a IpAddr>,
    /// Time of the decision.
    pub now: Micros,
}

/// Access that a route grants to authenticated callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess<'a> {
    /// Every caller may use the route.
    Everyone,
    /// Callers whose user has this permission may use the route.
    Permission(&'a Permission),
    /// There is no such route: every authenticated caller is refused.
    NoRoute,
}

impl RouteAccess<'_> {
    /// Refusal of an authenticated caller with these permissions, if there is a reason.
    pub(crate) fn refusal(self, permissions: &[Permission]) -> Option<Refusal> {
        match self {
            Self::Everyone => None,
            Self::Permission(required) => (!permissions.contains(required)).then_some(Refusal::Forbidden),
            Self::NoRoute => Some(Refusal::NotFound),
        }
    }

    /// Refusal of a key with this policy, whose user is not refused.
    pub(crate) fn refusal_by(self, policy: &KeyPolicy) -> Option<Refusal> {
        let Self::Permission(required) = self else { return None };
        (!policy.allows_permission(required)).then_some(Refusal::Forbidden)
    }
}
