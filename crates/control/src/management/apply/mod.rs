//! Documents: organizations, users, federation rules and keys, made what a file says, by the operations themselves.
//!
//! - A dry run performs the operations on a state in memory (`trial`), for the same caller, and shows what they changed
//!   and what they refused. So what was just applied is never planned anew, and a plan has no rules of its own.
//! - Records that the document does not name, and fields that it does not have, stay as they are.
//! - Nothing is withdrawn unless the document says so, and nothing that was withdrawn comes back.
//!
//! ```text
//! apply > org, user, rule, key > caller, step; trial > document < flaws
//! ```

use serde::{Deserialize, Serialize};

use super::policy_text::seconds;
use super::{Actor, ErrorKind, Management, ManagementError, show_org};
use caller::{Caller, found};
use domain::clock::Micros;
use domain::identity::Permission;
use domain::problem::sentence;
use state::TooLate;
use step::Named;

mod document;
mod flaws;
mod step;
mod caller;
mod org;
mod user;
mod rule;
mod key;
mod trial;

pub use document::{Document, KeySpec, LimitSpec, OrgSpec, RuleSpec, UserSpec};
pub use flaws::Flaw;
pub use step::{Action, FieldChange, PlanStep};

/// Records of a document at most, so that one call is bounded as others are.
pub const MAX_RECORDS: usize = 200;
/// Records at most that a dry run takes as made before: each record of the document, with its organization, its user
/// and the person who is responsible for it.
const MAX_GIVEN: usize = 3 * MAX_RECORDS;

/// The steps of a document that were made, or that a dry run has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// One for each record that is not yet what the document says, in the order in which they are made.
    pub steps: Vec<PlanStep>,
    /// The reason for which the step after these was not made, and none behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failure>,
}

/// Problem of a step that was not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in Problem")]
pub struct Failure {
    pub status: u16,
    pub code: String,
    pub detail: String,
}

