//! Operations that only read.

use super::operation::Operation;

impl Operation {
    /// Returns whether it only reads: it may be abandoned when its client is gone.
    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::ListOrgs { .. }
            | Self::ShowOrg { .. }
            | Self::ListUsers { .. }
            | Self::ShowUser { .. }
            | Self::ListKeys { .. }
            | Self::ShowKey { .. }
            | Self::FindKeys { .. }
            | Self::Explain { .. }
            | Self::ListUses { .. }
            | Self::Activity { .. }
            | Self::ListTokens { .. }
            | Self::ListSessions { .. }
            | Self::ListRules { .. }
            | Self::ShowRule { .. } => true,
            Self::AcceptState
            | Self::CreateOrg { .. }
            | Self::SuspendOrg { .. }
            | Self::ResumeOrg { .. }
            | Self::LimitOrg { .. }
            | Self::SetOrgPolicy { .. }
            | Self::CreateUser { .. }
            | Self::CreateService { .. }
            | Self::PermitUser { .. }
            | Self::ChangePermissions { .. }
            | Self::RemoveUser { .. }
            | Self::SuspendUser { .. }
            | Self::ResumeUser { .. }
            | Self::ReassignUser { .. }
            | Self::CreateKey { .. }
            | Self::SetKey { .. }
            | Self::DisableKey { .. }
            | Self::EnableKey { .. }
            | Self::RevokeKey { .. }
            | Self::RotateKey { .. }
            | Self::LimitKey { .. }
            | Self::ImportKey { .. }
            | Self::LinkSession { .. }
            | Self::EndSession { .. }
            | Self::EndSessions { .. }
            | Self::CreateToken { .. }
            | Self::RevokeToken { .. }
            | Self::CreateRule { .. }
            | Self::RemoveRule { .. } => false,
        }
    }
}
