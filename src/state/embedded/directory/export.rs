//! Export of the directory in memory.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::Directory;
use crate::identity::{OrgId, UserId};
use crate::key::KeyDigest;
use crate::quota::Quota;
use crate::state::bucket::Bucket;
use crate::state::embedded::stored_key::StoredKey;
use crate::state::{CreationBucket, KeyExport, OrgExport, StateExport, UserExport};

impl Directory {
    /// All records, with retired keys as those that they are: revoked ones. A change that is made meanwhile may be in the
    /// export or not.
    pub(in crate::state::embedded) fn export(
        &self,
        retired: Vec<(StoredKey, Vec<KeyDigest>)>,
        creation: &HashMap<UserId, CreationBucket>,
    ) -> StateExport {
        let mut retired_keys: FxHashMap<OrgId, Vec<KeyExport>> = FxHashMap::default();
        for (stored, digests) in retired {
            let quota = self.defaults().quota.in_force(stored.key.quota);
            retired_keys.entry(stored.key.org).or_default().push(stored.export(digests, quota));
        }
        let orgs = self.orgs().into_iter().map(|org| {
            let users = self.users(org.id).into_iter();
            let users = users.map(|user| UserExport { creation: creation.get(&user.id).copied(), user }).collect();
            let mut keys: Vec<KeyExport> = self.records(org.id).iter().map(|record| record.export()).collect();
            keys.extend(retired_keys.remove(&org.id).unwrap_or_default());
            keys.sort_by_key(|export| (export.key.created, export.key.id));
            OrgExport { org, users, keys }
        });
        StateExport { orgs: orgs.collect() }
    }
}

impl StoredKey {
    /// The whole key; `digests` are those that it had before its rotations.
    fn export(self, digests: Vec<KeyDigest>, quota: Quota) -> KeyExport {
        let Self { key, secrets, bucket, .. } = self;
        let previous = secrets.previous.map(|(previous, _)| previous);
        let replaced = digests.into_iter().filter(|digest| Some(*digest) != previous).collect();
        let bucket = bucket.map_or(Bucket::full(quota, key.created), |(bucket, per)| bucket.convert(per, quota));
        KeyExport { key, digest: secrets.current, previous, replaced, bucket, quota }
    }
}
