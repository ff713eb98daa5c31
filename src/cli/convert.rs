//! `keygate convert`: makes a file for `keygate apply` of the consumers and keys of another gateway, or routes of an
//! OpenAPI document.
//!
//! The crate of this name reads the file. An error anywhere means no output at all; what has no counterpart is listed,
//! and the exit code says so.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;

use super::progress::ProgressLine;
use super::{CliError, ExitStatus, output};
use ::convert::{Conversion, ConvertError, Dialect, Options, PermissionFrom, Report, Route, User, UserKey};
use domain::budget::OwnBudget;
use domain::counted::Counted;
use domain::identity::Permission;
use domain::plan_name::PlanName;
use domain::quota::Quota;
use domain::{clock, names};
use platform::settings::WithUnit;

/// Sources of users and keys.
const SOURCES_OF_KEYS: [(&str, &str); 5] = [
    ("source", "kong"),
    ("source", "apisix"),
    ("source", "unkey"),
    ("source", "kubernetes"),
    ("source", "agentgateway"),
];

/// Arguments of `keygate convert`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Source of the file
    #[arg(value_enum)]
    source: Dialect,
    /// File of that source, as YAML or JSON; `-` for standard input
    file: PathBuf,
    /// Name of the organization that the users and keys will be of; needed unless the source is openapi
    #[arg(long, value_name = "NAME", required_if_eq_any(SOURCES_OF_KEYS))]
    org: Option<String>,
    /// Make the addresses of users from this field; default: USERNAME@consumer.invalid
    #[arg(long, value_enum, value_name = "FIELD")]
    email_from: Option<EmailFrom>,
    /// Make the permissions of users from this field; default: they are not set
    #[arg(long, value_enum, value_name = "FIELD")]
    permissions_from: Option<PermissionsFrom>,
    /// Make the permission of each route from this field of openapi; default: routes have none
    #[arg(long, value_enum, value_name = "FIELD")]
    permission_from: Option<PermissionFrom>,
    /// Convert keys that have a number of requests left, as keys without one; default: they are left out
    #[arg(long)]
    keep_counted: bool,
    /// Take keys of APISIX that look encrypted as they are
    #[arg(long)]
    plain_keys: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum EmailFrom {
    /// `custom_id` (Unkey: `externalId`), where it is an address; else the id with @consumer.invalid
    #[value(name = "custom_id")]
    CustomId,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PermissionsFrom {
    /// Groups and roles, by their names
    Groups,
}

impl Args {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let name = if self.file == Path::new("-") { "standard input".into() } else { self.file.display().to_string() };
        let flawed = |error| {
            if let ConvertError::Flawed(report) = &error {
                report.lines(&name).into_iter().for_each(output::note);
            }
            CliError::new(ExitStatus::Usage, anyhow::Error::new(error).context(name.clone()))
        };
        if self.source == Dialect::Openapi {
            let text = ::convert::read(&self.file).map_err(flawed)?;
            let (routes, report) = ::convert::routes(&text, self.permission_from).map_err(flawed)?;
            report.lines(&name).into_iter().for_each(output::note);
            write_routes(&mut io::stdout().lock(), &routes)?;
            output::note(format_args!("printed {}", Counted(routes.len(), "route")));
            return conclude(&name, &report);
        }
        let usage = |error| CliError::new(ExitStatus::Usage, anyhow!("--org: {error}"));
        let org = names::validate_org_name(self.org.as_deref().unwrap_or_default()).map_err(usage)?;
        let Conversion { users, plans, report } = self.convert().map_err(flawed)?;
        report.lines(&name).into_iter().for_each(output::note);
        write(&mut io::stdout().lock(), &org, &users, &plans)?;
        let keys = users.iter().map(|user| user.keys.len()).sum::<usize>();
        if !plans.is_empty() {
            let plans = Counted(plans.len(), "plan");
            output::note(format_args!(
                "put the {plans} at the top of the output into the gateway's configuration first"
            ));
        }
        output::note(format_args!("converted {} with {}", Counted(users.len(), "user"), Counted(keys, "key")));
        conclude(&name, &report)
    }

    fn convert(&self) -> Result<Conversion, ConvertError> {
        let options = Options {
            dialect: self.source,
            keep_counted: self.keep_counted,
            plain_keys: self.plain_keys,
            email_from_custom_id: self.email_from.is_some(),
            permissions_from_groups: self.permissions_from.is_some(),
            now: clock::now(),
        };
        let text = ::convert::read(&self.file)?;
        let mut progress = ProgressLine::new();
        ::convert::convert(&text, options, |items, offset| {
            let percent = (offset * 100 / text.len().max(1)).min(100);
            progress.show(|| format!("read {} ({percent} %)", Counted(items, "record")));
        })
    }
}

