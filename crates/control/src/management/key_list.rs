//! Lists of keys, a page at a time.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::future::try_join_all;

use super::authorization::{Access, authorize, authorize_all};
use super::cursor::cursor_sealer;
use super::key_actor::key_actors;
use super::key_query::NamedKey;
use super::key_sort::SortPosition;
use super::operands::find_org;
use super::{Actor, Key, KeyQuery, Management, ManagementError, operands};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId};
use domain::management_token::TokenScope;
use domain::page::{Page, PageLimit, PageQuery};
use state::{self, KeyList, KeyPosition, Org};

/// Keys that are read for one page at most. Where few of them match the filter, the page has fewer keys than its limit.
const MAX_READ: usize = 1000;
/// Keys of a list that is read whole, at most: a few MiB, or some 40 MB where each has as many tags and networks as a
/// key may have. Also of a list that is sorted by another field than creation, before any filter.
const MAX_WHOLE: usize = 10_000;
/// Keys that are searched for those of a list that is read whole, at most.
const MAX_SEARCHED: usize = 100_000;
/// Keys that are read at a time of a list that is read whole.
const BATCH: usize = 500;

/// Looks up the keys that have, or had, these SHA-256, in hexadecimal; at most 200 of them. For the operator.
///
/// # Errors
/// [`ManagementError::InvalidDigest`], [`ManagementError::TooManyKeyIds`].
pub async fn find_keys_by_digest(
    management: &Management,
    actor: &Actor,
    sha256: &[String],
    now: Micros,
) -> Result<BTreeMap<String, KeyId>, ManagementError> {
    let own = actor.token_org();
    authorize_all(management, actor, TokenScope::KeysRead, now).await?;
    operands::check_key_count(sha256)?;
    let found = sha256.iter().map(async |text| {
        let digest = KeyDigest::from_hex(text)?;
        let Some(id) = management.state.key_of(&digest).await? else { return Ok::<_, ManagementError>(None) };
        let Some(own) = own else { return Ok(Some((text.clone(), id))) };
        // A key of another organization is reported as absent.
        let key = management.state.key(id).await?;
        Ok(key.filter(|key| key.org == own && !key.session_quota_key).map(|key| (text.clone(), key.id)))
    });
    Ok(try_join_all(found).await?.into_iter().flatten().collect())
}

/// Lists the keys of an organization, revoked ones too, a page at a time; for users who do not administer it, their
/// own. Where few keys match the filter, a page by creation can have fewer of them than its limit, or none, and a
/// cursor.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::Cursor`]; with another order than by creation
/// [`ManagementError::ListTooLong`], [`ManagementError::TooManyLists`].
pub async fn list_keys(
    management: &Management,
    actor: &Actor,
    org: &str,
    query: &KeyQuery,
    page: &PageQuery,
    now: Micros,
) -> Result<Page<Key>, ManagementError> {
    let (org, list) = open_list(management, actor, org, query, now).await?;
    let cursor = page.cursor.as_deref();
    if cursor.is_none()
        && let Some(items) = look_up_keys(management, &org, list, query, now).await?
    {
        return Ok(Page { items: with_actors(management, actor, org.id, items).await?, next: None });
    }
    let sealer = cursor_sealer(management, &("keys", list.org, list.owner, query)).await?;
    let Page { items, next } = if query.sort.is_created() {
        sealer.seal(find_keys(management, &org, list, sealer.open(cursor)?, query, page.limit, now).await?)?
    } else {
        let after = sealer.open(cursor)?;
        if !is_sortable(management, list, MAX_WHOLE).await? {
            return Err(ManagementError::ListTooLong(MAX_WHOLE));
        }
        let _turn = management.reads.acquire(actor.person()).await.map_err(|_| ManagementError::TooManyLists)?;
        sealer.seal(sort_keys(management, &org, list, after, query, page.limit, now).await?)?
    };
    Ok(Page { items: with_actors(management, actor, org.id, items).await?, next })
}

/// Number of keys of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyCount {
    /// Keys that were counted.
    pub counted: u64,
    /// True if they are all. Where a filter is to be compared, the first 1,000 keys of the list are counted.
    pub is_complete: bool,
    /// True if the list is short enough to be sorted by another field than creation.
    pub is_sortable: bool,
}

