//! Lists: all pages of a call, printed as they arrive.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CliError;
use super::call::Call;
use super::calls::list_keys;
use super::control::{self, Server};
use super::federation;
use super::installation::Installation;
use super::output::{JsonList, Table, or_dash, seconds, word};
use super::policy_text::policy_line;
use super::show::{self, Format, asterisk, joined, limit, org_status, status, time};
use super::token;
use ::control::management::{FederationRule, Key, KeyQuery, Org, Session, Token, User};
use ::journal::audit::LastUse;
use domain::names;

/// Record that a list has as a row.
pub(super) trait Listed: Serialize + DeserializeOwned {
    /// Titles of the columns.
    const COLUMNS: &'static [&'static str];
    /// Note for an empty list.
    const EMPTY: &'static str;

    /// A cell for each column.
    fn row(&self) -> Vec<String>;
}

/// Performs the call of a list, and prints all its pages, as a table or as `{"items":[…]}`.
pub(super) fn print<T: Listed>(installation: &Installation, call: Call, format: Format) -> Result<(), CliError> {
    let mut output = Output::new(T::COLUMNS.to_vec(), T::EMPTY, format);
    control::with_server(installation, async |server| {
        server.for_each_page(call, async |_, items: Vec<T>| Ok(output.print(&items, T::row)?)).await
    })?;
    Ok(output.finish()?)
}

/// Prints the items of a list that has come whole.
pub(super) fn print_items<T: Listed>(items: &[T], format: Format) -> io::Result<()> {
    let mut output = Output::new(T::COLUMNS.to_vec(), T::EMPTY, format);
    output.print(items, T::row)?;
    output.finish()
}

/// Prints all organizations.
pub(super) fn print_orgs(installation: &Installation, format: Format) -> Result<(), CliError> {
    let columns = vec!["NAME", "ID", "TAG", "STATUS", "CONCURRENT", "CREATED"];
    let mut output = Output::new(columns, "there are no organizations yet", format);
    control::with_server(installation, async |server| {
        let each = async |_: &mut Server<'_>, orgs: Vec<Org>| {
            output.has_own_limits |= orgs.iter().any(|org| org.concurrent.is_some());
            Ok(output.print(&orgs, org_row)?)
        };
        server.for_each_page(Call::get(&["orgs"]), each).await
    })?;
    Ok(output.finish()?)
}

/// Prints the keys of one organization or of all that match, as one list.
pub(super) fn print_keys(
    installation: &Installation,
    org: Option<String>,
    query: &KeyQuery,
    format: Format,
) -> Result<(), CliError> {
    let is_of_all = org.is_none();
    let is_filtered = *query != KeyQuery::default() || is_of_all;
    let empty = if is_filtered { "no key matches" } else { "this organization has no keys yet" };
    let mut output = Output::new(with_cell(KEY_COLUMNS.to_vec(), 2, is_of_all.then_some("ORG")), empty, format);
    control::with_server(installation, async |server| {
        for (org, name) in orgs(server, org).await? {
            let call = list_keys(&org, query);
            let each = async |server: &mut Server<'_>, keys: Vec<Key>| {
                output.has_own_limits |= keys.iter().any(|key| key.limits.own);
                let activity = server.activity(&keys).await;
                let attempt = |key: &Key| activity.get(&key.id).and_then(|activity| activity.last_attempt.as_ref());
                let row = |key: &Key| key_row(key, attempt(key)).to_vec();
                Ok(output.print(&keys, |key| with_cell(row(key), 2, is_of_all.then(|| name.clone())))?)
            };
            server.for_each_page(call, each).await?;
        }
        Ok(())
    })?;
    Ok(output.finish()?)
}

/// Prints the users of one organization or of all, as one list: those with an email address, if one is given.
pub(super) fn print_users(
    installation: &Installation,
    org: Option<String>,
    email: Option<String>,
    format: Format,
) -> Result<(), CliError> {
    let is_of_all = org.is_none();
    let empty = match (&email, is_of_all) {
        (Some(_), _) => "no user matches",
        (None, false) => "this organization has no users yet",
        (None, true) => "there are no users yet",
    };
    let email = email.as_deref().map(names::normalize_handle);
    let mut output = Output::new(with_cell(USER_COLUMNS.to_vec(), 1, is_of_all.then_some("ORG")), empty, format);
    control::with_server(installation, async |server| {
        for (org, name) in orgs(server, org).await? {
            let each = async |_: &mut Server<'_>, mut users: Vec<User>| {
                users.retain(|user| email.as_ref().is_none_or(|email| user.email == *email));
                let org = || is_of_all.then(|| name.clone());
                Ok(output.print(&users, |user| with_cell(user_row(user).to_vec(), 1, org()))?)
            };
            server.for_each_page(Call::get(&["orgs", &org, "users"]), each).await?;
        }
        Ok(())
    })?;
    Ok(output.finish()?)
}