/// Ends with the exit code that says whether the whole file was converted.
fn conclude(name: &str, report: &Report) -> Result<(), CliError> {
    if report.left() == 0 {
        return Ok(());
    }
    let left = anyhow!("{name}: {report} left out, which the lines above name; all else was converted");
    Err(CliError::new(ExitStatus::Incomplete, left))
}

#[derive(Serialize)]
struct RouteLine<'a> {
    name: &'a str,
    methods: [&'a str; 1],
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permission: Option<&'a Permission>,
}

/// Writes the block `routes` of a configuration, one route a line, as strings of JSON.
fn write_routes(out: &mut impl Write, routes: &[Route]) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    writeln!(out, "routes:{}", if routes.is_empty() { " []" } else { "" })?;
    for Route { name, method, path, is_public, permission, .. } in routes {
        let access = is_public.then_some("public");
        let line = RouteLine { name, methods: [method], path, access, permission: permission.as_ref() };
        writeln!(out, "  - {}", output::json_text(&line)?)?;
    }
    out.flush()
}

#[derive(Serialize)]
struct UserLine<'a> {
    email: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<&'a [Permission]>,
}

#[derive(Serialize)]
struct KeyLine<'a> {
    name: &'a str,
    user: &'a str,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<LimitLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a PlanName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<OwnBudget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<&'a [Permission]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disabled: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct LimitLine {
    requests: u32,
    per: String,
    burst: u32,
}

/// Writes the document for `keygate apply`: YAML with one line for each user and each key, so that a difference between
/// two conversions is one of lines. Its strings are those of JSON, which YAML has as well.
fn write(out: &mut impl Write, org: &str, users: &[User], plans: &BTreeMap<PlanName, Quota>) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    // `apply` gives plans by their names, and the configuration of the gateway has them.
    if !plans.is_empty() {
        writeln!(out, "# Put these plans into the configuration of the gateway first:\n#plans:")?;
    }
    for (name, quota) in plans {
        writeln!(out, "#  {name}: {}", output::json_text(&LimitLine::from(*quota))?)?;
    }
    writeln!(out, "organizations:\n  - name: {}", output::json_text(&org)?)?;
    if !users.is_empty() {
        writeln!(out, "    users:")?;
    }
    for User { email, permissions, .. } in users {
        writeln!(out, "      - {}", output::json_text(&UserLine { email, permissions: permissions.as_deref() })?)?;
    }
    let mut keys = users.iter().flat_map(|user| user.keys.iter().map(|key| (&*user.email, key))).peekable();
    if keys.peek().is_some() {
        writeln!(out, "    keys:")?;
    }
    for (user, key) in keys {
        writeln!(out, "      - {}", output::json_text(&KeyLine::new(user, key))?)?;
    }
    out.flush()
}

impl<'a> KeyLine<'a> {
    fn new(user: &'a str, UserKey { name, digest, limits, plan, budget, policy }: &'a UserKey) -> Self {
        Self {
            name,
            user,
            sha256: digest.to_hex(),
            limits: limits.map(LimitLine::from),
            plan: plan.as_ref(),
            quota: *budget,
            permissions: policy.permissions.as_deref(),
            expires: policy.expires.map(output::seconds),
            disabled: policy.disabled.is_some(),
            tags: &policy.tags,
        }
    }
}

impl From<Quota> for LimitLine {
    fn from(Quota { requests, per, burst, .. }: Quota) -> Self {
        Self { requests, per: WithUnit::Duration(per).to_string(), burst }
    }
}
