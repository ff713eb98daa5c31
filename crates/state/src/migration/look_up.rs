//! Look-up of a batch on the target: which records are absent, what is withdrawn from the others, and in what they
//! conflict.

use std::collections::{BTreeMap, HashMap};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::BATCH;
use super::found::Found;
use super::report::Mismatch;
use crate::import::{DigestClaim, DigestOwner, ImportError, Importer};
use crate::{ActorName, FederationRule, KeyExport, MAX_TOKENS, Org, SpentExport, StateRecord, User, UserExport};
use domain::budget::BudgetSubject;
use domain::clock::{self, Micros};
use domain::identity::UserId;
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::{ManagementToken, TokenId};

/// Looks up records of one kind; users, rules and spendings are of the organization with this tag.
pub(super) async fn look_up(
    store: Importer<'_>,
    tag: Option<OrgTag>,
    batch: &[StateRecord],
) -> Result<Vec<Found>, ImportError> {
    if let Some(StateRecord::Token(_)) = batch.first() {
        return look_up_tokens(store, batch).await;
    }
    let users = &read_users(store, batch).await?;
    let found = batch.iter().map(async |record| match record {
        StateRecord::Org(org) => look_up_org(store, org, record).await,
        StateRecord::User(user) => look_up_user(store, tag, user, record).await,
        StateRecord::Key(key) => look_up_key(store, key, record, users).await,
        StateRecord::Digests(key, digests) => match store.key(*key).await? {
            Some(_) => look_up_digests(store, *key, digests.iter()).await,
            None => Ok(Found::conflict(Mismatch::Missing)),
        },
        StateRecord::Rule(rule) => look_up_rule(store, tag, rule, record).await,
        StateRecord::Spent(spent) => look_up_spent(store, tag, spent).await,
        StateRecord::Token(_) => unreachable!("tokens are looked up together, above"),
    });
    stream::iter(found).buffered(BATCH).try_collect().await
}

async fn look_up_org(store: Importer<'_>, org: &Org, record: &StateRecord) -> Result<Found, ImportError> {
    let stored = store.org(org.tag).await?;
    if let Some(other) = stored.as_ref().filter(|stored| stored.id != org.id) {
        return Ok(Found::conflict(Mismatch::TagTaken(other.id)));
    }
    let listed = store.tag_of(org.id).await?;
    if let Some(tag) = listed.filter(|tag| *tag != org.tag) {
        return Ok(Found::conflict(Mismatch::OtherTag(tag)));
    }
    let found = match &stored {
        Some(stored) => Found::compare(record, &StateRecord::Org(stored.clone())),
        None => Found::absent(),
    };
    if listed.is_some() {
        return Ok(found);
    }
    // An import that ended between the record and the list leaves a record that claims no name: another one may have
    // it.
    let unlisted = stored.unwrap_or_else(|| org.clone());
    let by = store.org_id_by_name(&unlisted.name).await?;
    Ok(match by.filter(|by| *by != org.id.to_string()) {
        Some(by) => Found::conflict(Mismatch::NameTaken { name: unlisted.name, by }),
        None => Found { unlisted: Some(unlisted), ..found },
    })
}

async fn look_up_user(
    store: Importer<'_>,
    tag: Option<OrgTag>,
    export: &UserExport,
    record: &StateRecord,
) -> Result<Found, ImportError> {
    let user = &export.user;
    let tag = tag.expect("users without an organization on the target are left out");
    if let Some(stored) = store.user(tag, user.id).await? {
        // Usage is not compared.
        let stored = StateRecord::User(Box::new(UserExport { user: stored, creation: None }));
        return Ok(Found::compare(record, &stored));
    }
    if let Some(elsewhere) = store.user_elsewhere(user.org, user.id, Some(&user.email)).await? {
        let stored = StateRecord::User(Box::new(UserExport { user: elsewhere, creation: None }));
        return Ok(Found::compare(record, &stored));
    }
    if let Some(person) = user.responsible
        && !may_be_responsible(store, tag, user, person).await?
    {
        return Ok(Found::conflict(Mismatch::Responsible(person)));
    }
    // A removed user has no claim on the email address: another one may have it.
    if user.removed.is_some() {
        return Ok(Found::absent());
    }
    Ok(match store.user_id_by_email(tag, &user.email).await? {
        Some(by) => Found::conflict(Mismatch::EmailTaken { email: user.email.clone(), by }),
        None => Found::absent(),
    })
}