/// Counts the keys that [`list_keys`] lists, at a cost that is bounded however many there are.
///
/// # Errors
/// [`ManagementError::NoOrg`].
pub async fn count_keys(
    management: &Management,
    actor: &Actor,
    org: &str,
    query: &KeyQuery,
    now: Micros,
) -> Result<KeyCount, ManagementError> {
    let (org, list) = open_list(management, actor, org, query, now).await?;
    let is_sortable = is_sortable(management, list, MAX_WHOLE).await?;
    if query.is_unfiltered() {
        return Ok(KeyCount { counted: management.state.count_of_keys(list).await?, is_complete: true, is_sortable });
    }
    if let Some(found) = look_up_keys(management, &org, list, query, now).await? {
        return Ok(KeyCount { counted: found.len() as u64, is_complete: true, is_sortable });
    }
    let batch = management.state.page_of_keys(list, None, MAX_READ).await?;
    let shown = show_keys(management, &org, batch.items, now).await?;
    let counted = shown.iter().filter(|(_, key)| query.matches(key, now)).count() as u64;
    Ok(KeyCount { counted, is_complete: batch.next.is_none(), is_sortable })
}

/// Returns whether a list has `max` keys at most, so that a page may read them all.
async fn is_sortable(management: &Management, list: KeyList, max: usize) -> Result<bool, ManagementError> {
    Ok(management.state.count_of_keys(list).await? <= max as u64)
}

/// The list of a query, as far as the actor may read it, and its organization.
async fn open_list(
    management: &Management,
    actor: &Actor,
    org: &str,
    query: &KeyQuery,
    now: Micros,
) -> Result<(Org, KeyList), ManagementError> {
    authorize(management, actor, Access::Org(org, TokenScope::KeysRead), now).await?;
    let org = find_org(management, org).await?;
    let owner = actor.visible_owner().or_else(|| query.owner());
    let list = KeyList { org: org.id, owner, newest_first: query.descending };
    Ok((org, list))
}

/// Lists all keys of an organization that [`list_keys`] lists, when it is the turn of the actor.
///
/// # Errors
/// [`ManagementError::ListTooLong`], [`ManagementError::TooManyLists`], [`ManagementError::NoOrg`].
pub async fn list_all_keys(
    management: &Management,
    actor: &Actor,
    org: &str,
    query: &KeyQuery,
    now: Micros,
) -> Result<Vec<Key>, ManagementError> {
    let (org, list) = open_list(management, actor, org, query, now).await?;
    // As much work as that of many calls: it takes turns with the reads of the journal.
    let _turn = management.reads.acquire(actor.person()).await.map_err(|_| ManagementError::TooManyLists)?;
    let mut keys = match look_up_keys(management, &org, list, query, now).await? {
        Some(found) => found,
        None => read_list(management, &org, list, query, MAX_WHOLE, now).await?,
    };
    if !query.sort.is_created() {
        keys = sort(keys, query).into_iter().map(|(_, key)| key).collect();
    }
    let mut listed = Vec::with_capacity(keys.len());
    while !keys.is_empty() {
        let rest = keys.split_off(keys.len().min(PageLimit::MAX.get()));
        listed.extend(with_actors(management, actor, org.id, keys).await?);
        keys = rest;
    }
    Ok(listed)
}

/// A page of the keys that match the filter, in another order than by creation.
async fn sort_keys(
    management: &Management,
    org: &Org,
    list: KeyList,
    after: Option<SortPosition>,
    query: &KeyQuery,
    limit: PageLimit,
    now: Micros,
) -> Result<Page<Key, SortPosition>, ManagementError> {
    let mut keys = sort(read_list(management, org, list, query, MAX_WHOLE, now).await?, query);
    if let Some(after) = after {
        keys.retain(|(position, _)| if query.descending { *position < after } else { *position > after });
    }
    Ok(Page::cut(keys, limit.get(), |(position, _)| position.clone()).map(|(_, key)| key))
}

/// Keys in the order of a query, each with its position.
fn sort(keys: Vec<Key>, query: &KeyQuery) -> Vec<(SortPosition, Key)> {
    let mut keys: Vec<_> = keys.into_iter().map(|key| (query.sort.position(&key), key)).collect();
    keys.sort_by(|(one, _), (other, _)| if query.descending { other.cmp(one) } else { one.cmp(other) });
    keys
}

/// The keys of a list that match the filter; an error when they are more than `max`, or too many were searched.
async fn read_list(
    management: &Management,
    org: &Org,
    list: KeyList,
    query: &KeyQuery,
    max: usize,
    now: Micros,
) -> Result<Vec<Key>, ManagementError> {
    let (mut keys, mut after) = (Vec::new(), None);
    for _ in 0..MAX_SEARCHED / BATCH {
        let batch = management.state.page_of_keys(list, after, BATCH).await?;
        let shown = show_keys(management, org, batch.items, now).await?;
        keys.extend(shown.into_iter().map(|(_, key)| key).filter(|key| query.matches(key, now)));
        if keys.len() > max {
            break;
        }
        if batch.next.is_none() {
            return Ok(keys);
        }
        after = batch.next;
        // Requests of the same worker are served between two batches.
        tokio::task::yield_now().await;
    }
    Err(ManagementError::ListTooLong(max))
}

