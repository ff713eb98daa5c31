//! Errors of management, its API, the dashboard and token exchange: every reason for which an operation is not
//! performed, in one table.
//!
//! A row has the variant, its text, its kind, which is the status, and its stable code; where it is shown to people
//! otherwise than others, also its page. To add an error, add its row, and its code to `docs/errors.md`.
//!
//! - Texts say what was wrong and what to do about it. None has anything of a token, but the name of a claim.
//! - Codes are part of the contract.

use std::error::Error;

use crate::oidc::{self, InvalidIssuer, SubjectTokenError};
use domain::clock::Micros;
use domain::counted::counted;
use domain::identity::Permission;
use domain::key::policy::InvalidKeyPolicy;
use domain::key::{InvalidDigest, KeyId, OrgTag};
use domain::management_token::{TokenId, TokenScope};
use domain::names::{InvalidEmail, InvalidName};
use domain::page::{InvalidCursor, InvalidPageLimit};
use domain::plan_name::PlanName;
use domain::problem::sentence;
use domain::quota::QuotaError;
use journal::audit;
use state::migration::MigrationError;
use state::{self, ChangeError, IdempotencyRecord, InvalidFederationRule, InvalidPolicy, StorageError};

mod row;
mod sources;

pub use row::{ErrorKind, Row};
use row::{
    ErrorKind::{
        Conflict, Internal, Invalid, MediaType, NotAllowed, NotFound, Provider, RateLimited, Stale, TimedOut, TooLarge,
        TooMany, Unauthenticated, Unavailable, Unprocessable,
    },
    RETRY_SOON, row,
};
pub(crate) use sources::RouteError;

