//! Actors: who asks management for an operation, and from where.
//!
//! - The operator may perform every operation; a signed-in user and a program what
//!   [`authorization`](super::authorization) grants.
//! - The permissions of a user are read from the state for each request and never cached, so that a removal or a change
//!   of permissions holds from the next request on.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::USER_AGENT;

use super::{Management, ManagementError, UnixUser};
use domain::clock::Micros;
use domain::identity::{OrgId, PersonId, UserId, Voucher};
use domain::management_token::{ManagementToken, TokenId};
use domain::names;
use domain::session::TokenDigest;
use state::{ActorName, ETag, Org, PolicyScope, Session, User};

pub use state::ADMIN;

/// Characters of a user agent that are kept.
const USER_AGENT_LENGTH: usize = 1000;

/// Conditions of a call.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The entity tag that the record to be changed must have.
    pub if_match: Option<ETag>,
    /// The call, if it has an idempotency key.
    pub call: Option<IdempotentCall>,
}

impl Conditions {
    /// No condition.
    pub const NONE: Self = Self { if_match: None, call: None };
}

/// A call with an idempotency key (IETF draft idempotency-key-header).
#[derive(Clone, Debug)]
pub struct IdempotentCall {
    /// SHA-256 over the caller, the method, the path and the key.
    pub id: [u8; 32],
    /// SHA-256 of the body, and of the condition of the call where it has one.
    pub body: [u8; 32],
}

/// Actor of an operation.
#[derive(Clone, Debug)]
pub enum Actor {
    /// The operator: any process that may open the admin socket, or the files of the state.
    Operator(Operator),
    /// A visitor in the middle of signing in.
    Visitor(ClientInfo),
    /// A user with a web session.
    User(Box<SignedInUser>),
    /// A program with a management token.
    Program(Box<Program>),
}

/// Client that sent a request, for the audit record.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    /// The client's address, by the trusted-proxy rule.
    pub ip: Option<IpAddr>,
    /// `User-Agent`.
    pub user_agent: Option<String>,
}

impl ClientInfo {
    /// The client at this address, which has sent a request with these fields.
    pub(crate) fn new(ip: Option<IpAddr>, headers: &HeaderMap) -> Self {
        let agent = headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        Self { ip, user_agent: agent.map(|agent| agent.chars().take(USER_AGENT_LENGTH).collect()) }
    }
}

/// The operator, by the Unix user of the process.
#[derive(Clone, Debug)]
pub struct Operator {
    user: UnixUser,
    /// The client whose request made the gateway itself do something.
    client: Option<ClientInfo>,
    conditions: Conditions,
}

/// Program with a management token, as the state has the token at this call.
#[derive(Clone, Debug)]
pub struct Program {
    /// The token.
    pub token: ManagementToken,
    /// The client that sent the call.
    pub client: ClientInfo,
    /// Conditions on which the change of the call is made.
    pub conditions: Conditions,
}

/// User with a web session, as the state has them at this request.
#[derive(Clone, Debug)]
pub struct SignedInUser {
    /// The web session.
    pub session: Session,
    /// The user record in the chosen organization.
    pub user: User,
    /// The chosen organization.
    pub org: Org,
    /// The client that sent the request.
    pub client: ClientInfo,
    /// Conditions on which the change of the call is made.
    pub conditions: Conditions,
}

/// Actor and time of a change, as its audit record names them. `authorize` makes it, so that no change
/// goes without authorization; only signing in makes its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct AuditActor<'a> {
    pub(super) actor: &'a Actor,
    pub(super) now: Micros,
}

impl Actor {
    /// The operator, by this user of the machine.
    pub const fn operator(user: UnixUser) -> Self {
        Self::Operator(Operator { user, client: None, conditions: Conditions::NONE })
    }

    /// The gateway itself, with the rights of the operator; for the request of a client, if it has one.
    pub(crate) fn gateway(client: ClientInfo) -> Self {
        Self::Operator(Operator { user: UnixUser::GATEWAY, client: Some(client), conditions: Conditions::NONE })
    }

    /// The same actor, whose next change is made on these conditions alone.
    pub(crate) fn with_conditions(mut self, given: Conditions) -> Self {
        match &mut self {
            Self::Operator(Operator { conditions, .. }) => *conditions = given,
            Self::User(user) => user.conditions = given,
            Self::Program(program) => program.conditions = given,
            Self::Visitor(_) => {}
        }
        self
    }

    /// Conditions on which its change is made.
    pub(crate) fn conditions(&self) -> &Conditions {
        match self {
            Self::Operator(operator) => &operator.conditions,
            Self::User(user) => &user.conditions,
            Self::Program(program) => &program.conditions,
            Self::Visitor(_) => &Conditions::NONE,
        }
    }

    /// The one whose idempotency keys are counted together: a token, a user, or `operator`.
    pub(crate) fn caller(&self) -> String {
        match self {
            Self::Operator(_) | Self::Visitor(_) => "operator".to_owned(),
            Self::User(user) => user.user.id.to_string(),
            Self::Program(program) => program.token.id.to_string(),
        }
    }

    /// The client that sent the request; none for a person at the machine, whose socket has no address.
    pub(super) fn client(&self) -> Option<&ClientInfo> {
        match self {
            Self::Operator(operator) => operator.client.as_ref(),
            Self::Visitor(client) => Some(client),
            Self::User(user) => Some(&user.client),
            Self::Program(program) => Some(&program.client),
        }
    }

    /// The one who takes turns with others: a person, who is the same in all their organizations and sessions, or a
    /// program; none for the operator and for visitors.
    pub(super) fn person(&self) -> Option<PersonId> {
        match self {
            Self::User(user) => Some(user.person()),
            Self::Program(program) => Some(PersonId::from_token(program.token.id)),
            Self::Operator(_) | Self::Visitor(_) => None,
        }
    }

