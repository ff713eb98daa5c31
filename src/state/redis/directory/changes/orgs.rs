//! Organizations.

use super::*;

impl Redis {
    /// First the record under its tag, which nobody finds yet, then the name and the place in the list.
    pub(super) async fn create_org(&self, org: &Org) -> Result<u32, CommitError> {
        let (record_names, slot) = (&self.shared.record_names, record_names::hash_slot(org.tag.as_str()));
        let (id, record) = (org.id.to_string(), record_names.org(org.tag));
        let mut transaction = self.transaction();
        let at = transaction.record(record.clone());
        transaction.check(("absent", at));
        transaction.write(("slots", at, version()?));
        transaction.set(at, &fields(org));
        if let CommitResult::Failed(_) = self.commit(slot, &transaction).await?
            && self.read_field(slot, &record, "id").await?.as_ref() != Some(&id)
        {
            return Err(ChangeError::Taken("tag").into());
        }
        match self.list_org(org).await {
            Err(CommitError::Final(taken)) => {
                let mut transaction = self.transaction();
                let at = transaction.record(record);
                transaction.check(("equal", at, "id", id));
                transaction.write(("drop", at));
                self.commit(slot, &transaction).await?;
                Err(taken.into())
            }
            listed => listed,
        }
    }

    async fn list_org(&self, org: &Org) -> Result<u32, CommitError> {
        let (record_names, slot) = (&self.shared.record_names, record_names::orgs_slot());
        let (id, tag) = (org.id.to_string(), org.tag.as_str());
        let mut transaction = self.transaction();
        let [names, tags, list] =
            [record_names.names(), record_names.tags(), record_names.orgs()].map(|name| transaction.record(name));
        transaction.check(("none", names, &org.name));
        transaction.check(("none", tags, &id));
        transaction.write(("set", names, &org.name, &id));
        transaction.write(("set", tags, &id, tag));
        transaction.write(("append", list, &id));
        match self.commit(slot, &transaction).await? {
            CommitResult::Written(replicas) => return Ok(replicas),
            CommitResult::Failed(1)
                if self.read_field(slot, &record_names.names(), &org.name).await?.as_ref() != Some(&id) =>
            {
                return Err(ChangeError::Taken("name").into());
            }
            CommitResult::Failed(_) => {}
        }
        let listed = self.read_field(slot, &record_names.tags(), &id).await?;
        if listed.as_deref() == Some(tag) {
            // It was listed by a try whose answer was lost; this write only has replicas to wait for.
            return self.touch(slot, record_names.tags(), &id, tag).await;
        }
        Err(ChangeError::Taken("id").into())
    }

    /// Writes what is there already, to learn which replicas have it.
    async fn touch(&self, slot: u16, name: String, field: &str, value: &str) -> Result<u32, CommitError> {
        let mut transaction = self.transaction();
        let at = transaction.record(name);
        transaction.check(("equal", at, field, value));
        transaction.write(("set", at, field, value));
        written(self.commit(slot, &transaction).await?)
    }

    pub(super) async fn suspend_org(&self, org: OrgId, suspended: bool) -> Result<u32, CommitError> {
        self.change_org(org, |transaction, at| transaction.set(at, &[("suspended", u8::from(suspended).to_string())]))
            .await
    }

    pub(super) async fn limit_org(&self, org: OrgId, concurrent: Option<u32>) -> Result<u32, CommitError> {
        self.change_org(org, |transaction, at| match concurrent {
            Some(concurrent) => transaction.set(at, &[("concurrent", concurrent.to_string())]),
            None => transaction.write(("unset", at, "concurrent")),
        })
        .await
    }

    async fn change_org(&self, org: OrgId, write: impl FnOnce(&mut Transaction, usize)) -> Result<u32, CommitError> {
        let tag = self.require_tag(org).await?;
        let mut transaction = self.transaction();
        let at = transaction.record(self.shared.record_names.org(tag));
        transaction.check(("equal", at, "id", org.to_string()));
        write(&mut transaction, at);
        transaction.stamp(at)?;
        match self.commit(record_names::hash_slot(tag.as_str()), &transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(_) => Err(ChangeError::NoOrg(org).into()),
        }
    }
}

/// A commit that only somebody else's change can fail.
pub(in crate::state::redis) fn written(committed: CommitResult) -> Result<u32, CommitError> {
    match committed {
        CommitResult::Written(replicas) => Ok(replicas),
        CommitResult::Failed(_) => Err(CommitError::Conflict),
    }
}

pub(in crate::state::redis) fn fields(org: &Org) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("id", org.id.to_string()),
        ("tag", org.tag.as_str().to_owned()),
        ("name", org.name.clone()),
        ("created", org.created.0.to_string()),
        ("suspended", u8::from(org.suspended).to_string()),
    ];
    fields.extend(org.concurrent.map(|concurrent| ("concurrent", concurrent.to_string())));
    fields
}
