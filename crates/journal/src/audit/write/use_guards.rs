//! Guards of uses that a predecessor still serves, such as the slots of their organizations.

use std::fmt::Debug;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use super::pending::PendingLines;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Guards of the open uses of predecessors. Each is dropped when its use ends.
#[derive(Debug, Default)]
pub(crate) struct UseGuards(Mutex<FxHashMap<u128, Box<dyn Debug + Send>>>);

impl UseGuards {
    /// Holds a guard for each admitted use that is open and that a predecessor has. Call before this
    /// process begins a use.
    pub(crate) fn hold(
        &self,
        pending: &Mutex<PendingLines>,
        mut guard: impl FnMut(OrgId, Option<KeyId>) -> Option<Box<dyn Debug + Send>>,
    ) -> usize {
        let mut guards = self.lock();
        let pending = pending.lock();
        // Only admitted uses are numbered, and have taken a slot.
        let admitted = pending.open.iter().filter(|(_, open)| open.number.is_some());
        guards.extend(admitted.filter_map(|(id, open)| Some((*id, guard(open.org_id?, open.key_id)?))));
        guards.len()
    }

    /// Drops the guards of uses that have ended.
    pub(crate) fn end(&self, ended: &[u128]) {
        if ended.is_empty() {
            return;
        }
        let mut guards = self.lock();
        let dropped: Vec<_> = ended.iter().filter_map(|id| guards.remove(id)).collect();
        drop(guards);
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<u128, Box<dyn Debug + Send>>> {
        self.0.lock()
    }
}
