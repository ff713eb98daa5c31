//! Waiting until replicas have a copy, as many as are configured.
//!
//! A replica that has a write has all that its primary wrote before. So it takes one write after all others: to the one
//! primary that there is, or, on a Cluster, to every slot that something is in.

use std::collections::BTreeMap;

use super::{CopyError, Patience};
use crate::state::OrgExport;
use crate::state::redis::Redis;
use crate::state::redis::directory::changes::{CommitError, CommitResult};
use crate::state::redis::record_names;

/// A field of a record, as it is there already.
struct Touch {
    name: String,
    field: String,
    value: String,
}

impl Redis {
    pub(super) async fn confirm(&self, orgs: &[&OrgExport]) -> Result<(), CopyError> {
        if self.shared.settings.durability.replicas == 0 {
            return Ok(());
        }
        let mut touches = self.touches(orgs);
        if !self.shared.common.is_cluster() {
            touches = touches.into_iter().take(1).collect();
        }
        for (slot, touch) in touches {
            let mut patience = Patience::default();
            while let Err(obstacle) = self.touch_once(slot, &touch).await {
                patience.bear(obstacle).await?;
            }
        }
        Ok(())
    }

    /// Something to write in each slot that something is in.
    fn touches(&self, orgs: &[&OrgExport]) -> BTreeMap<u16, Touch> {
        let record_names = &self.shared.record_names;
        let mut touches = BTreeMap::new();
        for org in orgs {
            let (id, tag) = (org.org.id.to_string(), org.org.tag);
            let of_org = Touch { name: record_names.org(tag), field: "id".into(), value: id.clone() };
            let listing = Touch { name: record_names.tags(), field: id, value: tag.as_str().into() };
            touches.entry(record_names::hash_slot(tag.as_str())).or_insert(of_org);
            touches.entry(record_names::orgs_slot()).or_insert(listing);
            for (key, digest) in org.keys.iter().flat_map(|key| key.digests().map(move |digest| (key, digest))) {
                let name = record_names.digest(digest);
                let slot = record_names::hash_slot(&name);
                let value = key.key.id.as_str().into();
                touches.entry(slot).or_insert_with(|| Touch { name, field: "key".into(), value });
            }
        }
        touches
    }

    /// Writes what is there. What is not there was in the way of something, and has nothing to be confirmed.
    async fn touch_once(&self, slot: u16, touch: &Touch) -> Result<(), CommitError> {
        let mut transaction = self.transaction();
        let record = transaction.record(touch.name.clone());
        transaction.check(("equal", record, &touch.field, &touch.value));
        transaction.write(("set", record, &touch.field, &touch.value));
        match self.commit(slot, &transaction).await? {
            CommitResult::Written(replicas) => Ok(self.replicated(replicas)?),
            CommitResult::Failed(_) => Ok(()),
        }
    }
}
