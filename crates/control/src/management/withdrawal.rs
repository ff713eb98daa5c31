//! Withdrawal of users: what an identity provider no longer vouches for ends at the person's next sign-in
//! (offboarding), also at one that is refused.
//!
//! - A provider withdraws the users for whom it has vouched itself: in the organizations that it may speak for, where
//!   its claims name organizations and this one is none of them. It never withdraws a user whom only the operator has
//!   entered, or for whom another provider has vouched since.
//! - The users are found by the person, so that a changed or unverified address saves no user, and by the verified
//!   address, so that a changed `sub` does not either.
//! - A withdrawn user keeps keys and record. A later claim takes the withdrawal back, and so does the operator.

use super::actor::AuditActor;
use super::audited_change::{Target, apply_change};
use super::session_end::end_memberships;
use super::{Actor, ClientInfo, Entitlements, Management, ManagementError};
use domain::clock::Micros;
use domain::identity::Voucher;
use domain::names;
use state::{self, Change};

/// Withdraws the users for whom a provider no longer vouches by these claims. To be called for every person
/// whom a provider has authenticated, whether or not the sign-in succeeds. `email` is an address that the
/// provider has verified.
///
/// # Errors
/// As for all operations.
pub async fn withdraw_unclaimed(
    management: &Management,
    vouched_by: &Voucher,
    email: Option<&str>,
    entitlements: &Entitlements,
    client: &ClientInfo,
    now: Micros,
) -> Result<(), ManagementError> {
    if entitlements.orgs.is_none() {
        return Ok(());
    }
    let visitor = Actor::Visitor(client.clone());
    let by = AuditActor { actor: &visitor, now };
    for user in find_vouched(management, vouched_by, email).await? {
        let Some(org) = management.state.org(user.org).await? else { continue };
        if entitlements.reach(&org) && entitlements.leave_out(&org) {
            withdraw_user(management, &user, by).await?;
        }
    }
    Ok(())
}

/// The users, neither removed nor withdrawn, for whom this provider has vouched, by the person and by the address.
async fn find_vouched(
    management: &Management,
    vouched_by: &Voucher,
    email: Option<&str>,
) -> Result<Vec<state::User>, ManagementError> {
    let mut users = management.state.users_by_person(&vouched_by.person).await?;
    if let Some(Ok(email)) = email.map(names::validate_email) {
        users.extend(management.state.users_by_email(&email).await?);
    }
    let is_vouched =
        |user: &state::User| user.vouched_by.as_ref().is_some_and(|voucher| voucher.provider == vouched_by.provider);
    users.retain(|user| user.removed.is_none() && user.withdrawn.is_none() && is_vouched(user));
    users.sort_by_key(|user| user.id);
    users.dedup_by_key(|user| user.id);
    Ok(users)
}

async fn withdraw_user(management: &Management, user: &state::User, by: AuditActor<'_>) -> Result<(), ManagementError> {
    let change = Change::WithdrawUser { org: user.org, user: user.id, at: by.now };
    // The user first: from then on no session acts there, also one that begins meanwhile.
    apply_change(management, "user.withdraw", Target::of_user(user), change, by).await?;
    end_memberships(management, user, by).await
}
