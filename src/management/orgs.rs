//! Organizations.

use super::actor::AuditActor;
use super::recording::Target;
use super::{Actor, Management, ManagementError, Reply, checks, reply};
use crate::identity::OrgId;
use crate::key::OrgTag;
use crate::state::{Change, Org};

/// Requests in flight that an organization may be given.
const CONCURRENT: std::ops::RangeInclusive<u32> = 1..=1_000_000;
/// Tags to try before giving up. There are 238,328, so with half of them taken, the last try is one in a million.
const TRIES: usize = 20;

impl Management {
    pub(super) async fn create_org(&self, name: &str, by: AuditActor<'_>) -> Result<Reply, ManagementError> {
        let name = checks::org_name(name)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let (id, tag) = (OrgId::generate(), OrgTag::generate()?);
            let org = Org { id, tag, name: name.clone(), created: by.now, suspended: false, concurrent: None };
            match self.change("org.create", target(id), Change::CreateOrg(org.clone()), by).await {
                Err(ManagementError::Taken("tag")) if tries < TRIES => {}
                changed => return changed.map(|()| self.reply(org)),
            }
        }
    }

    /// All organizations; of a person, those that they can act in.
    pub(super) async fn list_orgs(&self, by: AuditActor<'_>) -> Result<Reply, ManagementError> {
        let mut orgs = self.state.orgs().await?;
        if let Actor::User(person) = by.actor {
            let theirs = self.accessible_orgs(person).await?;
            orgs.retain(|org| theirs.iter().any(|(id, _)| *id == org.id));
        }
        Ok(Reply::Orgs { orgs: orgs.into_iter().map(|org| self.shown_org(org)).collect() })
    }

    pub(super) async fn show_org(&self, org: &str) -> Result<Reply, ManagementError> {
        self.org(org).await.map(|org| self.reply(org))
    }

    pub(super) async fn suspend_org(
        &self,
        org: &str,
        suspended: bool,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let org = self.org(org).await?;
        let action = if suspended { "org.suspend" } else { "org.resume" };
        self.change(action, target(org.id), Change::SuspendOrg { org: org.id, suspended }, by).await?;
        Ok(self.reply(Org { suspended, ..org }))
    }

    pub(super) async fn limit_org(
        &self,
        org: &str,
        concurrent: Option<u32>,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        if concurrent.is_some_and(|concurrent| !CONCURRENT.contains(&concurrent)) {
            return Err(ManagementError::Concurrent);
        }
        let org = self.org(org).await?;
        self.change("org.limits", target(org.id), Change::LimitOrg { org: org.id, concurrent }, by).await?;
        Ok(self.reply(Org { concurrent, ..org }))
    }

    fn reply(&self, org: Org) -> Reply {
        Reply::Org { org: self.shown_org(org) }
    }

    /// An organization as it is now.
    pub(super) fn shown_org(&self, org: Org) -> reply::Org {
        reply::Org::of(org, self.state.concurrent())
    }
}

fn target(org: OrgId) -> Target {
    Target { org, user: None, key: None }
}
