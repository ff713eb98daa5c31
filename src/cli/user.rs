//! `keygate user`: manages the users of an organization.

use std::collections::BTreeSet;

use clap::Subcommand;
use serde::Serialize;
use serde_json::json;

use super::call::Call;
use super::calls::{new_user, patch_user};
use super::control::{self, Server};
use super::installation::Installation;
use super::list::{self, List, Row};
use super::output::{joined, or_dash, seconds, texts, word};
use super::plan_flags::{NewPlan, PlanChange};
use super::quota::quota_text;
use super::show::{self, Fields, Format, Shown, responsible, time};
use super::table::Column;
use super::{CliError, RemoteCommand, output};
use ::control::management::{ADMIN, User, UserKind};
use domain::budget::Spender;
use domain::identity::Permission;
use domain::names;

/// Commands of `keygate user`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a user: a person with an email address, or a service with a responsible person
    Create {
        #[command(flatten)]
        org: InOrg,
        /// Email address; must be unique in the organization
        #[arg(required_unless_present = "service")]
        email: Option<String>,
        /// Name of a service, which never signs in; must be unique in the organization
        #[arg(long, value_name = "NAME", conflicts_with = "email", requires = "responsible")]
        service: Option<String>,
        /// Id or email address of the person who is responsible for the service
        #[arg(long, value_name = "EMAIL", requires = "service", conflicts_with = "email")]
        responsible: Option<String>,
        #[command(flatten)]
        permissions: Permissions,
        #[command(flatten)]
        plan: NewPlan,
    },
    /// List users in the order of their creation, including removed ones and services
    List {
        /// Only users of the organization with this id or name; default: of all organizations
        #[arg(long, value_name = "ORG")]
        org: Option<String>,
        /// Only users with this email address: in which organizations is this person?
        #[arg(long, value_name = "EMAIL")]
        email: Option<String>,
    },
    /// Change the permissions of a user, for its keys from the next request on; without options, show them
    Permit {
        #[command(flatten)]
        org: InOrg,
        /// Id or email address of the user, or name of a service
        user: String,
        #[command(flatten)]
        change: PermissionChange,
    },
    /// Set the plan of a user, for its keys and sessions from the next request on
    Set {
        #[command(flatten)]
        org: InOrg,
        /// Id or email address of the user, or name of a service
        user: String,
        #[command(flatten)]
        plan: PlanChange,
    },
    /// Make another person responsible for a service
    Reassign {
        #[command(flatten)]
        org: InOrg,
        /// Id or name of the service
        user: String,
        /// Id or email address of the person
        #[arg(long, value_name = "EMAIL")]
        responsible: String,
    },
    /// Refuse all requests of a user from now on, until it is resumed; ends its sessions, and keeps its keys
    Suspend {
        #[command(flatten)]
        org: InOrg,
        /// Id or email address of the user, or name of a service
        user: String,
    },
    /// Admit requests of a suspended user again
    Resume {
        #[command(flatten)]
        org: InOrg,
        /// Id or email address of the user, or name of a service
        user: String,
    },
    /// Remove a user and revoke its keys; cannot be undone
    Remove {
        #[command(flatten)]
        org: InOrg,
        /// Id or email address of the user, or name of a service
        user: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct InOrg {
    /// Id or name of the organization
    #[arg(long, value_name = "ORG")]
    pub(super) org: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Permissions {
    /// Permission of the user, such as queries:read; may be repeated
    #[arg(long = "permission", value_name = "PERMISSION")]
    permissions: Vec<Permission>,
}

/// Change of the permissions of a user. Permissions that are not named stay.
#[derive(Debug, clap::Args)]
pub(super) struct PermissionChange {
    /// Add a permission, such as queries:read; may be repeated
    #[arg(long, value_name = "PERMISSION")]
    add: Vec<Permission>,
    /// Take a permission away; may be repeated
    #[arg(long, value_name = "PERMISSION")]
    remove: Vec<Permission>,
    /// Replace all permissions by this one; may be repeated
    #[arg(long, value_name = "PERMISSION", visible_alias = "permission", conflicts_with_all = ["add", "remove"])]
    set: Vec<Permission>,
    /// Take all permissions away
    #[arg(long, conflicts_with_all = ["add", "remove", "set"])]
    none: bool,
}

impl RemoteCommand<Command> {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        match self.command {
            Command::List { org, email } => print_list(installation, org, email.as_deref(), self.format),
            Command::Permit { org: InOrg { org }, user, change } => {
                note_unneeded(installation, &[&*change.add, &*change.set].concat());
                let (user, taken) =
                    control::with_server(installation, async |server| permit(server, org, user, change).await)?;
                let mut fields = user.fields();
                if !taken.is_empty() {
                    show::insert_after(&mut fields, "permissions", ("taken away", joined(&taken)));
                }
                Ok(show::record_with(&user, ("taken_away", taken), &fields, self.format)?)
            }
            Command::Set { org: InOrg { org }, user, plan } => {
                show::perform::<User>(installation, &patch_user(&org, &user, &plan.patch()?), self.format)
            }
            Command::Create { ref permissions, .. } => {
                note_unneeded(installation, &permissions.permissions);
                show::perform::<User>(installation, &call(self.command), self.format)
            }
            command => show::perform::<User>(installation, &call(command), self.format),
        }
    }
}

/// Notes permissions that no route of this machine's gateway needs: most are misspelled. The upstream may need them by
/// itself, so they are no errors; and a file that cannot be read, as that of a gateway elsewhere, gives no note.
fn note_unneeded(installation: &Installation, permissions: &[Permission]) {
    if installation.remote().is_some() || permissions.is_empty() {
        return;
    }
    let Ok(config) = installation.config() else { return };
    let needed: BTreeSet<&str> =
        config.routes.iter().filter_map(|route| route.permission.as_ref()).map(Permission::as_str).collect();
    if needed.is_empty() {
        return;
    }
    let list = needed.iter().copied().collect::<Vec<_>>().join(", ");
    let is_unneeded = |permission: &&Permission| !needed.contains(permission.as_str()) && permission.as_str() != ADMIN;
    for permission in permissions.iter().filter(is_unneeded) {
        output::note(format_args!("no route needs the permission {permission}; routes need {list}"));
    }
}

/// Changes the permissions of a user. Returns the user, with the permissions that were taken away.
async fn permit(
    server: &mut Server<'_>,
    org: String,
    user: String,
    change: PermissionChange,
) -> Result<(User, Vec<Permission>), CliError> {
    let before: User = server.perform(&Call::get(&["orgs", &org, "users", &user])).await?;
    let PermissionChange { add, remove, set, none } = change;
    let patch = if none || !set.is_empty() {
        json!({ "permissions": set })
    } else if add.is_empty() && remove.is_empty() {
        return Ok((before, Vec::new()));
    } else {
        remove.iter().filter(|permission| !before.permissions.contains(permission)).for_each(|permission| {
            output::note(format_args!("{} did not have {permission}", before.email));
        });
        json!({ "add_permissions": add, "remove_permissions": remove })
    };
    let after: User = server.perform(&patch_user(&org, &user, &patch)).await?;
    let mut taken = before.permissions;
    taken.retain(|permission| !after.permissions.contains(permission));
    Ok((after, taken))
}

fn call(command: Command) -> Call {
    match command {
        Command::Create { org: InOrg { org }, email, service, responsible, permissions, plan } => {
            let Permissions { permissions } = permissions;
            let kind = if service.is_some() { UserKind::Service } else { UserKind::Person };
            let handle = email.or(service).unwrap_or_default();
            Call::post(&["orgs", &org, "users"]).with_body(&plan.add_to(new_user(
                &handle,
                kind,
                responsible.as_deref(),
                &permissions,
            )))
        }
        Command::List { .. } | Command::Permit { .. } | Command::Set { .. } => unreachable!("performed before"),
        Command::Reassign { org: InOrg { org }, user, responsible } => {
            patch_user(&org, &user, &json!({ "responsible": responsible }))
        }
        Command::Suspend { org: InOrg { org }, user } => patch_user(&org, &user, &json!({ "suspended": true })),
        Command::Resume { org: InOrg { org }, user } => patch_user(&org, &user, &json!({ "suspended": false })),
        Command::Remove { org: InOrg { org }, user } => Call::delete(&["orgs", &org, "users", &user]),
    }
}

/// A user in a list, with the name of its organization.
#[derive(Serialize)]
#[serde(transparent)]
struct UserRow {
    user: User,
    #[serde(skip)]
    org: String,
}

impl Row for UserRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("USER", 1, |row| row.user.email.clone()),
        Column::new("ORG", 3, |row| row.org.clone()),
        Column::new("ID", 7, |row| row.user.id.to_string()),
        Column::new("KIND", 4, |row| word(row.user.kind)),
        Column::new("STATUS", 2, |row| word(row.user.status())),
        Column::new("RESPONSIBLE", 6, |row| or_dash(row.user.responsible.as_ref().map(responsible))),
        Column::values("PERMISSIONS", 5, |row| texts(&row.user.permissions)),
        Column::new("PLAN", 8, |row| or_dash(row.user.plan.as_ref())),
        Column::new("CREATED", 9, |row| seconds(row.user.created)),
    ];
}

