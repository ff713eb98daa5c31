//! The forms that make, rotate and revoke keys.

use super::super::error::DashboardError;
use super::super::pages::{
    CreatePage, Issuance, NavEntry, NewKeyPage, Overlap, OwnerChoice, OwnerInput, RevokePage, RotatePage,
};
use super::super::response::{self, DashboardResponse};
use super::{PageContext, form_again, page};
use crate::management::{ApiKey, Key, ManagementError, Operation, Reply, User};
use crate::secret::Secret;
use crate::settings::parse_duration;

/// Users that are offered to choose from; of more, one is typed.
const OFFERED: usize = 200;

impl PageContext<'_> {
    pub(super) async fn offer_create(&self) -> Result<DashboardResponse, DashboardError> {
        self.create_form("", &self.person.user.id.to_string(), None, None).await
    }

    async fn create_form(
        &self,
        name: &str,
        owner: &str,
        name_error: Option<String>,
        owner_error: Option<String>,
    ) -> Result<DashboardResponse, DashboardError> {
        let layout = self.layout(NavEntry::Keys).await?;
        let owner = self.owner(owner).await?;
        let has_error = name_error.is_some() || owner_error.is_some();
        form_again(&CreatePage { layout, name: name.to_owned(), owner, name_error, owner_error }, has_error)
    }

    /// Whom a key may be made for.
    async fn owner(&self, chosen: &str) -> Result<OwnerInput, DashboardError> {
        if !self.person.is_admin() {
            return Ok(OwnerInput::Fixed);
        }
        let Reply::Users { users } = self.perform(Operation::ListUsers { org: self.org() }).await? else {
            return Err(DashboardError::Internal);
        };
        let mut users: Vec<User> = users.into_iter().filter(|user| user.removed.is_none()).collect();
        if users.len() > OFFERED {
            let typed = users.into_iter().find(|user| user.id.to_string() == chosen).map(|user| user.email);
            return Ok(OwnerInput::Text(typed.unwrap_or_else(|| chosen.to_owned())));
        }
        users.sort_by(|a, b| a.email.cmp(&b.email));
        let choice = |user: User| {
            let value = user.id.to_string();
            OwnerChoice { selected: value == chosen, value, label: user.email }
        };
        Ok(OwnerInput::Select(users.into_iter().map(choice).collect()))
    }

    pub(super) async fn create(&self) -> Result<DashboardResponse, DashboardError> {
        let form = self.request.form();
        let me = self.person.user.id.to_string();
        let (name, owner) = (form.field("name"), form.field("owner"));
        let user = if owner.is_empty() { &me } else { owner };
        let create = Operation::CreateKey { org: self.org(), user: user.to_owned(), name: name.to_owned() };
        match self.management.perform_as(&self.actor, create, self.request.now).await {
            Ok(Reply::NewKey { api_key, key }) => self.show_new(&api_key, &key, Issuance::Created).await,
            Ok(_) => Err(DashboardError::Internal),
            Err(ManagementError::InvalidName) => {
                let what = "Give a name of 1 to 100 characters, without control characters.".to_owned();
                self.create_form(name, user, Some(what), None).await
            }
            Err(ManagementError::NoUser(_)) => {
                let what = "Nobody in this organization is called that.".to_owned();
                self.create_form(name, user, None, Some(what)).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The key, this once.
    async fn show_new(&self, api_key: &ApiKey, key: &Key, made: Issuance) -> Result<DashboardResponse, DashboardError> {
        let secret = Secret::new(api_key.expose().to_owned());
        let owner = self.explanation(&key.id.to_string()).await?.user;
        let sample = self.curl_examples.url_for(&owner.permissions);
        let curl = format!("curl -i -H 'Authorization: Bearer {}' '{sample}'", secret.expose());
        page(&NewKeyPage {
            layout: self.layout(NavEntry::Keys).await?,
            made,
            id: key.id.to_string(),
            name: key.name.clone(),
            owner: key.email.clone(),
            api_key: secret,
            curl: Secret::new(curl),
        })
    }

    pub(super) async fn offer_rotate(
        &self,
        id: &str,
        error: Option<String>,
    ) -> Result<DashboardResponse, DashboardError> {
        let key = self.changeable(id).await?;
        let has_error = error.is_some();
        let rotate = RotatePage {
            layout: self.layout(NavEntry::Keys).await?,
            id: key.id.to_string(),
            name: key.name,
            owner: key.email,
            overlap: Overlap::None,
            error,
        };
        form_again(&rotate, has_error)
    }

    pub(super) async fn rotate(&self, id: &str) -> Result<DashboardResponse, DashboardError> {
        let form = self.request.form();
        let overlap = Overlap::of(form.field("overlap")).and_then(|overlap| parse_duration(overlap.value()).ok());
        let Some(overlap) = overlap else {
            return self.offer_rotate(id, Some("Choose one of these.".to_owned())).await;
        };
        let rotate = Operation::RotateKey { key: Self::key_id(id)?, overlap: Some(overlap) };
        match self.perform(rotate).await? {
            Reply::NewKey { api_key, key } => {
                let until = key.previous_until.filter(|_| !overlap.is_zero());
                let until = until.map(|until| self.when(until));
                self.show_new(&api_key, &key, Issuance::Rotated(until)).await
            }
            _ => Err(DashboardError::Internal),
        }
    }

    pub(super) async fn offer_revoke(
        &self,
        id: &str,
        error: Option<String>,
    ) -> Result<DashboardResponse, DashboardError> {
        let key = self.changeable(id).await?;
        let lately = self.activity(vec![key.id]).await?;
        let own = lately.as_ref().and_then(|lately| lately.keys.get(&key.id));
        let has_error = error.is_some();
        let revoke = RevokePage {
            layout: self.layout(NavEntry::Keys).await?,
            id: key.id.to_string(),
            last_use: self.last_use(&key, own),
            name: key.name,
            owner: key.email,
            error,
        };
        form_again(&revoke, has_error)
    }

    pub(super) async fn revoke(&self, id: &str) -> Result<DashboardResponse, DashboardError> {
        let key = self.changeable(id).await?;
        if self.request.form().field("name") != key.name {
            let what = "This is not the key's name. Type it exactly as it is shown.".to_owned();
            return self.offer_revoke(id, Some(what)).await;
        }
        self.perform(Operation::RevokeKey { key: key.id }).await?;
        Ok(response::see_other(&format!("{}/keys/{}?done=revoked", self.base, key.id)))
    }

    /// A key that is not revoked yet.
    async fn changeable(&self, id: &str) -> Result<Key, DashboardError> {
        let key = Self::key_id(id)?;
        match self.perform(Operation::ShowKey { key }).await? {
            Reply::Key { key: shown } if shown.revoked.is_some() => Err(ManagementError::Revoked(key).into()),
            Reply::Key { key } => Ok(key),
            _ => Err(DashboardError::Internal),
        }
    }
}