/// Returns whether a person can be responsible for a service: one of its organization, removed or not, or one who is
/// not on the target, as in a file.
async fn may_be_responsible(
    store: Importer<'_>,
    tag: OrgTag,
    service: &User,
    person: UserId,
) -> Result<bool, ImportError> {
    match store.user(tag, person).await? {
        Some(found) => Ok(found.org == service.org && !found.is_service()),
        None => Ok(store.user_elsewhere(service.org, person, None).await?.is_none()),
    }
}

/// Reads the users of keys, as far as they exist on the target.
async fn read_users(store: Importer<'_>, records: &[StateRecord]) -> Result<HashMap<UserId, User>, ImportError> {
    let ids: HashMap<UserId, &KeyExport> = records.iter().filter_map(as_key).map(|key| (key.key.user, key)).collect();
    let read = ids.into_values().map(async |key| {
        let user = store.user(key.key.id.tag(), key.key.user).await?;
        Ok::<_, ImportError>(user.filter(|user| user.org == key.key.org).map(|user| (user.id, user)))
    });
    let users: Vec<Option<(UserId, User)>> = stream::iter(read).buffer_unordered(BATCH).try_collect().await?;
    Ok(users.into_iter().flatten().collect())
}

async fn look_up_key(
    store: Importer<'_>,
    export: &KeyExport,
    record: &StateRecord,
    users: &HashMap<UserId, User>,
) -> Result<Found, ImportError> {
    if !users.contains_key(&export.key.user) {
        return Ok(Found::conflict(Mismatch::OwnerMissing));
    }
    let found = match store.key(export.key.id).await? {
        None => Found::absent(),
        Some(stored) => Found::compare(record, &StateRecord::Key(Box::new(stored))),
    };
    if found.conflict.as_ref().is_some_and(Mismatch::is_of_other_digests) {
        return Ok(found);
    }
    // Of a key that is there as well: a failover may have lost a digest, without which its secret is unknown.
    let digests = look_up_digests(store, export.key.id, export.digests()).await?;
    if digests.conflict.is_some() && found.conflict.is_none() {
        return Ok(Found { withdrawals: found.withdrawals, ..digests });
    }
    Ok(Found { claims: digests.claims, ..found })
}

/// The digests that a key has to claim, or the conflict with another key that has one of them.
async fn look_up_digests(
    store: Importer<'_>,
    key: KeyId,
    digests: impl Iterator<Item = &KeyDigest>,
) -> Result<Found, ImportError> {
    let mut claims = Vec::new();
    for digest in digests {
        let claim = |abandoned_by| DigestClaim { digest: *digest, key, abandoned_by };
        match store.digest_owner(digest, key).await? {
            DigestOwner::Itself => {}
            DigestOwner::None => claims.push(claim(None)),
            DigestOwner::Abandoned(by) => claims.push(claim(Some(by))),
            DigestOwner::Other(by) => return Ok(Found::conflict(Mismatch::DigestTaken(by))),
        }
    }
    Ok(Found { claims, ..Found::default() })
}

async fn look_up_rule(
    store: Importer<'_>,
    tag: Option<OrgTag>,
    rule: &FederationRule,
    record: &StateRecord,
) -> Result<Found, ImportError> {
    if let Some(stored) = store.rule(rule.org, &rule.name).await? {
        return Ok(Found::compare(record, &StateRecord::Rule(Box::new(stored))));
    }
    let tag = tag.expect("rules without an organization on the target are left out");
    let user = store.user(tag, rule.user).await?;
    let is_service = user.is_some_and(|user| user.org == rule.org && user.is_service());
    Ok(if is_service { Found::absent() } else { Found::conflict(Mismatch::OwnerMissing) })
}

/// Spending that began later on the target stays, and of the same start the larger one.
async fn look_up_spent(store: Importer<'_>, tag: Option<OrgTag>, spent: &SpentExport) -> Result<Found, ImportError> {
    let tag = tag.expect("spendings without an organization on the target are left out");
    let org = match spent.subject {
        BudgetSubject::Key(key) => store.key(key).await?.map(|export| export.key.org),
        BudgetSubject::User(user) => store.user(tag, user).await?.map(|user| user.org),
        BudgetSubject::Org(org) => Some(org),
    };
    if org != Some(spent.org) {
        return Ok(Found::conflict(Mismatch::OwnerMissing));
    }
    let stored = store.spending(tag, spent.subject).await?;
    Ok(if stored.imported(spent.start, spent.units).is_some() { Found::absent() } else { Found::default() })
}

