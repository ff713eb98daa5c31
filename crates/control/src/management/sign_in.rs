//! Sign-in with an identity provider: finds or adds the user in each organization that the provider vouches for, and
//! starts a session.

use super::actor::AuditActor;
use super::operands::look_up_org;
use super::sessions::{NewSession, start_session};
use super::users::{NewUser, add_user, set_permissions};
use super::{Actor, ClientInfo, Management, ManagementError, operands};
use domain::clock::Micros;
use domain::identity::{OrgId, Permission, UserId, Voucher};
use domain::names;
use domain::secret::Secret;
use domain::session::{Token, TokenDigest};
use state::{self, Change, Membership, Session, TicketSource};

/// Bytes of an ID token that a session keeps. Without it, the provider asks the user before signing them out.
const MAX_ID_TOKEN: usize = 8 << 10;

/// Identity that a provider vouches for, as the configuration maps its claims.
#[derive(Clone, Debug)]
pub struct ProviderSignIn {
    /// The provider, and the person there.
    pub vouched_by: Voucher,
    /// The user's email address: verified, or trusted by the configuration.
    pub email: String,
    /// The user's organizations and permissions.
    pub entitlements: Entitlements,
    /// The ID token, for `id_token_hint` when the user signs out.
    pub id_token: Option<Secret>,
    /// The session that the browser presented, which ends.
    pub previous: Option<TokenDigest>,
}

/// Organizations and permissions of a user, by their provider's claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entitlements {
    /// The user's organizations, by name or id, from the claims. The user is added to those that do not have them.
    /// None: the claims do not say; the user belongs to the organizations whose directory has their address.
    pub orgs: Option<Vec<String>>,
    /// The only organizations, by name or id, that this provider may vouch for; none: all.
    pub only: Option<Vec<String>>,
    /// The user's permissions in each organization, from the claims; none: those in the directory.
    pub permissions: Option<Vec<Permission>>,
}

impl Entitlements {
    /// Returns whether the provider may vouch for memberships of an organization.
    pub(super) fn reach(&self, org: &state::Org) -> bool {
        self.only.as_deref().is_none_or(|only| name_org(only, org))
    }

    /// Returns whether the claims say which organizations the user belongs to, and this is none of them.
    pub(super) fn leave_out(&self, org: &state::Org) -> bool {
        self.orgs.as_deref().is_some_and(|orgs| !name_org(orgs, org))
    }
}

/// Signs in the user that a provider vouches for: starts a session and returns the token for the browser.
///
/// # Errors
/// [`ManagementError::NoMembership`] when the user belongs to no organization; others as for all operations.
pub async fn sign_in_with_provider(
    management: &Management,
    sign_in: ProviderSignIn,
    client: ClientInfo,
    now: Micros,
) -> Result<(Token, Session), ManagementError> {
    let ProviderSignIn { vouched_by, email, entitlements, id_token, previous } = sign_in;
    let email = names::validate_email(&email)?;
    let visitor = Actor::Visitor(client.clone());
    let by = AuditActor { actor: &visitor, now };
    let memberships = sync_memberships(management, &email, &entitlements, &vouched_by, by).await?;
    let id_token = id_token.map(|token| token.expose().to_owned()).filter(|token| token.len() <= MAX_ID_TOKEN);
    let Voucher { provider, person } = vouched_by;
    let new_session = NewSession { memberships, person, email, provider: Some(provider), id_token, previous };
    start_session(management, new_session, client, now).await
}

