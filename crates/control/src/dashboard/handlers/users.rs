//! The table of an organization's users, and suspending one.

use super::{HandlerResult, PageContext, render};
use crate::dashboard::pages::{NavEntry, Paging, ResponsibleCell, UserRow, UsersPage, link};
use crate::dashboard::response;
use crate::management::User;
use domain::page::PageLimit;

/// Users on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(50);

impl PageContext<'_> {
    pub(super) async fn list_users(&self) -> HandlerResult {
        let page = self.page_query(PAGE_SIZE);
        let listed = self.management.list_users(&self.actor, &self.org(), &page, self.request.now).await?;
        let path = format!("{}/users", self.base);
        let paging = Paging::new(page.cursor.as_deref(), listed.next.as_deref(), |cursor: &str| {
            link(&path, &[("cursor", cursor)])
        });
        let rows = listed.items.iter().map(|user| self.user_row(user)).collect();
        let layout = self.layout(NavEntry::Users).await?;
        render(&UsersPage { layout, rows, paging })
    }

    fn user_row(&self, user: &User) -> UserRow {
        let permissions: Vec<&str> = user.permissions.iter().map(|permission| permission.as_str()).collect();
        UserRow {
            id: user.id.to_string(),
            email: user.email.clone(),
            is_viewer: user.id == self.user.user.id,
            responsible: user.responsible.as_ref().map(ResponsibleCell::new),
            state: user.status(),
            is_of_operator: user.suspended_by_operator,
            permissions: permissions.join(", "),
            created: self.timestamp(user.created),
        }
    }

    pub(super) async fn suspend_user(&self, id: &str) -> HandlerResult {
        self.management.suspend_user(&self.actor, &self.org(), id, self.request.now).await?;
        Ok(response::see_other(&format!("{}/users?done=suspended", self.base)))
    }

    pub(super) async fn resume_user(&self, id: &str) -> HandlerResult {
        self.management.resume_user(&self.actor, &self.org(), id, self.request.now).await?;
        Ok(response::see_other(&format!("{}/users?done=resumed", self.base)))
    }
}