/// The key that the text of a query names, if it is in the list: one look-up however many keys there are. None when
/// the text is to be searched for.
async fn look_up_keys(
    management: &Management,
    org: &Org,
    list: KeyList,
    query: &KeyQuery,
    now: Micros,
) -> Result<Option<Vec<Key>>, ManagementError> {
    let Some(named) = query.named_key() else { return Ok(None) };
    let id = match named {
        NamedKey::Id(id) => Some(id),
        NamedKey::Digest(digest) => management.state.key_of(&digest).await?,
    };
    let key = match id {
        Some(id) => management.state.key(id).await?,
        None => None,
    };
    let is_listed = |key: &state::Key| {
        key.org == list.org && list.owner.is_none_or(|owner| owner == key.user) && !key.session_quota_key
    };
    let key = key.filter(is_listed);
    if key.is_none() && matches!(named, NamedKey::Id(_)) {
        return Ok(None);
    }
    let shown = show_keys(management, org, key.into_iter().collect(), now).await?;
    Ok(Some(shown.into_iter().map(|(_, key)| key).filter(|key| query.matches_fields(key, now)).collect()))
}

/// The keys behind a position that match the filter.
async fn find_keys(
    management: &Management,
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
        let batch = management.state.page_of_keys(list, after, limit).await?;
        let end = batch.items.last().map(KeyPosition::from);
        for (position, key) in show_keys(management, org, batch.items, now).await? {
            after = Some(position);
            items.extend(Some(key).filter(|key| query.matches(key, now)));
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
    management: &Management,
    org: &Org,
    keys: Vec<state::Key>,
    now: Micros,
) -> Result<Vec<(KeyPosition, Key)>, ManagementError> {
    let ids: HashSet<UserId> = keys.iter().map(|key| key.user).collect();
    let users = try_join_all(ids.into_iter().map(|id| management.state.member(org.id, id))).await?;
    let users: HashMap<UserId, state::User> = users.into_iter().flatten().map(|(_, user)| (user.id, user)).collect();
    let defaults = management.state.defaults();
    let show = |key: &state::Key| {
        let user = users.get(&key.user);
        Key::new(key, user, Some(org), defaults.limits_of_key(key, user, Some(org)), now)
    };
    Ok(keys.iter().map(|key| (KeyPosition::from(key), show(key))).collect())
}

/// Keys of an organization with their actors, as the viewer may know them.
async fn with_actors(
    management: &Management,
    viewer: &Actor,
    org: OrgId,
    keys: Vec<Key>,
) -> Result<Vec<Key>, ManagementError> {
    let ids: Vec<KeyId> = keys.iter().map(|key| key.id).collect();
    let actors = key_actors(management, viewer, org, &ids).await?;
    Ok(keys.into_iter().zip(&actors).map(|(key, actors)| key.with_actors(actors)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::uses::tests::{OPERATOR, management};
    use super::*;
    use crate::management::{self, NewKeyRequest, PolicyUpdate, SecretSource, UserGrants};

    #[tokio::test]
    async fn list_of_more_pages_is_refused_and_not_cut() {
        let directory = tempfile::tempdir().unwrap();
        let management = management(directory.path());
        let now = Micros(1_700_000_000_000_000);
        management::create_org(&management, OPERATOR, "acme", None, now).await.unwrap();
        management::create_user(&management, OPERATOR, "acme", "ada@example.com", UserGrants::default(), now)
            .await
            .unwrap();
        for number in 0..=PageLimit::MAX.get() {
            let name = format!("key {number}");
            let request =
                NewKeyRequest { user: "ada@example.com", name: &name, policy: PolicyUpdate::default(), plan: None };
            management::create_key(&management, OPERATOR, "acme", request, SecretSource::Generated, now).await.unwrap();
        }
        let query = KeyQuery::default();
        let (org, list) = open_list(&management, OPERATOR, "acme", &query, now).await.unwrap();
        let read = async |max| read_list(&management, &org, list, &query, max, now).await;
        assert!(matches!(read(100).await, Err(ManagementError::ListTooLong(100))));
        assert_eq!(read(101).await.unwrap().len(), 101);
        assert!(
            !is_sortable(&management, list, 100).await.unwrap() && is_sortable(&management, list, 101).await.unwrap()
        );
        let all = list_all_keys(&management, OPERATOR, "acme", &KeyQuery::default(), now).await.unwrap();
        assert_eq!(all.len(), 101);
    }
}
