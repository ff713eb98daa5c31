//! Export of the directory in memory.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::{Directory, OrgEntry};
use crate::bucket::Bucket;
use crate::embedded::stored_key::StoredKey;
use crate::{CreationBucket, KeyExport, Org, OrgExport, StateExport, User, UserExport};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::quota::Quota;

impl Directory {
    /// All records, with retired keys as those that they are: revoked ones. A change that is made meanwhile may be in the
    /// export or not.
    pub(crate) fn export(
        &self,
        retired: Vec<(StoredKey, Vec<KeyDigest>)>,
        creation: &HashMap<UserId, CreationBucket>,
    ) -> StateExport {
        let mut retired_keys: FxHashMap<OrgId, Vec<KeyExport>> = FxHashMap::default();
        for (stored, digests) in retired {
            retired_keys.entry(stored.key.org).or_default().push(self.export_retired(stored, digests));
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

    /// A retired key, as the file has it, with the digests that it had before.
    pub(crate) fn export_retired(&self, stored: StoredKey, digests: Vec<KeyDigest>) -> KeyExport {
        let quota = self.defaults().quota.in_force(stored.key.quota);
        stored.export(digests, quota)
    }

    /// The ids of the keys of an organization, session quota keys too.
    pub(crate) fn key_ids(&self, org: OrgId) -> Vec<KeyId> {
        self.read().org.get(&org).map_or_else(Vec::new, |org| org.keys.iter().map(|record| record.id()).collect())
    }

    /// The ids of the users of an organization, in the order of their creation.
    pub(crate) fn user_ids(&self, org: OrgId) -> Vec<UserId> {
        self.read().org.get(&org).map_or_else(Vec::new, |org| org.users.clone())
    }

    /// One user, removed or not.
    pub(crate) fn user(&self, user: UserId) -> Option<User> {
        self.read().user.get(&user).map(|entry| entry.user.clone())
    }

    /// The organization with a tag.
    pub(crate) fn org_by_tag(&self, tag: OrgTag) -> Option<Org> {
        self.read().org.values().find(|entry| entry.org.tag == tag).map(OrgEntry::view)
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