impl Shown for User {
    fn fields(&self) -> Fields {
        vec![
            ("id", self.id.to_string()),
            ("kind", word(self.kind)),
            (if self.kind.is_person() { "email" } else { "name" }, self.email.clone()),
            ("organization", self.org.to_string()),
            ("permissions", joined(&self.permissions)),
            ("created", seconds(self.created)),
            ("removed", time(self.removed)),
            ("vouched for by", or_dash(self.provider.as_ref())),
            ("withdrawn", time(self.withdrawn)),
            ("suspended", time(self.suspended) + if self.suspended_by_operator { " by the operator" } else { "" }),
            ("responsible", or_dash(self.responsible.as_ref().map(responsible))),
            ("plan", or_dash(self.plan.as_ref())),
            ("quota", or_dash(self.quota.map(|quota| quota_text(&quota.of(Spender::User))))),
        ]
    }
}

/// Prints the users of one organization or of all, as one list: those with an email address, if one is given.
fn print_list(
    installation: &Installation,
    org: Option<String>,
    email: Option<&str>,
    format: Format,
) -> Result<(), CliError> {
    let empty = match (email, &org) {
        (Some(_), _) => "no user matches",
        (None, Some(_)) => "this organization has no users yet",
        (None, None) => "there are no users yet",
    };
    let email = email.map(names::normalize_handle);
    let is_listed = |user: &User| email.as_ref().is_none_or(|email| user.email == *email);
    let call = |org: &str| Call::get(&["orgs", org, "users"]);
    list::print_of_orgs(installation, org, List::new(empty, format), call, async |_, users, org| {
        users.into_iter().filter(is_listed).map(|user| UserRow { user, org: org.to_owned() }).collect()
    })
}