/// One record of an organization.
#[derive(Clone, Copy)]
enum Record<'a> {
    Org,
    User(&'a UserSpec),
    Rule(&'a RuleSpec),
    Key(&'a KeySpec),
}

/// Makes the records of a document what it says, up to the first that is refused. Each is one or a few operations,
/// which authorize the actor and are recorded.
///
/// # Errors
/// [`ManagementError::InvalidBody`] for a document with flaws; those of operations are in the result.
pub async fn apply_document(
    management: &Management,
    actor: &Actor,
    mut document: Document,
    now: Micros,
) -> Result<Application, ManagementError> {
    check(&mut document, MAX_RECORDS)?;
    let by = Caller { management, actor, now };
    let mut steps = Vec::new();
    for (org, record) in records(&document) {
        match record.make(by, org).await {
            Ok(step) => steps.extend(step),
            Err(error) => {
                let (status, code) = (error.kind().status().as_u16(), error.code().to_owned());
                let failed = Failure { status, code, detail: sentence(&error.in_full()) };
                return Ok(Application { steps, failed: Some(failed) });
            }
        }
    }
    Ok(Application { steps, failed: None })
}

/// Shows what the application of a document would change, and what of it would be refused; the records of `given` are
/// taken as applied before.
///
/// # Errors
/// [`ManagementError::InvalidBody`] for a document with flaws; others when the state cannot be read.
pub async fn plan_document(
    management: &Management,
    actor: &Actor,
    mut given: Document,
    mut document: Document,
    now: Micros,
) -> Result<Application, ManagementError> {
    check(&mut given, MAX_GIVEN)?;
    check(&mut document, MAX_RECORDS)?;
    let trial = management.trial(actor, [&given, &document], now).await?;
    let by = Caller { management: &trial, actor, now };
    // Its conflicts are shown with the document that it was the records of.
    plan(by, &given).await?;
    let steps = plan(by, &document).await?;
    trial.state.close().await;
    Ok(Application { steps, failed: None })
}

/// Makes the records of a document on the state of a trial; one that is refused is a conflict.
async fn plan(by: Caller<'_>, document: &Document) -> Result<Vec<PlanStep>, ManagementError> {
    let mut steps = Vec::new();
    let mut missing = None;
    for (org, record) in records(document) {
        if missing == Some(&org.name) {
            continue;
        }
        match record.make(by, org).await {
            Ok(step) => steps.extend(step),
            Err(error) if [ErrorKind::Unavailable, ErrorKind::Internal].contains(&error.kind()) => return Err(error),
            Err(error) => {
                steps.push(PlanStep::conflict(record.named(org), record.reason(org, error)));
                // Without the organization, each of its records would be a conflict for that alone.
                let Caller { management, actor, now } = by;
                if matches!(record, Record::Org) && found(show_org(management, actor, &org.name, now).await)?.is_none()
                {
                    missing = Some(&org.name);
                }
            }
        }
    }
    Ok(steps)
}

/// Refuses a document with flaws or too many records, and writes its names as the operations do.
fn check(document: &mut Document, max: usize) -> Result<(), ManagementError> {
    let invalid = |what: String| Err(ManagementError::InvalidBody(what));
    if document.organizations.iter().map(OrgSpec::count).sum::<usize>() > max {
        return invalid(format!("it has more than {max} records; send the others separately"));
    }
    if let Some(flaw) = document.flaws().first() {
        return invalid(format!("{flaw}"));
    }
    document.normalize();
    Ok(())
}

/// The records of a document in the order in which they are made: persons before the services that they may be
/// responsible for, and users before their keys.
fn records(document: &Document) -> impl Iterator<Item = (&OrgSpec, Record<'_>)> {
    document.organizations.iter().flat_map(|org| {
        let persons = org.users.iter().filter(|user| user.service.is_none());
        let services = org.users.iter().filter(|user| user.service.is_some());
        let users = persons.chain(services).map(Record::User);
        let rules = org.federation_rules.iter().map(Record::Rule);
        let keys = org.keys.iter().map(Record::Key);
        std::iter::once(Record::Org).chain(users).chain(rules).chain(keys).map(move |record| (org, record))
    })
}

impl Record<'_> {
    /// Makes it what the document says; none when it is that.
    async fn make(self, by: Caller<'_>, org: &OrgSpec) -> Result<Option<PlanStep>, ManagementError> {
        let of = self.named(org);
        match self {
            Self::Org => org::make(by, org, of).await,
            Self::User(spec) => user::make(by, org, spec, of).await,
            Self::Rule(spec) => rule::make(by, org, spec, of).await,
            Self::Key(spec) => key::make(by, org, spec, of).await,
        }
    }

    fn named(self, org: &OrgSpec) -> Named {
        let within = |name: &str| format!("{}/{name}", org.name);
        match self {
            Self::Org => ("organization", org.name.clone()),
            Self::User(spec) => ("user", within(&spec.handle())),
            Self::Rule(spec) => ("rule", within(&spec.name)),
            Self::Key(spec) => ("key", within(&spec.shown())),
        }
    }

    /// The reason of a conflict, where the organization and the user are those of the document.
    fn reason(self, org: &OrgSpec, error: ManagementError) -> String {
        let org = &org.name;
        match (error, self) {
            (ManagementError::ApplyConflict(reason), _) => reason,
            (ManagementError::NoUser(user), _) => format!("there is no user {user} in organization {org}"),
            (ManagementError::BeyondOwner(beyond), Self::Rule(RuleSpec { user, .. })) => {
                beyond_owner("service", user, &beyond)
            }
            (ManagementError::BeyondOwner(beyond), Self::Key(KeySpec { user: Some(user), .. })) => {
                beyond_owner("user", user, &beyond)
            }
            (ManagementError::TooLate(TooLate { latest }), _) => {
                format!("would expire after {}, the latest that max_expiry of {org} allows", seconds(latest))
            }
            (ManagementError::KeyIdOfAnotherOrg { id, .. }, _) => {
                format!("has the id {id}, which does not begin with the tag of {org}")
            }
            (error, _) => error.to_string(),
        }
    }
}

fn beyond_owner(kind: &str, owner: &str, beyond: &Permission) -> String {
    format!("the {kind} {owner} does not have the permission {beyond}; give it to the {kind} as well, or leave it out")
}