/// The organization that was given, or all: what names each in a path, and its name.
async fn orgs(server: &mut Server<'_>, given: Option<String>) -> Result<Vec<(String, String)>, CliError> {
    match given {
        Some(org) => Ok(vec![(org.clone(), org)]),
        None => Ok(server.read_orgs().await?.into_iter().map(|org| (org.id.to_string(), org.name)).collect()),
    }
}

/// Cells with one more at this place, if it is there.
fn with_cell<T>(mut cells: Vec<T>, place: usize, cell: Option<T>) -> Vec<T> {
    cell.into_iter().for_each(|cell| cells.insert(place, cell));
    cells
}

/// Output of one list.
struct Output {
    format: Format,
    json: JsonList,
    table: Table,
    /// Note for an empty list.
    empty: &'static str,
    has_own_limits: bool,
}

/// Columns of keys of one organization.
const KEY_COLUMNS: [&str; 10] =
    ["ID", "NAME", "USER", "STATUS", "LIMIT", "REQUESTS", "LAST USED", "LAST ATTEMPT", "CREATED", "POLICY"];
/// Columns of users of one organization.
const USER_COLUMNS: [&str; 7] = ["USER", "ID", "KIND", "STATUS", "RESPONSIBLE", "PERMISSIONS", "CREATED"];

impl Output {
    fn new(columns: Vec<&'static str>, empty: &'static str, format: Format) -> Self {
        Self { format, json: JsonList::default(), table: Table::new(&columns), empty, has_own_limits: false }
    }

    /// Prints a page.
    fn print<T: Serialize>(&mut self, items: &[T], row: impl Fn(&T) -> Vec<String>) -> io::Result<()> {
        if self.format.json {
            self.json.items(items)
        } else {
            self.table.rows(&items.iter().map(row).collect::<Vec<_>>())
        }
    }

    /// Prints what comes after the last page.
    fn finish(&self) -> io::Result<()> {
        if self.format.json {
            return self.json.end();
        }
        self.table.end(self.empty);
        show::legend(self.has_own_limits);
        Ok(())
    }
}

impl Listed for Session {
    const COLUMNS: &'static [&'static str] = &["ID", "USER", "ORG", "BY", "SEEN", "EXPIRES", "IP"];
    const EMPTY: &'static str = "there are no sessions";

    fn row(&self) -> Vec<String> {
        let by = self.provider.clone().unwrap_or_else(|| "link".into());
        let (seen, expires) = (seconds(self.seen), seconds(self.expires));
        vec![self.id.to_string(), self.email.clone(), self.org.to_string(), by, seen, expires, or_dash(self.ip)]
    }
}

impl Listed for Token {
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "ORG", "STATUS", "ALLOW", "NETWORKS", "EXPIRES", "BY"];
    const EMPTY: &'static str = "there are no tokens";

    fn row(&self) -> Vec<String> {
        token::token_row(self)
    }
}

impl Listed for FederationRule {
    const COLUMNS: &'static [&'static str] = &federation::COLUMNS;
    const EMPTY: &'static str = "this organization has no federation rules yet";

    fn row(&self) -> Vec<String> {
        federation::rule_row(self)
    }
}

fn org_row(org: &Org) -> Vec<String> {
    let concurrent = format!("{}{}", org.concurrent_in_force, asterisk(org.concurrent.is_some()));
    let status = org_status(org).into();
    vec![org.name.clone(), org.id.to_string(), org.tag.to_string(), status, concurrent, seconds(org.created)]
}

fn user_row(user: &User) -> [String; 7] {
    [
        user.email.clone(),
        user.id.to_string(),
        word(user.kind),
        word(user.status()),
        or_dash(user.responsible.as_ref().map(show::responsible)),
        joined(&user.permissions),
        seconds(user.created),
    ]
}

fn key_row(key: &Key, attempt: Option<&LastUse>) -> [String; 10] {
    [
        key.id.to_string(),
        key.name.clone(),
        key.email.clone(),
        status(key),
        format!("{}{}", limit(&key.limits), asterisk(key.limits.own)),
        key.uses.to_string(),
        time(key.last_used),
        or_dash(attempt.map(|attempt| format!("{} {}", seconds(attempt.time), word(attempt.outcome)))),
        seconds(key.created),
        or_dash(policy_line(&key.policy)),
    ]
}