/// Tokens are created as far as there is room for them.
async fn look_up_tokens(store: Importer<'_>, batch: &[StateRecord]) -> Result<Vec<Found>, ImportError> {
    let now = clock::now();
    let mut all: BTreeMap<TokenId, ManagementToken> =
        store.tokens().await?.into_iter().map(|token| (token.id, token)).collect();
    let most = usize::try_from(MAX_TOKENS).expect("a constant");
    let mut room = most.saturating_sub(all.values().filter(|token| now < token.expires).count());
    let of_batch = batch.iter().filter_map(as_token);
    let ended = Revocations::of(all.values().chain(of_batch));
    let mut found = Vec::with_capacity(batch.len());
    for record in batch {
        let StateRecord::Token(token) = record else { unreachable!("records of one kind are looked up together") };
        let stored = all.get(&token.id).cloned().map(|stored| StateRecord::Token(Box::new(stored)));
        let of_token = match stored {
            _ if token.expires <= now => Found { is_expired: true, ..Found::default() },
            Some(stored) => Found::compare(record, &stored),
            None => match all.values().find(|other| other.digest == token.digest) {
                Some(other) => Found::conflict(Mismatch::SecretTaken(other.id)),
                None => Found { revoked: ended.of_makers(token), ..look_up_new_token(store, token, room).await? },
            },
        };
        if of_token.is_absent {
            room -= 1;
            all.insert(token.id, (**token).clone());
        }
        found.push(of_token);
    }
    Ok(found)
}

/// The revocations of tokens, those of the target before those of the file, by which the tokens end that they have
/// made. A token of the file may have been made by one that the target has revoked meanwhile.
struct Revocations(BTreeMap<TokenId, (Option<TokenId>, Option<Micros>)>);

impl Revocations {
    fn of<'a>(tokens: impl Iterator<Item = &'a ManagementToken>) -> Self {
        let mut revocations = BTreeMap::new();
        for token in tokens {
            let entry: &mut (_, Option<Micros>) = revocations.entry(token.id).or_insert((maker(token), token.revoked));
            entry.1 = entry.1.or(token.revoked);
        }
        Self(revocations)
    }

    /// The time at which the token was revoked that has made this one, or that has made that one, and so on.
    fn of_makers(&self, token: &ManagementToken) -> Option<Micros> {
        let mut next = maker(token);
        // A file may have tokens that have made each other: each is visited once at most.
        for _ in 0..=self.0.len() {
            let (by, revoked) = self.0.get(&next?)?;
            if revoked.is_some() {
                return *revoked;
            }
            next = *by;
        }
        None
    }
}

fn maker(token: &ManagementToken) -> Option<TokenId> {
    ActorName::new(token.created_by.as_str()).token()
}

async fn look_up_new_token(store: Importer<'_>, token: &ManagementToken, room: usize) -> Result<Found, ImportError> {
    Ok(if !has_owner(store, token).await? {
        Found::conflict(Mismatch::OwnerMissing)
    } else if room == 0 {
        Found::conflict(Mismatch::TooManyTokens(MAX_TOKENS))
    } else {
        Found::absent()
    })
}

/// Returns whether the organization and the administrator of a token, if it has any, are on the target.
async fn has_owner(store: Importer<'_>, token: &ManagementToken) -> Result<bool, ImportError> {
    let Some(org) = token.org else { return Ok(true) };
    let Some(tag) = store.tag_of(org).await? else { return Ok(false) };
    let Some(admin) = token.admin else { return Ok(true) };
    Ok(store.user(tag, admin).await?.is_some_and(|admin| admin.org == org))
}

pub(super) fn as_token(record: &StateRecord) -> Option<&ManagementToken> {
    if let StateRecord::Token(token) = record { Some(token) } else { None }
}

pub(super) fn as_key(record: &StateRecord) -> Option<&KeyExport> {
    if let StateRecord::Key(key) = record { Some(key) } else { None }
}