/// Declares [`ManagementError`] and its table from the rows below.
macro_rules! errors {
    (
        $(#[$meta:meta])* pub enum $error:ident;
        $(
            $(#[doc = $doc:literal])* #[error($($text:tt)+)]
            $name:ident $(($($fields:tt)*))? $({$($named:tt)*})? => $row:expr;
        )+
    ) => {
        $(#[$meta])*
        pub enum $error {
            $($(#[doc = $doc])* #[error($($text)+)] $name $(($($fields)*))? $({$($named)*})?,)+
        }

        impl $error {
            /// All rows, in the order of the table.
            pub const ROWS: &[Row] = &[$($row),+];

            /// The error's row of the table.
            pub fn row(&self) -> &'static Row {
                match self {
                    $(Self::$name { .. } => const { &$row },)+
                }
            }
        }
    };
}

errors! {
    /// Reason why an operation was not performed. Nothing was changed, except by [`ManagementError::Unconfirmed`], and
    /// perhaps by [`ManagementError::NotAcknowledged`].
    // The derive stands here, and not in the macro: its `.0` is that of the texts by hygiene.
    #[derive(Debug, thiserror::Error)]
    #[allow(missing_docs, reason = "where a variant has no documentation, its text says what it is")]
    pub enum ManagementError;

    // Names and values.

    /// The name is empty, too long, has characters that do not show, or could be taken for an id.
    #[error(transparent)]
    InvalidName(#[from] InvalidName) => row(Invalid, "invalid_name");
    /// The text is not an email address.
    #[error(transparent)]
    InvalidEmail(#[from] InvalidEmail) => row(Invalid, "invalid_email");
    #[error("concurrent must be 1 to 1000000; to refuse all requests of an organization, suspend it")]
    InvalidConcurrent => row(Invalid, "invalid_limits");
    /// The quota is out of range.
    #[error(transparent)]
    InvalidQuota(#[from] QuotaError) => row(Invalid, "invalid_limits");
    /// A record is to be given a plan that the configuration does not have.
    #[error("there is no plan `{0}`; add it to `plans` of the configuration, or give one that is there")]
    NoPlan(PlanName) => row(Invalid, "invalid_limits");
    /// The policy of an organization is not valid.
    #[error(transparent)]
    InvalidPolicy(#[from] InvalidPolicy) => row(Invalid, "invalid_policy");
    /// The policy that a key would have is not valid.
    #[error("{0}")]
    InvalidKeyPolicy(InvalidKeyPolicy) => row(Invalid, "invalid_policy");
    /// The expiry is later than the organization's policy allows.
    #[error(transparent)]
    TooLate(#[from] state::TooLate) => row(Invalid, "invalid_policy");
    #[error("the user of the key does not have the permission `{0}`; give it to the user first, or leave it out")]
    BeyondOwner(Permission) => row(Invalid, "invalid_policy");
    #[error("overlap must be at most 366d; rotate again when it is over")]
    OverlapTooLong => row(Invalid, "invalid_overlap");
    /// A management token is not valid.
    #[error("{0}")]
    InvalidToken(&'static str) => row(Invalid, "invalid_token_settings");
    #[error("sha256 is not the SHA-256 of a key")]
    InvalidDigest(#[from] InvalidDigest) => row(Invalid, "invalid_digest");
    #[error(
        "sha256 is an example of the documentation; give the digest of your key, as `keygate key digest` prints it"
    )]
    DocumentedDigest => row(Invalid, "invalid_digest");
    /// The SHA-256 is the digest of a session quota key.
    #[error("sha256 is not the SHA-256 of a key")]
    SessionQuotaDigest => row(Invalid, "invalid_digest");
    #[error("give `id` and `sha256` together, as `keygate key generate` prints them")]
    IncompleteSecret => row(Invalid, "invalid_digest");
    /// The page size is out of range.
    #[error(transparent)]
    PageLimit(#[from] InvalidPageLimit) => row(Invalid, "invalid_limit");
    #[error("keys must be at most 200 in one request; request the others separately")]
    TooManyKeyIds => row(Invalid, "invalid_limit");
    /// The text is not a cursor of this list with these filters.
    #[error(transparent)]
    Cursor(#[from] InvalidCursor) => row(Invalid, "invalid_cursor");

    // Records that there are not, or that are of another kind.

    #[error("there is no organization `{0}`; see `keygate org list`")]
    NoOrg(String) => row(NotFound, "no_such_org");
    /// No such user, or removed.
    #[error("there is no user `{0}` in this organization; see `keygate user list --org ORG`")]
    NoUser(String) => row(NotFound, "no_such_user");
    #[error("there is no key {0}; see `keygate key list --org ORG`, and give the nine characters after `sk_live_`")]
    NoKey(KeyId) => row(NotFound, "no_such_key");
    /// A path has no id of a key.
    #[error("there is no key with this id; a key's id is the nine characters after `sk_live_`")]
    NotKeyId => row(NotFound, "no_such_key");
    /// No such session, or it has ended.
    #[error("there is no session `{0}`; see `keygate session list`")]
    NoSession(String) => row(NotFound, "no_such_session");
    #[error(
        "there is no quota of {0}; give one by `keygate quota set`, or a plan with a `quota`; one of each key or user \
         is named by the key or the user"
    )]
    NoQuota(String) => row(NotFound, "no_such_quota").for_people("There is no quota.");
    /// A path has no id of a session.
    #[error("there is no session with this id")]
    NotSessionId => row(NotFound, "no_such_session");
    #[error("there is no token {0}; see `keygate token list`, and give the ten characters after `kgm_`")]
    NoToken(TokenId) => row(NotFound, "no_such_token");
    /// A path has no id of a token.
    #[error("there is no token with this id; a token's id is the ten characters after `kgm_`")]
    NotTokenId => row(NotFound, "no_such_token");
    #[error("`{0}` is the account of a service, which never signs in and is responsible for no other; name a person")]
    NotPerson(String) => row(Conflict, "not_a_person");
    #[error("`{0}` is a person; only the account of a service has a responsible person")]
    NotService(String) => row(Conflict, "not_a_service");

    // Rights.

    #[error("you may not do this; ask an administrator of your organization")]
    NotAllowed => row(NotAllowed, "not_allowed");
    /// An administrator would add, remove or permit users where the provider and the operator do.
    #[error("people here are managed by the identity provider and the operator of this service; ask them")]
    PeopleOfProvider => row(NotAllowed, "people_of_provider");
    /// A permission that the giver does not have, or a sign-in link for a user with such a permission.
    #[error("you do not have the permission `{0}`, so you cannot give it; ask an administrator who has it")]
    GrantExceeds(Permission) => row(NotAllowed, "grant_exceeds");
    #[error("this token does not have the scope `{0}`; create one with it, or ask the operator of this service")]
    MissingScope(TokenScope) => row(NotAllowed, "missing_scope");
    #[error("this token is for one organization; this needs one of all organizations")]
    OneOrg => row(NotAllowed, "missing_scope");
    /// The token of the program was revoked during its call, which is answered as calls after that are.
    #[error("the token was revoked meanwhile; nothing was changed")]
    TokenEnded => row(NotAllowed, "invalid_token");
    /// A token would exceed the one that creates it, or the rights of the administrator who does.
    #[error("a token may not exceed its creator: {0}")]
    TokenExceeds(&'static str) => row(NotAllowed, "token_exceeds");
    /// A change of one's own key that would widen its policy.
    #[error("you may narrow key {0} and not widen it; ask an administrator of your organization")]
    Widened(KeyId) => row(NotAllowed, "policy_widened");
    /// An administrator would raise the limits of a key, in force by its plan or the configuration or its own.
    #[error("you may lower the limits of key {0} and not raise them; ask the operator of this service")]
    LimitsRaised(KeyId) => row(NotAllowed, "limits_raised");
    #[error("key {0} was disabled by the operator of this service, who alone can enable it")]
    DisabledByOperator(KeyId) => row(NotAllowed, "disabled_by_operator");
    #[error("this user was suspended by the operator of this service, who alone can resume it")]
    SuspendedByOperator => row(NotAllowed, "suspended_by_operator");
    /// The organization of a session or a token is suspended.
    #[error("this organization is suspended, so that nothing is created in it; ask the operator of this service")]
    OrgSuspended => row(NotAllowed, "org_suspended");

    // Conflicts with the present state.

    #[error("this was changed meanwhile; read it again, and decide anew")]
    Stale => row(Stale, "changed_meanwhile");
    /// The change of a call with this idempotency key was made before: the call is answered with its result.
    #[error("a call with this idempotency key was made before")]
    Repeated(Box<IdempotencyRecord>) => row(Conflict, "repeated");
    #[error("this token has used {} within a day; send calls without one, or wait", counted(.0, "idempotency key"))]
    TooManyIdempotencyKeys(u32) => row(RateLimited, "too_many_idempotency_keys");
    #[error("key {0} is revoked, for good; create another")]
    Revoked(KeyId) => row(Conflict, "key_revoked");
    /// The key was rotated since the actor looked at it.
    #[error("key {key} was rotated meanwhile{}; nothing was changed", rotation_text(.by.as_deref(), *.at))]
    Rotated {
        /// The key.
        key: KeyId,
        /// Actor of that rotation, if it is known.
        by: Option<String>,
        /// Time of its last rotation.
        at: Option<Micros>,
    } => row(Conflict, "rotated_meanwhile").advice("The key was rotated meanwhile",
        "Look at the key, and ask who rotated it for the new secret. Rotate it again only if that one is lost.");
    /// The key was used, created or enabled too shortly ago to be disabled for being unused.
    #[error("key {0} is in use")]
    InUse(KeyId) => row(Conflict, "key_in_use");
    #[error("the quota was reset or recounted meanwhile, or its period ends; nothing was changed, try again")]
    QuotaChanged => row(Conflict, "quota_changed");
    /// Gateways, with the times up to which their records are here.
    #[error("the records of these gateways are not here up to the recount yet: {0}; try again")]
    QuotaRecordsLate(String) => row(Unavailable, "quota_records_late").wait(1);
    #[error("the records of the period are not all here: {0}")]
    QuotaRecordsMissing(String) => row(Conflict, "quota_records_missing");
    #[error("this is the last administrator of the organization; make another one first")]
    LastAdmin => row(Conflict, "last_admin");
    /// Another record has this name, email, tag, id or digest; the text says which.
    #[error("this {0} is in use already; choose another")]
    Taken(&'static str) => row(Conflict, "taken");
    /// A record of a document cannot become what the document says.
    #[error("{0}")]
    ApplyConflict(String) => row(Conflict, "apply_conflict");
    #[error("a key with this SHA-256 was imported or made already, as key {0}")]
    AlreadyImported(KeyId) => row(Conflict, "taken");
    #[error(
        "the key id {id} does not begin with `{tag}`, the tag of this organization; make the key with \
         `keygate key generate --tag {tag}`"
    )]
    KeyIdOfAnotherOrg {
        /// The id.
        id: KeyId,
        /// The organization's tag.
        tag: OrgTag,
    } => row(Unprocessable, "key_id_of_another_org");
    #[error("the key id {0} is taken; make another key with `keygate key generate`")]
    KeyIdTaken(KeyId) => row(Conflict, "key_id_taken");
    /// The SHA-256 of a new secret is that of another one; with its key, when that is of the same organization.
    #[error("a key{} has or had this SHA-256; make another with `keygate key generate`", key_text(.0))]
    DigestTaken(Option<KeyId>) => row(Conflict, "digest_taken");
    #[error("key {0} had this SHA-256 before it was rotated, so that the secret is refused; rotate it to a new one")]
    DigestReplaced(KeyId) => row(Conflict, "digest_taken");
    /// Another request is creating a key with the same SHA-256, or was broken off on its way.
    #[error("another request is creating a key with this SHA-256; try again")]
    CreationInProgress => row(Conflict, "creation_in_progress").wait(1);
    #[error("there are {} already; revoke those that are not needed, and wait until they expire", counted(.0, "token"))]
    TooManyTokens(u32) => row(Conflict, "too_many_tokens");
    #[error(
        "this user already has {}, without the revoked ones; revoke one, or ask the operator of this service",
        counted(.0, "key")
    )]
    TooManyKeys(u32) => row(Conflict, "too_many_keys");
    /// The person has created and rotated as many keys as a person may for now; with the seconds to wait.
    #[error(
        "you have created or rotated too many keys in a short time; wait {}, then try again", counted(.0, "second")
    )]
    KeyCreationLimited(u64) => row(RateLimited, "key_creation_limited").advice("Too many in a short time",
        "Nothing was changed. Keys that you have go on working.");
    /// The person's oldest web sessions could not be ended to make room for a new one.
    #[error("this person has {} already; end one, or try again", counted(.0, "web session"))]
    TooManySessions(u32) => row(Conflict, "too_many_sessions");
    #[error(
        "the dashboard is off; add this line to the configuration, with the address that browsers open, and restart: \
         session: {{ origin: \"http://127.0.0.1:8080\" }}"
    )]
    NoSessions => row(Conflict, "no_sessions");
    #[error("sign-in links are switched off by `session.links`; sign in by an identity provider")]
    LinksDisabled => row(Conflict, "no_links").sign_in();

    // The state, the journal and the machine.

    /// Too many reads of the journal by the same person wait already.
    #[error(
        "too many of your requests read the audit journal at the same time; wait for their responses, then try again"
    )]
    TooManyReads => row(TooMany, "too_many_reads");
    /// Too many lists are read whole already, by this person or in all.
    #[error("too many long lists are read at the same time; try again")]
    TooManyLists => row(TooMany, "too_many_reads");
    /// The list exceeds the maximum of one answer.
    #[error(
        "the list has more than {0} keys, or too many were searched; name an owner, or read it page by page, sorted by \
         creation"
    )]
    ListTooLong(usize) => row(Conflict, "list_too_long");
    /// Too many reads of the journal wait already.
    #[error("too many requests read the audit journal at the same time; try again")]
    JournalBusy => row(Unavailable, "audit_unavailable");
    #[error("the audit journal cannot be read; look at the audit directory")]
    JournalUnreadable(#[source] std::io::Error) => row(Unavailable, "audit_unavailable")
        .for_people("The audit journal cannot be read at the moment, or is still being indexed.")
        .advice("The audit records are unavailable", "Try again in a minute, or tell the operator of this gateway.");
    #[error("the change cannot be recorded, so it was not made; look at the audit directory and its disk")]
    Audit(#[from] audit::Unavailable) => row(Unavailable, "audit_unavailable")
        .for_people("Changes are made only when they can be recorded, and the audit journal cannot be written at the \
                     moment.")
        .advice("The audit journal is unavailable", "Try again in a moment, or tell the operator of this gateway.");
    /// The change was made, but too few replicas confirmed it in time.
    #[error("{0}; when the replicas are back, repeat it: nothing is made twice")]
    Unconfirmed(ChangeError) => row(Unavailable, "state_unavailable")
        .advice("The change is made, and not confirmed", "Look whether it holds, and repeat it if it does not.");
    #[error("the change was not acknowledged by the state; look at the state's disk or servers, then try again")]
    NotAcknowledged(#[source] ChangeError) => STATE_UNAVAILABLE;
    /// Another process has taken over from this one. A new connection is accepted by that one, which serves already.
    #[error(
        "the change was not made: another process takes the place of this one; send it again over a new connection"
    )]
    HandedOver => row(Unavailable, "state_unavailable").wait(1)
        .advice("The gateway is being replaced", "Go back and try again: the other process serves already.");
    #[error("this is not the state that was served; restore it, or run `keygate state accept` if this one is right")]
    StateLost => STATE_UNAVAILABLE;
    /// The state did not answer a lookup.
    #[error("the state is unavailable; look at the state's disk or servers, then try again")]
    StateUnavailable(#[source] state::Unavailable) => STATE_UNAVAILABLE;
    #[error("the export is incomplete: the state cannot be read; try again")]
    ExportFailed(#[source] StorageError) => row(Unavailable, "state_unavailable");
    /// Some records were not imported.
    #[error("the import stopped on its way; look at the state's disk or servers, then import the same file again")]
    ImportFailed(#[source] MigrationError) => row(Unavailable, "state_unavailable");
    #[error("the operating system gave no randomness; try again")]
    Randomness(#[from] getrandom::Error) => row(Unavailable, "no_randomness");

    // Calls of the API, and requests to pages.

    #[error("the API has no such path")]
    NotFound => row(NotFound, "not_found").page("Page not found",
        "There is no page at this address.", "Check the address, or go back to your API keys.");
    /// The path has other methods: the value of `Allow`.
    #[error("this path supports {0} only")]
    MethodNotAllowed(String) => row(ErrorKind::MethodNotAllowed, "method_not_allowed").page("Method not allowed",
        "This address does not support this kind of request.", "Go back to your API keys and try from there.");
    #[error("the request body is too large, or the connection broke off")]
    BodyLost => row(TooLarge, "body_too_large").page("Request too large",
        "The request body is too large, or the connection broke off.", "Try again with less data.");
    #[error("timed out reading the request body")]
    BodyTimeout => row(TimedOut, "request_timeout").page("Request timed out",
        "The request body did not arrive in time.", "Try again.");
    #[error("send the body as `Content-Type: application/json`")]
    MediaType => row(MediaType, "unsupported_media_type");
    #[error("send the body as `Content-Type: application/merge-patch+json`, or as application/json")]
    PatchMediaType => row(MediaType, "unsupported_media_type");
    #[error("the query is not valid: {0}")]
    InvalidQuery(String) => row(Invalid, "invalid_parameter");
    #[error("the body is not valid: {0}")]
    InvalidBody(String) => row(Invalid, "invalid_body");
    #[error("send one entity tag in `If-Match`, as `ETag` has it, or `*`, with the change of a record that has one")]
    IfMatch => row(Invalid, "invalid_if_match");
    #[error("there is a key with this digest already, and `If-None-Match: *` asks for none")]
    Exists => row(Stale, "key_exists");
    #[error(
        "send one `Idempotency-Key`, of 1 to 255 visible ASCII characters, with a POST that makes or changes a record"
    )]
    IdempotencyKey => row(Invalid, "invalid_idempotency_key");
    #[error("this idempotency key was sent with another body within a day; use a new one for each call")]
    KeyReused => row(Unprocessable, "idempotency_key_reused");
    #[error("a call with this idempotency key is in progress; wait a second, then send it again")]
    InProgress => row(Conflict, "call_in_progress").wait(1);
    #[error("another program exports the state; send the call again when it is done")]
    Exporting => row(Conflict, "export_in_progress").wait(RETRY_SOON);
    #[error("the state is larger than 128 MiB; run `keygate state export` on the machine of a gateway")]
    ExportTooLarge => row(Conflict, "export_too_large");
    /// With the seconds after which the next attempt is accepted: a call with a token, or a sign-in.
    #[error("too many calls with wrong tokens came from this address; wait {0} seconds")]
    TooManyAttempts(u64) => row(RateLimited, "too_many_attempts").sign_in().page("Too many attempts",
        "Too many attempts to sign in came from your address.", "Wait a minute, then try again.");
    /// With the seconds after which the next call is accepted.
    #[error("this token has made too many calls; wait {0} seconds, then retry with exponential backoff")]
    TooManyCalls(u64) => row(RateLimited, "rate_limited");
    /// The same, of a person.
    #[error("you have sent too many requests in a short time; wait {0} seconds, then retry with exponential backoff")]
    TooManyRequests(u64) => row(RateLimited, "rate_limited").page("Too many requests",
        "You have sent too many requests in a short time.", "Wait a moment, then try again.");
    /// The handler panicked.
    #[error("the call ended unexpectedly; see the gateway's log")]
    Internal => INTERNAL;
    #[error("rendering a page failed")]
    Render(#[from] askama::Error) => INTERNAL;
    /// A page needs a token of its own, and the operating system gave no randomness.
    #[error("the operating system returned no random bytes")]
    PageRandomness(#[source] getrandom::Error) => INTERNAL;

    // Credentials of calls.

    #[error("this requires a management token, as `Authorization: Bearer kgm_…`")]
    TokenMissing => row(Unauthenticated, "unauthenticated");
    /// The text is no token, or no token has this id and secret, or it was revoked.
    #[error("the token is not known, or was revoked; create one with `keygate token create`")]
    TokenUnknown => row(Unauthenticated, "invalid_token");
    #[error("the token has expired; create another with `keygate token create`")]
    TokenExpired => row(Unauthenticated, "invalid_token");
    #[error("the token is not accepted from this address")]
    TokenAddress => row(NotAllowed, "address_refused");
    #[error("the token asks for a client certificate with another name")]
    TokenCertificate => row(NotAllowed, "certificate_refused");
    /// The state did not answer when a token was looked up.
    #[error(transparent)]
    TokenUnverified(state::Unavailable) => row(Unavailable, "state_unavailable");
    #[error("this requires a web session, by its cookie: sign in on the dashboard")]
    SignedOut => row(Unauthenticated, "unauthenticated").sign_in().page("You are signed out",
        "Your session has ended, or you have not signed in yet.", "Sign in to continue.");
    #[error("API keys do not manage keys: this requires a web session, by its cookie; sign in on the dashboard")]
    KeyNotAccepted => row(Unauthenticated, "unauthenticated");
    #[error("this session has ended: sign in again")]
    SessionEnded => row(Unauthenticated, "invalid_session");
    #[error("the request has more than one session cookie; delete this site's cookies and sign in again")]
    AmbiguousSession => row(Invalid, "invalid_request").page("Two sessions at once",
        "Your browser sent more than one session cookie.", "Delete this site's cookies and sign in again.");
    /// A change that another site may have caused (CSRF).
    #[error("this request came from another site, so nothing was changed")]
    CrossSite => row(NotAllowed, "cross_site_request").page("Request from another site",
        "Your browser reports that this request came from another site, so nothing was changed.",
        "If you meant to do this, do it from the pages of this dashboard.");

    // Leaked keys.

    #[error("the report has no valid signature of GitHub")]
    ReportUnsigned => row(Unauthenticated, "report_unsigned");
    /// GitHub's keys cannot be read.
    #[error("the signature of the report cannot be checked: the keys of GitHub cannot be read; send it again later")]
    ReportUnverified(#[source] oidc::Error) => row(Unavailable, "report_unverified");
    #[error("send the key that is to end, as requests with it have it, and no body")]
    KeyMissing => row(Unauthenticated, "unauthenticated");

    // Signing in.

    /// The sign-in link was used, has expired, or never existed.
    #[error("this link was used already, or has expired; ask for another")]
    InvalidLink => row(NotAllowed, "invalid_link").sign_in()
        .for_people("It was used already, or is older than five minutes.")
        .advice("This sign-in link is not valid", "Ask for a new one.");
    /// The user who signs in belongs to no organization.
    #[error("{0} belongs to no organization here; ask an administrator to add them with `keygate user create`")]
    NoMembership(String) => row(NotAllowed, "no_membership").sign_in()
        .advice("You are not a member of an organization here", "Ask an administrator of your organization.");
    #[error("the callback has no `state`")]
    NoState => callback("no_state", "The response of the identity provider is incomplete.");
    #[error("no sign-in with this `state` is pending: it was finished, has expired, or never began")]
    UnknownState => callback("unknown_state", "This sign-in took too long, or is finished already.");
    #[error("the sign-in began in another browser")]
    OtherBrowser => callback("other_browser",
        "This sign-in began in another browser, or this browser does not store cookies.");
    #[error("the sign-in began with another provider")]
    OtherProvider => callback("other_provider", "This sign-in began with another identity provider.");
    #[error("the claims contain no email address")]
    NoEmail => row(NotAllowed, "no_email").sign_in().page(SIGN_IN_FAILED,
        "The identity provider did not send your email address.", "Ask an administrator of your organization.");
    #[error("the email address is not verified by the identity provider")]
    UnverifiedEmail => row(NotAllowed, "unverified_email").sign_in().page(SIGN_IN_FAILED,
        "The identity provider has not verified your email address.", "Ask an administrator of your organization.");
    #[error(transparent)]
    ProviderUnavailable(Box<oidc::Error>) => row(Unavailable, "").sign_in().page("The identity provider is unavailable",
        "It cannot be reached, or its response is not usable.",
        "Try again in a few minutes. If it is urgent, ask the operator of this gateway for a sign-in link.");
    #[error(transparent)]
    ProviderDeclined(Box<oidc::Error>) => row(NotAllowed, "").sign_in().page("You were not signed in",
        "The sign-in was declined at the identity provider.",
        "Sign in again, or ask an administrator of your organization.");
    #[error(transparent)]
    InvalidCallback(Box<oidc::Error>) => row(Invalid, "").sign_in().page(SIGN_IN_FAILED,
        "Your browser returned from the identity provider with an invalid response.", "Sign in again from this site.");
    #[error(transparent)]
    ProviderSettings(Box<oidc::Error>) => row(Internal, "").sign_in().page(SIGN_IN_FAILED,
        "This gateway is not configured correctly for the identity provider.",
        "Give the operator of this gateway the request ID.");
    #[error(transparent)]
    InvalidIdentity(Box<oidc::Error>) => row(Provider, "").sign_in().page(SIGN_IN_FAILED,
        "The response of the identity provider about you is not valid.",
        "Sign in again. If that does not help, give the operator of this gateway the request ID.");

    // Federation rules, and exchanges of tokens by them.

    /// The rule is not valid.
    #[error(transparent)]
    InvalidRule(#[from] InvalidFederationRule) => row(Invalid, "invalid_rule");
    #[error("the issuer {0}")]
    InvalidIssuer(InvalidIssuer) => row(Invalid, "invalid_rule");
    #[error("there is no federation rule `{0}` in this organization; see `keygate federation list --org ORG`")]
    NoRule(String) => row(NotFound, "no_such_rule");
    /// Also where there is no such organization, so that a client without a token does not learn which there are.
    #[error("there is no rule of this name for tokens of this issuer; name it ORGANIZATION/RULE")]
    UnknownTarget => row(NotFound, "unknown_target").exchange("invalid_target");
    /// The subject token is not accepted.
    #[error(transparent)]
    TokenRefused(SubjectTokenError) => row(NotAllowed, "token_refused").exchange("invalid_grant");
    /// The subject token could not be verified because of its issuer, and not of itself.
    #[error(transparent)]
    IssuerUnavailable(SubjectTokenError) => row(Unavailable, "issuer_unavailable").exchange("temporarily_unavailable");
    #[error("the claim `{0}` of the subject token does not match the rule")]
    ClaimMismatch(String) => row(NotAllowed, "claim_mismatch").exchange("invalid_grant");
    #[error("the service of the rule, or its organization, is suspended or removed")]
    ServiceSuspended => row(NotAllowed, "service_suspended").exchange("invalid_grant");
    #[error("the rule does not give the permission `{0}`; leave it out of the scope")]
    ScopeExceeded(Permission) => row(NotAllowed, "scope_exceeded").exchange("invalid_scope");
    #[error("the subject token was exchanged already; each gives one key: ask the CI for a new one")]
    TokenReplayed => row(Conflict, "token_replayed").exchange("invalid_grant");
    /// The rule has exchanged as many tokens as it may for now; with the seconds to wait.
    #[error("too many tokens were exchanged by this rule in a short time; wait {}", counted(.0, "second"))]
    ExchangeLimited(u64) => row(RateLimited, "exchange_limited").exchange("slow_down");
    #[error("tokens are exchanged with POST")]
    ExchangeMethod => row(ErrorKind::MethodNotAllowed, "method_not_allowed").exchange("invalid_request");
    #[error("the body must be application/x-www-form-urlencoded")]
    ExchangeMediaType => row(MediaType, "unsupported_media_type").exchange("invalid_request");
    #[error("the body is too large, or broke off")]
    ExchangeBody => row(Invalid, "invalid_body").exchange("invalid_request");
    #[error("the body did not arrive in time")]
    ExchangeTimeout => row(TimedOut, "body_timeout").exchange("invalid_request");
    /// A parameter is missing or wrong.
    #[error("the parameter `{0}` {1}")]
    ExchangeParameter(&'static str, &'static str) => row(Invalid, "invalid_parameter").exchange("invalid_request");
    #[error("the grant type must be urn:ietf:params:oauth:grant-type:token-exchange")]
    GrantType => row(Invalid, "unsupported_grant_type").exchange("unsupported_grant_type");
    #[error("the scope must be permissions, separated by spaces")]
    InvalidScope => row(Invalid, "invalid_scope").exchange("invalid_scope");
    /// The client address has tried too often; with the seconds to wait.
    #[error("too many exchanges from this address have failed; wait {0} s")]
    TooManyExchanges(u64) => row(RateLimited, "too_many_attempts").exchange("slow_down");
    /// The exchange panicked, or the gateway failed otherwise.
    #[error("the exchange failed; the log has the reason by the id of the request")]
    ExchangeFailed => row(Internal, "internal").exchange("server_error");
}

const STATE_UNAVAILABLE: Row = row(Unavailable, "state_unavailable")
    .for_people("Organizations and keys cannot be read or changed at the moment.")
    .advice(
        "The gateway's state is unavailable",
        "Try again in a moment. If you were changing something, check first whether it was done.",
    );
const INTERNAL: Row = row(Internal, "internal_error").page(
    "Internal error",
    "The dashboard failed. Your change may or may not have been made.",
    "Check whether it was made before you try again, and give the operator of this gateway the request ID.",
);
const SIGN_IN_FAILED: &str = "Sign-in failed";

/// The row of a callback that belongs to no pending sign-in.
const fn callback(code: &'static str, description: &'static str) -> Row {
    row(Invalid, code).sign_in().page(SIGN_IN_FAILED, description, "Sign in again from this site.")
}

impl ManagementError {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.row().kind
    }

    /// The stable name of the error, for programs.
    pub fn code(&self) -> &'static str {
        self.row().code
    }

    /// Seconds after which the operation can succeed, as far as they are known.
    pub(crate) fn wait(&self) -> Option<u64> {
        match self {
            Self::KeyCreationLimited(seconds)
            | Self::ExchangeLimited(seconds)
            | Self::TooManyAttempts(seconds)
            | Self::TooManyCalls(seconds)
            | Self::TooManyRequests(seconds)
            | Self::TooManyExchanges(seconds) => Some(*seconds),
            _ => self.row().wait,
        }
    }

    /// The seconds of `Retry-After`: every 429 and 503 has some.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.wait().or(self.row().retry_after())
    }

    /// Returns whether the change was made, and awaits the confirmation of replicas alone.
    pub(super) fn is_unconfirmed(&self) -> bool {
        matches!(self, Self::Unconfirmed(_) | Self::ImportFailed(MigrationError::NotReplicated(_)))
    }

    /// Returns whether the change may have been made all the same, or in part.
    pub(super) fn is_in_doubt(&self) -> bool {
        use ChangeError::Unavailable;
        match self {
            // Nothing was sent.
            Self::NotAcknowledged(Unavailable(StorageError::Redis(state::Unavailable::Overloaded))) => false,
            Self::NotAcknowledged(Unavailable(StorageError::Redis(_))) | Self::ImportFailed(_) => true,
            _ => false,
        }
    }

    /// Returns whether a callback belongs to no pending sign-in of its browser.
    pub(crate) fn is_of_callback(&self) -> bool {
        matches!(self, Self::NoState | Self::UnknownState | Self::OtherBrowser | Self::OtherProvider)
    }

    /// The error of an identity provider that it is.
    pub(crate) fn provider_error(&self) -> Option<&oidc::Error> {
        match self {
            Self::ProviderUnavailable(error)
            | Self::ProviderDeclined(error)
            | Self::InvalidCallback(error)
            | Self::ProviderSettings(error)
            | Self::InvalidIdentity(error) => Some(error),
            _ => None,
        }
    }

    /// Stable name of the error for logs. For identity providers it is more specific than the code.
    pub(crate) fn reason(&self) -> &'static str {
        self.provider_error().map_or(self.code(), oidc::Error::reason)
    }

    /// The error as sentences for a signed-in person: without commands of the operator and the inside of the gateway.
    pub fn for_people(&self) -> String {
        if let Self::NoMembership(email) = self {
            return format!(
                "The identity provider signed you in as {email}, but no organization here has a user with this address."
            );
        }
        let text = || {
            let text = self.to_string();
            sentence(text.split("; see `keygate").next().unwrap_or(&text))
        };
        self.row().for_people.map_or_else(text, str::to_owned)
    }

    /// The error as sentences on an error page.
    pub(crate) fn page_description(&self) -> String {
        self.row().description.map_or_else(|| self.for_people(), str::to_owned)
    }

    /// The error and its causes, on one line.
    pub fn in_full(&self) -> String {
        if let Self::TokenRefused(error) | Self::IssuerUnavailable(error) = self {
            return error.in_full();
        }
        if let Some(error) = self.provider_error() {
            return error.in_full();
        }
        let causes = std::iter::successors(Error::source(self), |cause| (*cause).source());
        causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"))
    }
}

/// ` by ada@example.com at 2026-11-20T21:08:00.000000Z`, or what of it is known.
fn rotation_text(by: Option<&str>, at: Option<Micros>) -> String {
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    format!("{by}{at}")
}

/// ` abcDEF123`; empty for a key that is not named.
fn key_text(key: &Option<KeyId>) -> String {
    key.map(|key| format!(" {key}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_that_does_not_acknowledge_is_unavailable() {
        let not_replicated = ChangeError::NotReplicated { wanted: 2, reached: 1 };
        let unavailable = ChangeError::Unavailable(state::StorageError::Redis(state::Unavailable::TimedOut));
        for error in [not_replicated.into(), unavailable.into(), ManagementError::from(state::Unavailable::Unreachable)]
        {
            assert_eq!((error.code(), error.kind()), ("state_unavailable", ErrorKind::Unavailable), "{error}");
        }
    }
}
