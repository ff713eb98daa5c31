//! The form that creates a key.

use super::{HandlerResult, PageContext, render_form};
use crate::dashboard::error::DashboardError;
use crate::dashboard::pages::{CreatePage, NavEntry, OwnerChoice, OwnerInput};
use crate::management::{ManagementError, PolicyUpdate, User};
use domain::page::{PageLimit, PageQuery};

/// Users in the list of owners at most. In larger organizations the owner is typed.
const MAX_CHOICES: usize = 200;
/// Pages of users that are read for the list at most; some of the users may be removed.
const MAX_CHOICE_PAGES: usize = 5;

impl PageContext<'_> {
    pub(super) async fn show_create_key(&self) -> HandlerResult {
        self.create_form("", &self.user.user.id.to_string(), None, None).await
    }

    /// The form with these values, and with the errors in them.
    async fn create_form(
        &self,
        name: &str,
        owner: &str,
        name_error: Option<String>,
        owner_error: Option<String>,
    ) -> HandlerResult {
        let layout = self.layout(NavEntry::Keys).await?;
        let owner = self.owner_input(owner).await?;
        let has_error = name_error.is_some() || owner_error.is_some();
        render_form(&CreatePage { layout, name: name.to_owned(), owner, name_error, owner_error }, has_error)
    }

    /// The form's field for the owner. Only admins may choose another owner than themselves.
    async fn owner_input(&self, selected: &str) -> Result<OwnerInput, DashboardError> {
        if !self.user.is_admin() {
            return Ok(OwnerInput::Fixed);
        }
        let Some(mut users) = self.owner_choices().await? else {
            // The form was opened with the user's own id, or was sent with an address.
            let is_own = selected == self.user.user.id.to_string();
            return Ok(OwnerInput::Text(if is_own { &self.user.user.email } else { selected }.to_owned()));
        };
        users.sort_by(|a, b| a.email.cmp(&b.email));
        let choice = |user: User| {
            let value = user.id.to_string();
            let label = if user.kind.is_person() { user.email } else { format!("{} (service)", user.email) };
            OwnerChoice { selected: value == selected, value, label }
        };
        Ok(OwnerInput::Select(users.into_iter().map(choice).collect()))
    }

    /// The users to choose from; `None` when the organization has too many.
    async fn owner_choices(&self) -> Result<Option<Vec<User>>, DashboardError> {
        let mut users = Vec::new();
        let mut query = PageQuery::first(PageLimit::MAX);
        for _ in 0..MAX_CHOICE_PAGES {
            let page = self.management.list_users(&self.actor, &self.org(), &query, self.request.now).await?;
            users.extend(page.items.into_iter().filter(|user| user.removed.is_none()));
            query.cursor = page.next;
            if query.cursor.is_none() {
                return Ok(Some(users).filter(|users| users.len() <= MAX_CHOICES));
            }
        }
        Ok(None)
    }

    pub(super) async fn create_key(&self) -> HandlerResult {
        let form = self.request.form();
        let own_id = self.user.user.id.to_string();
        let name = form.field("name");
        let owner = form.field("owner");
        // A member's form has no field for the owner.
        let owner = if owner.is_empty() { &own_id } else { owner };
        let sealer = self.management.key_sealer(self.user).await?;
        match self
            .management
            .create_key(&self.actor, &self.org(), owner, name, PolicyUpdate::default(), self.request.now)
            .await
        {
            Ok(created) => self.lead_to_new_key(&sealer, &created),
            Err(ManagementError::InvalidName(_)) => {
                let error = "Enter a name of 1 to 100 characters that all show.".to_owned();
                self.create_form(name, owner, Some(error), None).await
            }
            Err(ManagementError::NoUser(_)) => {
                let error = "This organization has no user with this address or name.".to_owned();
                self.create_form(name, owner, None, Some(error)).await
            }
            Err(error) => Err(error.into()),
        }
    }
}
