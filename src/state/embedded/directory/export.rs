//! Export of the directory in memory.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Directory;
use crate::key::{KeyDigest, KeyId};
use crate::state::embedded::key_record::KeyRecord;
use crate::state::{KeyExport, OrgExport, StateExport};

impl Directory {
    /// All records. A change that is made meanwhile may be in the export or not.
    pub(in crate::state::embedded) fn export(&self) -> StateExport {
        let mut digests = self.digests();
        let mut key = |record: &Arc<KeyRecord>| record.export(digests.remove(&record.id).unwrap_or_default());
        let orgs = self.orgs().into_iter().map(|org| {
            let users = self.users(org.id);
            let keys: Vec<KeyExport> = self.records(org.id).iter().map(&mut key).collect();
            OrgExport { org, users, keys }
        });
        StateExport { orgs: orgs.collect() }
    }

    /// The digests that each key has or had.
    fn digests(&self) -> FxHashMap<KeyId, Vec<KeyDigest>> {
        let mut digests: FxHashMap<KeyId, Vec<KeyDigest>> = FxHashMap::default();
        for entry in &self.by_digest {
            digests.entry(entry.value().id).or_default().push(*entry.key());
        }
        digests
    }
}
