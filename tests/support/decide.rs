//! Requests for decisions and rotations, as most tests of a state make them.

use domain::budget::Cost;
use domain::clock::Micros;
use domain::key::{KeyDigest, KeyId};
use state::{Change, DecideRequest, LastRotation, RouteAccess};

/// A request by the client of no known address, on a route that asks for no permission.
pub fn decide_request(digest: &KeyDigest, now: Micros) -> DecideRequest<'_> {
    DecideRequest { digest, id: None, access: RouteAccess::Everyone, cost: Cost::ONE, client: None, now }
}

/// Replaces the secret of a key, whose secret before ends at once.
pub fn rotation(key: KeyId, digest: KeyDigest, at: Micros) -> Change {
    Change::RotateKey { key, digest, at, previous_until: at, last: LastRotation::Any }
}
