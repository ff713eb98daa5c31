//! The page of the changes of an organization.

use super::{HandlerResult, PageContext, render};
use crate::dashboard::pages::{AuditPage, ChangeRow, NavEntry, Paging, link};
use crate::management::{ChangeEntry, ChangeUser};
use domain::page::PageLimit;

/// Changes on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(50);

impl PageContext<'_> {
    pub(super) async fn list_changes(&self) -> HandlerResult {
        let page = self.page_query(PAGE_SIZE);
        let listed = self.management.list_changes(&self.actor, &self.org(), &page, self.request.now).await;
        let listed = self.if_readable(listed, "the changes of the organization")?;
        let path = format!("{}/audit", self.base);
        let next = listed.as_ref().and_then(|listed| listed.page.next.as_deref());
        let paging = Paging::new(page.cursor.as_deref(), next, |cursor| link(&path, &[("cursor", cursor)]));
        let source = listed.as_ref().map(|listed| self.record_source(&listed.gateway, listed.view.as_ref()));
        let rows = listed.map(|listed| listed.page.items.iter().map(|change| self.change_row(change)).collect());
        let layout = self.layout(NavEntry::Audit).await?;
        render(&AuditPage { layout, all_users: self.user.is_admin(), rows, paging, source })
    }

    fn change_row(&self, change: &ChangeEntry) -> ChangeRow {
        ChangeRow {
            time: self.timestamp(change.time),
            action: change.action.clone(),
            by: change.maker(),
            subject: change.subject.as_ref().map(ChangeUser::label),
            key: change.key_id.map(|key| key.to_string()),
            ip: change.ip.map(|ip| ip.to_string()),
            outcome: change.outcome.name(),
        }
    }
}
