//! Authentication of the programs that present management tokens.

use super::{ClientInfo, Conditions, Management, Program, TokenStatus};
use domain::clock::Micros;
use domain::management_token;
use domain::session::TokenDigest;

/// Reason why a presented token is refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenRefusal {
    /// The text is no token, or no token has this id and secret, or it was revoked.
    #[error("the token is not known, or was revoked; create one with `keygate token create`")]
    Unknown,
    /// Its time is over.
    #[error("the token has expired; create another with `keygate token create`")]
    Expired,
    /// It is not accepted from the client's address.
    #[error("the token is not accepted from this address")]
    Address,
    /// The client's certificate does not have the name that the token asks for.
    #[error("the token asks for a client certificate with another name")]
    Certificate,
    /// The state did not answer.
    #[error(transparent)]
    State(#[from] state::Unavailable),
}

impl Management {
    /// Authenticates the program that presents a token. `sans` are the subject alternative names of its certificate.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub async fn authenticate_token(
        &self,
        presented: &[u8],
        sans: &[String],
        client: ClientInfo,
        now: Micros,
    ) -> Result<Program, TokenRefusal> {
        let id = management_token::parse(presented).ok_or(TokenRefusal::Unknown)?;
        let found = self.state.management_token(id).await?;
        let token = found.filter(|token| token.digest == TokenDigest::of(presented) && token.revoked.is_none());
        let token = token.ok_or(TokenRefusal::Unknown)?;
        if !token.is_live(now) {
            return Err(TokenRefusal::Expired);
        }
        if !token.allows_address(client.ip.as_ref()) {
            return Err(TokenRefusal::Address);
        }
        if token.client_san.as_ref().is_some_and(|san| !sans.contains(san)) {
            return Err(TokenRefusal::Certificate);
        }
        let administrator = match token.org.zip(token.admin) {
            Some((org, admin)) => self.state.member(org, admin).await?.map(|(_, user)| user),
            None => None,
        };
        match TokenStatus::new(&token, administrator.as_ref(), now) {
            TokenStatus::Active => Ok(Program { token, client, conditions: Conditions::NONE }),
            TokenStatus::Expired => Err(TokenRefusal::Expired),
            TokenStatus::Revoked | TokenStatus::CreatorNotAdmin => Err(TokenRefusal::Unknown),
        }
    }
}