    /// The only organization that it acts in: the one that a signed-in user has chosen, or that of a token.
    pub(super) fn org(&self) -> Option<OrgId> {
        match self {
            Self::User(user) => Some(user.org.id),
            Self::Program(program) => program.token.org,
            Self::Operator(_) | Self::Visitor(_) => None,
        }
    }

    /// The only organization that the token of a program manages.
    pub(super) fn token_org(&self) -> Option<OrgId> {
        match self {
            Self::Program(program) => program.token.org,
            Self::Operator(_) | Self::Visitor(_) | Self::User(_) => None,
        }
    }

    /// Returns whether it acts with the rights of the operator, as programs do whose token the operator created.
    pub(super) fn is_operator(&self) -> bool {
        match self {
            Self::Operator(_) => true,
            Self::Program(program) => program.token.admin.is_none(),
            Self::Visitor(_) | Self::User(_) => false,
        }
    }

    /// The policies that it may give a key after the one before, at this time.
    pub(super) fn policy_scope(&self, at: Micros) -> PolicyScope {
        match self {
            _ if self.is_operator() => PolicyScope::Operator,
            Self::User(user) if !user.is_admin() => PolicyScope::Owner,
            _ => PolicyScope::Admin { at },
        }
    }

    /// Returns whether it may know the people who run the gateway by name: the operator, and programs of all
    /// organizations.
    pub(super) fn knows_operators(&self) -> bool {
        match self {
            Self::Operator(_) => true,
            Self::Program(program) => program.token.org.is_none(),
            Self::Visitor(_) | Self::User(_) => false,
        }
    }

    /// The management token of a program.
    pub(super) fn token(&self) -> Option<TokenId> {
        match self {
            Self::Program(program) => Some(program.token.id),
            Self::Operator(_) | Self::Visitor(_) | Self::User(_) => None,
        }
    }

    /// The user by whose rights it changes keys and users, and whose bounds a new key counts in: a signed-in user, or
    /// the administrator of a token.
    pub(super) fn bounded_user(&self) -> Option<UserId> {
        match self {
            Self::User(user) => Some(user.user.id),
            Self::Program(program) => program.token.admin,
            Self::Operator(_) | Self::Visitor(_) => None,
        }
    }

    /// The user who changes something. A visitor is the user as whom they sign in, and who is the subject.
    pub(super) fn user(&self, subject: Option<UserId>) -> Option<UserId> {
        match self {
            Self::Operator(_) | Self::Program(_) => None,
            Self::Visitor(_) => subject,
            Self::User(user) => Some(user.user.id),
        }
    }

    /// The actor as records of changes name them.
    pub(super) fn audit_name(&self, subject: Option<UserId>) -> Cow<'_, str> {
        match (self, self.user(subject)) {
            (Self::Operator(operator), _) => Cow::Borrowed(operator.user.as_str()),
            (Self::Program(program), _) => Cow::Owned(ActorName::of_token(program.token.id).to_string()),
            (_, Some(user)) => Cow::Owned(user.to_string()),
            (_, None) => Cow::Borrowed("visitor"),
        }
    }

    /// The only user whose keys and sessions this actor sees; none when the actor sees those of all users.
    pub(super) fn visible_owner(&self) -> Option<UserId> {
        self.signed_in().filter(|user| !user.is_admin()).map(|user| user.user.id)
    }

    /// The signed-in user; none for the operator and for visitors.
    pub(crate) fn signed_in(&self) -> Option<&SignedInUser> {
        match self {
            Self::User(user) => Some(user),
            Self::Operator(_) | Self::Visitor(_) | Self::Program(_) => None,
        }
    }
}

impl Operator {
    /// The user of the machine.
    pub(super) fn user(&self) -> &UnixUser {
        &self.user
    }
}

impl SignedInUser {
    /// Returns whether a provider vouched for the same person when the session began.
    pub fn is_vouched_by(&self, voucher: &Voucher) -> bool {
        self.session.provider.as_ref() == Some(&voucher.provider) && self.session.person == voucher.person
    }

    /// The person, who is the same in all their organizations and sessions.
    pub fn person(&self) -> PersonId {
        self.session.person
    }

    /// Returns whether the user administers the chosen organization.
    pub fn is_admin(&self) -> bool {
        self.user.is_admin()
    }

    /// Returns whether a reference, an id or a name, names the chosen organization.
    pub(super) fn has_chosen(&self, org: &str) -> bool {
        org.parse::<OrgId>().map_or(org.trim() == self.org.name, |id| id == self.org.id)
    }

    /// Returns whether a reference, an id or an email address, names this user.
    pub(super) fn is_named(&self, user: &str) -> bool {
        user.parse::<UserId>()
            .map_or_else(|_| names::normalize_handle(user) == self.user.email, |id| id == self.user.id)
    }
}

/// Looks up the user of a web session. Returns none when the session has ended, or when the user was removed from
/// the chosen organization or withdrawn there: both end the use of all sessions at once.
///
/// # Errors
/// [`ManagementError::StateUnavailable`].
pub async fn authenticate_session(
    management: &Management,
    digest: &TokenDigest,
    client: ClientInfo,
    now: Micros,
) -> Result<Option<SignedInUser>, ManagementError> {
    let Some(session) = management.state.session(digest, now).await? else { return Ok(None) };
    let Some(id) = session.user() else { return Ok(None) };
    let member = management.state.member(session.chosen, id).await?.filter(|(_, user)| user.is_active());
    Ok(member.map(|(org, user)| SignedInUser { session, user, org, client, conditions: Conditions::NONE }))
}
