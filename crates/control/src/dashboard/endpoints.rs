//! The endpoints of the dashboard: steps of signing in and out, and pages.

/// The steps of signing in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignInEndpoint {
    /// The choice of identity providers.
    ShowProviders,
    /// Sends the browser to the provider of an email address.
    FindProvider,
    /// Sends the browser to a provider.
    BeginSignIn,
    /// The provider sends the browser back.
    FinishSignIn,
    /// Asks before a sign-in link is redeemed.
    ShowLink,
    RedeemLink,
    SignOut,
    ShowSignedOut,
    ChooseOrg,
}

/// The pages and forms for signed-in users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageEndpoint {
    /// Redirects to the overview, or, of a user who is no admin, to the keys.
    Home,
    ShowOverview,
    ListKeys,
    /// Redirects to the list of what was searched for.
    SearchKeys,
    ShowCreateKey,
    CreateKey,
    ShowKey,
    /// Shows a new key, once.
    ShowNewKey,
    /// Asks before selected keys are disabled or revoked.
    ShowSelectedKeys,
    ChangeSelectedKeys,
    ShowKeyPolicy,
    SetKeyPolicy,
    DisableKey,
    EnableKey,
    ShowRevokeKey,
    RevokeKey,
    ShowRotateKey,
    RotateKey,
    ListChanges,
    ListUsers,
    ShowAddUser,
    AddUser,
    ShowUser,
    PermitUser,
    /// Shows a sign-in link, once.
    CreateLink,
    RemoveUser,
    /// Asks before a user is suspended.
    ShowSuspendUser,
    SuspendUser,
    ResumeUser,
    ListSessions,
    EndOtherSessions,
    EndSession,
    ListTokens,
    ShowCreateToken,
    CreateToken,
    /// Shows a new management token, once.
    ShowNewToken,
    ShowRevokeToken,
    RevokeToken,
}
