//! Authentication of the programs that present management tokens.

use super::{ClientInfo, Conditions, Management, ManagementError, Program, TokenStatus};
use domain::clock::Micros;
use domain::management_token;
use domain::session::TokenDigest;

/// Authenticates the program that presents a token. `sans` are the subject alternative names of its certificate.
///
/// # Errors
/// [`ManagementError::TokenUnknown`], [`ManagementError::TokenExpired`], [`ManagementError::TokenAddress`],
/// [`ManagementError::TokenCertificate`]; [`ManagementError::TokenUnverified`] when the state does not answer.
pub async fn authenticate_token(
    management: &Management,
    presented: &[u8],
    sans: &[String],
    client: ClientInfo,
    now: Micros,
) -> Result<Program, ManagementError> {
    let id = management_token::parse(presented).ok_or(ManagementError::TokenUnknown)?;
    let found = management.state.management_token(id).await.map_err(ManagementError::TokenUnverified)?;
    let token = found.filter(|token| token.digest == TokenDigest::of(presented) && token.revoked.is_none());
    let token = token.ok_or(ManagementError::TokenUnknown)?;
    if !token.is_live(now) {
        return Err(ManagementError::TokenExpired);
    }
    if !token.allows_address(client.ip.as_ref()) {
        return Err(ManagementError::TokenAddress);
    }
    if token.client_san.as_ref().is_some_and(|san| !sans.contains(san)) {
        return Err(ManagementError::TokenCertificate);
    }
    let administrator = match token.org.zip(token.admin) {
        Some((org, admin)) => {
            let member = management.state.member(org, admin).await.map_err(ManagementError::TokenUnverified)?;
            member.map(|(_, user)| user)
        }
        None => None,
    };
    match TokenStatus::new(&token, administrator.as_ref(), now) {
        TokenStatus::Active => Ok(Program { token, client, conditions: Conditions::NONE }),
        TokenStatus::Expired => Err(ManagementError::TokenExpired),
        TokenStatus::Revoked | TokenStatus::CreatorNotAdmin => Err(ManagementError::TokenUnknown),
    }
}
