//! Permits: the slots that a request holds on leases of this gateway.

use super::lease::Permit;

/// The slots of an admitted request; released on drop.
#[derive(Debug)]
pub struct Permits {
    /// That of its organization.
    _org: Permit,
    /// That of its key, if it has a limit of its own.
    _key: Option<Permit>,
}

impl Permits {
    /// The permits of a request.
    pub(crate) fn new(org: Permit, key: Option<Permit>) -> Self {
        Self { _org: org, _key: key }
    }
}
