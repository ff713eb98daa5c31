//! Organizations.

use super::*;

impl Redis {
    /// First the record under its tag, which nobody finds yet, then the name and the place in the list.
    pub(super) async fn create_org(&self, org: &Org) -> Result<u32, Obstacle> {
        let (layout, slot) = (&self.shared.layout, layout::slot(org.tag.as_str()));
        let (id, record) = (org.id.to_string(), layout.org(org.tag));
        let mut draft = self.draft();
        let at = draft.record(record.clone());
        draft.check(("absent", at));
        draft.write(("slots", at, version()?));
        draft.set(at, &fields(org));
        if let Committed::Failed(_) = self.commit(slot, &draft).await?
            && self.field(slot, &record, "id").await?.as_ref() != Some(&id)
        {
            return Err(ChangeError::Taken("tag").into());
        }
        match self.list_org(org).await {
            Err(Obstacle::Final(taken)) => {
                let mut draft = self.draft();
                let at = draft.record(record);
                draft.check(("equal", at, "id", id));
                draft.write(("drop", at));
                self.commit(slot, &draft).await?;
                Err(taken.into())
            }
            listed => listed,
        }
    }

    async fn list_org(&self, org: &Org) -> Result<u32, Obstacle> {
        let (layout, slot) = (&self.shared.layout, layout::orgs_slot());
        let (id, tag) = (org.id.to_string(), org.tag.as_str());
        let mut draft = self.draft();
        let [names, tags, list] = [layout.names(), layout.tags(), layout.orgs()].map(|name| draft.record(name));
        draft.check(("none", names, &org.name));
        draft.check(("none", tags, &id));
        draft.write(("set", names, &org.name, &id));
        draft.write(("set", tags, &id, tag));
        draft.write(("append", list, &id));
        match self.commit(slot, &draft).await? {
            Committed::Written(replicas) => return Ok(replicas),
            Committed::Failed(1) if self.field(slot, &layout.names(), &org.name).await?.as_ref() != Some(&id) => {
                return Err(ChangeError::Taken("name").into());
            }
            Committed::Failed(_) => {}
        }
        let listed = self.field(slot, &layout.tags(), &id).await?;
        if listed.as_deref() == Some(tag) {
            // It was listed by a try whose answer was lost; this write only has replicas to wait for.
            return self.touch(slot, layout.tags(), &id, tag).await;
        }
        Err(ChangeError::Taken("id").into())
    }

    /// Writes what is there already, to learn which replicas have it.
    async fn touch(&self, slot: u16, name: String, field: &str, value: &str) -> Result<u32, Obstacle> {
        let mut draft = self.draft();
        let at = draft.record(name);
        draft.check(("equal", at, field, value));
        draft.write(("set", at, field, value));
        written(self.commit(slot, &draft).await?)
    }

    pub(super) async fn suspend_org(&self, org: OrgId, suspended: bool) -> Result<u32, Obstacle> {
        self.change_org(org, |draft, at| draft.set(at, &[("suspended", u8::from(suspended).to_string())])).await
    }

    pub(super) async fn limit_org(&self, org: OrgId, concurrent: Option<u32>) -> Result<u32, Obstacle> {
        self.change_org(org, |draft, at| match concurrent {
            Some(concurrent) => draft.set(at, &[("concurrent", concurrent.to_string())]),
            None => draft.write(("unset", at, "concurrent")),
        })
        .await
    }

    async fn change_org(&self, org: OrgId, write: impl FnOnce(&mut Draft, usize)) -> Result<u32, Obstacle> {
        let tag = self.required_tag(org).await?;
        let mut draft = self.draft();
        let at = draft.record(self.shared.layout.org(tag));
        draft.check(("equal", at, "id", org.to_string()));
        write(&mut draft, at);
        draft.stamp(at)?;
        match self.commit(layout::slot(tag.as_str()), &draft).await? {
            Committed::Written(replicas) => Ok(replicas),
            Committed::Failed(_) => Err(ChangeError::NoOrg(org).into()),
        }
    }
}

/// A commit that only somebody else's change can fail.
pub(in crate::state::redis) fn written(committed: Committed) -> Result<u32, Obstacle> {
    match committed {
        Committed::Written(replicas) => Ok(replicas),
        Committed::Failed(_) => Err(Obstacle::Conflict),
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
