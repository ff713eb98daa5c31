//! Look-ups of records of the directory.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::dispatch::{either, lookups};
use super::identity::IdentityGuard;
use super::redis::IdentityRecord;
use super::redis::directory::{
    self, KeyActorIndex, Keys, ManagementTokens, Orgs, Sessions, Spendings, UserIndex, Users,
};
use super::{
    ActorName, ChangeError, CredentialStatus, CursorSecret, FederationRule, IdempotencyPlace, IdempotencyRecord, Key,
    KeyActors, KeyList, KeyPosition, Org, RevocationLog, Session, State, StorageError, Unavailable, User, Validity,
};
use crate::spending::Spending;
use domain::budget::BudgetSubject;
use domain::clock::Micros;
use domain::identity::{OrgId, PersonId, Principal, SessionId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::{ManagementToken, TokenId, TokenUse};
use domain::page::Page;
use domain::quota::RateLimitStatus;
use domain::session::TokenDigest;

lookups! {
    /// All organizations, in the order of their creation.
    orgs() -> Vec<Org> {
        embedded => embedded.tree().orgs(),
        redis => Orgs(redis).list(),
    }

    /// Some organizations in the order of their creation, from a position on; at most `limit`, at least 1.
    page_of_orgs(from: u64, limit: usize) -> Page<Org, u64> {
        embedded => embedded.tree().page_of_orgs(from, limit),
        redis => Orgs(redis).page(from, limit),
    }

    /// One organization.
    org(id: OrgId) -> Option<Org> {
        embedded => embedded.tree().org(id),
        redis => Orgs(redis).find(id),
    }

    /// The organization with this name.
    org_by_name(name: &str) -> Option<Org> {
        embedded => embedded.tree().org_by_name(name),
        redis => Orgs(redis).find_by_name(name),
    }

    /// All users of an organization, removed ones too, in the order of their creation.
    users(org: OrgId) -> Vec<User> {
        embedded => embedded.tree().users(org),
        redis => Users(redis).list(org),
    }

    /// Some users of an organization in the order of their creation, removed ones too, from a position on; at most
    /// `limit`, at least 1.
    page_of_users(org: OrgId, from: u64, limit: usize) -> Page<User, u64> {
        embedded => embedded.tree().page_of_users(org, from, limit),
        redis => Users(redis).page(org, from, limit),
    }

    /// The user of an organization with this email address, in lower case. Removed users are not found.
    user_by_email(org: OrgId, email: &str) -> Option<User> {
        embedded => embedded.tree().users.by_email_of(org, email),
        redis => Users(redis).find_by_email(org, email),
    }

    /// An organization and one of its users, who may be removed; none when either does not exist.
    member(org: OrgId, user: UserId) -> Option<(Org, User)> {
        embedded => embedded.tree().member(org, user),
        redis => Users(redis).find_member(org, user),
    }

    /// The users with this email address, in lower case, in all organizations; removed ones too. The look-up takes the
    /// same time however many organizations there are.
    users_by_email(email: &str) -> Vec<User> {
        embedded => embedded.tree().users.by_email(email),
        redis => UserIndex(redis).list_by_email(email),
    }

    /// The users for whose memberships a provider has vouched as this person, in all organizations; removed and
    /// withdrawn ones too.
    users_by_person(person: &PersonId) -> Vec<User> {
        embedded => embedded.tree().users.by_person(person),
        redis => UserIndex(redis).list_by_person(person),
    }

    /// All keys of an organization in the order of their creation, revoked ones too for the time of
    /// [`super::Bounds::keep_revoked`]. Session quota keys are left out.
    keys(org: OrgId) -> Vec<Key> {
        embedded => embedded.keys(org),
        redis => directory::KeyList(redis).list(org),
    }

    /// Some keys of a list behind a position, none for its beginning; at most `limit`, at least 1. Revoked keys are
    /// listed too, session quota keys are not.
    page_of_keys(list: KeyList, after: Option<KeyPosition>, limit: usize) -> Page<Key, KeyPosition> {
        embedded => embedded.page_of_keys(list, after, limit),
        redis => directory::KeyList(redis).page(list, after, limit),
    }

    /// The number of keys of a list, which costs the same however many there are.
    count_of_keys(list: KeyList) -> u64 {
        embedded => embedded.count_of_keys(list),
        redis => directory::KeyList(redis).count(list),
    }

    /// One key, also one that is no longer listed.
    key(id: KeyId) -> Option<Key> {
        embedded => embedded.key(id).await,
        redis => Keys(redis).find(id),
    }

    /// The actors of keys of one organization, in their order.
    key_actors(keys: &[KeyId]) -> Vec<KeyActors> {
        embedded => embedded.key_actors(keys).await,
        redis => KeyActorIndex(redis).read(keys),
    }

    /// The keys of an organization that these actors created and that are not revoked, in no order. It reads the actors
    /// of all keys.
    keys_created_by(org: &Org, makers: &BTreeSet<ActorName>) -> Vec<KeyId> {
        embedded => embedded.keys_created_by(org.id, makers).await,
        redis => KeyActorIndex(redis).created_by(org.tag, makers),
    }

    /// Returns what a subject of the organization with this tag has spent of its budget, in the last period in which it
    /// did.
    spending_of(tag: OrgTag, subject: BudgetSubject) -> Spending {
        embedded => embedded.spending_of(subject),
        redis => Spendings(redis).read(tag, subject),
    }

    /// All management tokens, live or not, in no order.
    management_tokens() -> Vec<ManagementToken> {
        embedded => embedded.management_tokens(),
        redis => ManagementTokens(redis).list(),
    }

    /// The last uses of management tokens, in their order, as gateways have written them.
    token_uses(tokens: &[TokenId]) -> Vec<Option<TokenUse>> {
        embedded => embedded.token_uses(tokens),
        redis => ManagementTokens(redis).uses(tokens),
    }

    /// The key that has, or had, this digest.
    key_of(digest: &KeyDigest) -> Option<KeyId> {
        embedded => embedded.key_of(digest),
        redis => Keys(redis).find_by_digest(digest),
    }

    /// The federation rule of an organization with this name.
    federation_rule(org: OrgId, name: &str) -> Option<FederationRule> {
        embedded => embedded.federation_rules().find(org, name),
        redis => redis.federation_rules().find(org, name),
    }

    /// The federation rules of an organization, by their names.
    federation_rules(org: OrgId) -> Vec<FederationRule> {
        embedded => embedded.federation_rules().list(org),
        redis => redis.federation_rules().list(org),
    }

    /// The live session with this id. The look-up does not count as a use.
    session_by_id(id: SessionId, now: Micros) -> Option<Session> {
        embedded => embedded.session_by_id(id, now),
        redis => Sessions(redis).find(id, now),
    }

    /// All sessions that are live at this time, oldest first. The look-up does not count as a use.
    sessions(now: Micros) -> Vec<Session> {
        embedded => embedded.sessions(now),
        redis => Sessions(redis).list(now),
    }

    /// The sessions of members of an organization that are live at this time, oldest first. The look-up reads no other
    /// organization's sessions, and does not count as a use.
    sessions_of_org(org: OrgId, now: Micros) -> Vec<Session> {
        embedded => embedded.sessions_of_org(org, now),
        redis => Sessions(redis).list_of_org(org, now),
    }

    /// The sessions of a person that count against the bound of sessions: also those that went unused for too long and
    /// are not yet removed. Oldest first.
    sessions_of_person(person: &PersonId) -> Vec<Session> {
        embedded => embedded.sessions_of_person(person),
        redis => Sessions(redis).list_of_person(person),
    }

    /// The live record of a request with an idempotency key. With Redis it lives by the server's clock.
    idempotency_record(place: IdempotencyPlace, id: &[u8; 32], now: Micros) -> Option<IdempotencyRecord> {
        embedded => embedded.idempotency_record(id, now).await,
        redis => redis.read_idempotency_record(place, id),
    }

    /// The secret that the cursors of lists are sealed with.
    cursor_secret() -> CursorSecret {
        embedded => embedded.cursor_secret(),
        redis => redis.read_cursor_secret(),
    }
}

impl State {
    /// The live session with this digest. The look-up counts as a use.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn session(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Session>, Unavailable> {
        let found = match self {
            state if state.identity().is_broken() => return Err(Unavailable::Lost),
            Self::Embedded(state) if state.is_frozen() => Box::pin(state.session_after_handover(digest, now)).await,
            Self::Embedded(state) => Ok(state.session(digest, now)),
            Self::Redis(state) => Sessions(&state.transactions).use_live(digest, now).await,
        }?;
        self.confirm_found(found).await
    }

    /// Takes a ticket and returns its content; none when it does not exist, has expired, or was taken before. When this
    /// returns, the removal is durable.
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`] and [`ChangeError::Closed`]; the ticket may be gone then.
    pub async fn take_ticket(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        let taken = match self {
            Self::Embedded(state) => state.take_ticket(digest, now).await,
            Self::Redis(state) => directory::Tickets(&state.transactions).take(digest, now).await,
        }?;
        let lost = |error| ChangeError::Unavailable(StorageError::Redis(error));
        self.confirm_found(taken).await.map_err(lost)
    }

    /// The rate-limit status of a key. Takes nothing.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn rate_limit_status(&self, id: KeyId, now: Micros) -> Result<Option<RateLimitStatus>, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.rate_limit_status(id, now)),
            Self::Redis(state) => state.rate_limit_status(id, now).await,
        }
    }

    /// The management token with this id, live or not.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn management_token(&self, id: TokenId) -> Result<Option<ManagementToken>, Unavailable> {
        let found = match self {
            state if state.identity().is_broken() => return Err(Unavailable::Lost),
            Self::Embedded(state) => state.management_token(id),
            Self::Redis(state) => super::redis::read(ManagementTokens(&state.transactions).find(id)).await?,
        };
        self.confirm_found(found).await
    }

    /// Continuity of the state, by which a state that was lost is noticed.
    pub fn identity(&self) -> &Arc<IdentityGuard> {
        match self {
            Self::Embedded(state) => state.identity(),
            Self::Redis(state) => &state.transactions.shared.identity,
        }
    }

    /// Returns whether the state has organizations; also while it is not served.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn has_orgs(&self) -> Result<bool, Unavailable> {
        Ok(!match self {
            Self::Embedded(state) => state.tree().page_of_orgs(0, 1).items.is_empty(),
            Self::Redis(state) => super::redis::read(Orgs(&state.transactions).page(0, 1)).await?.items.is_empty(),
        })
    }

    /// Confirms that a credential that was not found is unknown, and not lost with the state.
    pub(super) async fn confirm_found<T>(&self, found: Option<T>) -> Result<Option<T>, Unavailable> {
        if let (Self::Redis(state), None) = (self, &found) {
            let identity = IdentityRecord(&state.transactions);
            identity.confirm_unknown(None, identity.failovers()).await?;
        }
        Ok(found)
    }

    /// The log of revocations, which ends exchanges that are open.
    pub fn revocations(&self) -> &Arc<RevocationLog> {
        either!(self, state => state.revocations())
    }

    /// Checks whether the credential of an admitted request is still valid, with its user and organization. Takes
    /// nothing, and is no use of a session.
    ///
    /// # Errors
    /// [`Unavailable`]; the embedded state always answers.
    pub async fn check_credential(
        &self,
        principal: &Principal,
        validity: &Validity,
        now: Micros,
    ) -> Result<CredentialStatus, Unavailable> {
        match self {
            Self::Embedded(state) => Ok(state.check_credential(validity, now)),
            Self::Redis(state) => state.check_credential(principal, validity, now).await,
        }
    }
}