/// Finds the user in each of their organizations, adds them where the provider vouches for a membership, and
/// updates their permissions.
async fn sync_memberships(
    management: &Management,
    email: &str,
    entitlements: &Entitlements,
    vouched_by: &Voucher,
    by: AuditActor<'_>,
) -> Result<Vec<Membership>, ManagementError> {
    let users = management.state.users_by_email(email).await?;
    let mut memberships = Vec::new();
    for org in candidate_orgs(management, entitlements.orgs.as_deref(), &users).await? {
        // A provider of one customer must not sign its users in to the organization of another customer.
        if !entitlements.reach(&org) {
            continue;
        }
        let mut of_org = users.iter().filter(|user| user.org == org.id);
        let user = match of_org.clone().find(|user| user.removed.is_none()) {
            // A suspension outranks the provider: they do not come back by signing in.
            Some(user) if user.suspended.is_some() => continue,
            Some(user) => sync_user(management, user.clone(), entitlements, vouched_by, by).await?,
            // The claims name no organizations, so the directory decides, and it does not have the user.
            None if entitlements.orgs.is_none() => continue,
            // An administrator removed them here, and that outranks the provider: they do not
            // come back by signing in.
            None if of_org.any(|user| user.removed.is_some()) => continue,
            None => {
                let permissions = entitlements.permissions.clone().unwrap_or_default();
                let vouched_by = Some(vouched_by.clone());
                let new = NewUser { org: org.id, email, grants: permissions.into(), vouched_by, responsible: None };
                add_user(management, new, by).await?.id
            }
        };
        memberships.push(Membership { org: org.id, user });
    }
    if memberships.is_empty() { Err(ManagementError::NoMembership(email.to_owned())) } else { Ok(memberships) }
}

/// The organizations that a person may belong to, oldest first: those that the claims name; without such claims
/// those whose directory has the person. No other organization is looked at.
async fn candidate_orgs(
    management: &Management,
    claimed: Option<&[String]>,
    users: &[state::User],
) -> Result<Vec<state::Org>, ManagementError> {
    let mut orgs = Vec::new();
    match claimed {
        Some(references) => {
            for reference in references {
                orgs.extend(look_up_org(management, reference).await?);
            }
        }
        None => {
            for user in users.iter().filter(|user| user.is_active()) {
                orgs.extend(management.state.org(user.org).await?);
            }
        }
    }
    orgs.sort_by_key(|org| (org.created, org.id));
    orgs.dedup_by_key(|org| org.id);
    Ok(orgs)
}

/// Sets a user's permissions to those that the provider claims, if it claims any. Where its claims name the
/// organization, the provider vouches for the user from now on: a user of the operator's becomes the provider's,
/// and a withdrawal is taken back.
async fn sync_user(
    management: &Management,
    user: state::User,
    entitlements: &Entitlements,
    vouched_by: &Voucher,
    by: AuditActor<'_>,
) -> Result<UserId, ManagementError> {
    let id = user.id;
    let claimed = entitlements.permissions.clone().map(operands::normalize_permissions);
    let permissions = claimed.unwrap_or_else(|| user.permissions.clone());
    let vouched_by = entitlements.orgs.is_some().then(|| vouched_by.clone());
    let is_vouched = vouched_by.is_none() || vouched_by == user.vouched_by;
    if permissions != user.permissions || user.withdrawn.is_some() || !is_vouched {
        set_permissions(management, user, permissions, vouched_by, by).await?;
    }
    Ok(id)
}

/// Stores what a sign-in under way needs when the browser comes back from the provider.
///
/// # Errors
/// [`ManagementError::NotAcknowledged`].
pub async fn store_pending_sign_in(
    management: &Management,
    digest: TokenDigest,
    content: Vec<u8>,
    expires: Micros,
    client: &ClientInfo,
) -> Result<(), ManagementError> {
    let source = TicketSource::Visitor(client.ip);
    Ok(management.state.change(Change::PutTicket { digest, content, expires, source }).await?)
}

/// Takes what was stored for a sign-in under way: once, so that a callback that is replayed finds nothing.
///
/// # Errors
/// [`ManagementError::StateUnavailable`].
pub async fn take_pending_sign_in(
    management: &Management,
    digest: &TokenDigest,
    now: Micros,
) -> Result<Option<Vec<u8>>, ManagementError> {
    Ok(management.state.take_ticket(digest, now).await?)
}

/// Returns whether one of these references, ids or names, names an organization.
fn name_org(references: &[String], org: &state::Org) -> bool {
    let is_name = |name: &String| name.parse::<OrgId>().map_or(*name == org.name, |id| id == org.id);
    references.iter().any(is_name)
}
