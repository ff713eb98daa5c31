//! Which bucket of a person the requests to an endpoint are counted in.

use super::endpoints::PageEndpoint;

/// Bucket that the requests to an endpoint are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// With the other requests of the person.
    Request,
    /// It revokes or disables keys, revokes a management token, suspends or removes a user or ends a session.
    Revocation,
    /// A page on the way to a revocation.
    Confirmation,
    /// Not at all. It ends the sessions that could send it again, and is of use to a person whose session was stolen.
    Never,
}

impl PageEndpoint {
    /// Bucket that its requests are counted in.
    pub(super) fn counting(self) -> Counting {
        match self {
            Self::RevokeKey
            | Self::DisableKey
            | Self::ChangeSelectedKeys
            | Self::SuspendUser
            | Self::RemoveUser
            | Self::EndSession
            | Self::RevokeToken => Counting::Revocation,
            Self::ShowRevokeKey | Self::ShowSelectedKeys | Self::ShowSuspendUser | Self::ShowRevokeToken => {
                Counting::Confirmation
            }
            Self::EndOtherSessions => Counting::Never,
            _ => Counting::Request,
        }
    }
}
