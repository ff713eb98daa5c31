//! Lists of keys, a page at a time.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::future::try_join_all;
use serde::Serialize;

use super::authorization::Access;
use super::{Actor, Key, KeyStatus, Management, ManagementError, operands};
use domain::clock::Micros;
use domain::identity::UserId;
use domain::key::{KeyDigest, KeyId};
use domain::page::{Page, PageLimit, PageQuery};
use state::{self, KeyList, KeyPosition, Org};

/// Keys that are read for one page at most. Where few of them match the filter, the page has fewer keys than its limit.
const MAX_READ: usize = 1000;

/// Filter and order of a list of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyQuery {
    /// Part of the name or of the owner's email address, in any case, or of the key id; empty for all keys.
    pub text: String,
    /// The only status that is listed; none for any.
    pub status: Option<KeyStatus>,
    /// `true`: newest keys first; `false`: in the order of their creation.
    pub newest_first: bool,
}

impl Management {
    /// Looks up the keys that have, or had, these SHA-256, in hexadecimal; at most 200 of them. For the operator.
    ///
    /// # Errors
    /// [`ManagementError::InvalidDigest`], [`ManagementError::TooManyKeyIds`].
    pub async fn find_keys_by_digest(
        &self,
        actor: &Actor,
        sha256: &[String],
        now: Micros,
    ) -> Result<BTreeMap<String, KeyId>, ManagementError> {
        self.authorize(actor, Access::Operator, now).await?;
        operands::check_key_count(sha256)?;
        let found = sha256.iter().map(async |text| {
            let digest = KeyDigest::from_hex(text)?;
            let key = self.state.key_of(&digest).await?;
            Ok::<_, ManagementError>(key.map(|key| (text.clone(), key)))
        });
        Ok(try_join_all(found).await?.into_iter().flatten().collect())
    }

    /// Lists the keys of an organization, revoked ones too, a page at a time; for users who do not administer it, their
    /// own. Where few keys match the filter, a page can have fewer of them than its limit, or none, and a cursor.
    ///
    /// # Errors
    /// [`ManagementError::NoOrg`], [`ManagementError::Cursor`].
    pub async fn list_keys(
        &self,
        actor: &Actor,
        org: &str,
        query: &KeyQuery,
        page: &PageQuery,
        now: Micros,
    ) -> Result<Page<Key>, ManagementError> {
        self.authorize(actor, Access::Org(org), now).await?;
        let org = self.find_org(org).await?;
        let list = KeyList { org: org.id, owner: actor.visible_owner(), newest_first: query.newest_first };
        let sealer = self.cursor_sealer(&("keys", list.org, list.owner, query)).await?;
        let after = sealer.open(page.cursor.as_deref())?;
        sealer.seal(self.find_keys(&org, list, after, query, page.limit, now).await?)
    }

    /// The keys behind a position that match the filter.
    async fn find_keys(
        &self,
        org: &Org,
        list: KeyList,
        mut after: Option<KeyPosition>,
        query: &KeyQuery,
        limit: PageLimit,
        now: Micros,
    ) -> Result<Page<Key, KeyPosition>, ManagementError> {
        let limit = limit.get();
        let mut items = Vec::new();
        for _ in 0..MAX_READ.div_ceil(limit) {
            let batch = self.state.page_of_keys(list, after, limit).await?;
            let end = batch.items.last().map(KeyPosition::from);
            for (position, key) in self.show_keys(org, batch.items, now).await? {
                after = Some(position);
                items.extend(Some(key).filter(|key| query.matches(key)));
                if items.len() == limit {
                    break;
                }
            }
            if batch.next.is_none() && (end.is_none() || end == after) {
                return Ok(Page { items, next: None });
            }
            if items.len() == limit {
                break;
            }
        }
        Ok(Page { items, next: after })
    }

    /// The keys as results show them, each with its position. Each user is looked up once.
    async fn show_keys(
        &self,
        org: &Org,
        keys: Vec<state::Key>,
        now: Micros,
    ) -> Result<Vec<(KeyPosition, Key)>, ManagementError> {
        let ids: HashSet<UserId> = keys.iter().map(|key| key.user).collect();
        let users = try_join_all(ids.into_iter().map(|id| self.state.member(org.id, id))).await?;
        let users: HashMap<UserId, state::User> =
            users.into_iter().flatten().map(|(_, user)| (user.id, user)).collect();
        let show = |key: &state::Key| Key::new(key, users.get(&key.user), Some(org), self.quota(key), now);
        Ok(keys.iter().map(|key| (KeyPosition::from(key), show(key))).collect())
    }
}

impl KeyQuery {
    /// Names and email addresses are compared without case, key ids with it.
    fn matches(&self, key: &Key) -> bool {
        let text = self.text.to_lowercase();
        let contains = |field: &str| field.to_lowercase().contains(&text);
        let text_matches =
            text.is_empty() || contains(&key.name) || contains(&key.email) || key.id.as_str().contains(&self.text);
        text_matches && self.status.is_none_or(|status| status == key.status)
    }
}
