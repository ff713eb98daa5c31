//! Permits: the slots that requests hold on leases of this gateway.

use std::sync::Arc;

use super::lease::SlotLease;

/// A slot of an organization or key; released on drop.
pub(crate) struct Permit(Arc<SlotLease>);

/// The slots of an admitted request; released on drop.
#[derive(Debug)]
pub struct Permits {
    /// That of its organization.
    _org: Permit,
    /// That of its key, if it has a limit of its own.
    _key: Option<Permit>,
}

impl Permit {
    /// A permit that the lease has counted.
    pub(super) fn new(lease: &Arc<SlotLease>) -> Self {
        Self(Arc::clone(lease))
    }
}

impl Permits {
    /// The permits of a request.
    pub(crate) fn new(org: Permit, key: Option<Permit>) -> Self {
        Self { _org: org, _key: key }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
