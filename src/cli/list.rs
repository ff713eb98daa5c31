//! Lists: all pages of an operation, printed as they arrive.

use std::io;

use serde::Serialize;

use super::CliError;
use super::control::{self, KeyActivities};
use super::federation;
use super::installation::Installation;
use super::output::{JsonList, Table, or_dash, seconds, word};
use super::policy_text::policy_line;
use super::show::{self, Format, asterisk, joined, limit, org_status, status, time};
use super::token;
use ::control::admin::{Operation, Reply};
use ::control::management::{Key, KeyQuery, Org, Session, User};
use ::journal::audit::{LastUse, Record};
use domain::names;

/// Performs an operation and prints its reply: a list with all its pages, as a table or as `{"items":[…]}`.
pub(super) fn print(installation: &Installation, operation: Operation, format: Format) -> Result<(), CliError> {
    let is_filtered = matches!(&operation, Operation::ListKeys { query, .. } if **query != KeyQuery::default());
    let mut output = Output::new(format);
    if is_filtered {
        output.no_keys = "no key matches";
    }
    control::for_each_page(installation, operation, |reply, activity| Ok(output.print(reply, activity)?))?;
    Ok(output.finish()?)
}

/// Prints the keys of all organizations that match, as one list.
pub(super) fn print_keys_of_all_orgs(
    installation: &Installation,
    query: &KeyQuery,
    format: Format,
) -> Result<(), CliError> {
    print_all_orgs(installation, |org| Operation::query_keys(org, query.clone()), Output::new(format))
}

/// Prints the users of one organization or of all, as one list: those with an email address, if one is given.
pub(super) fn print_users(
    installation: &Installation,
    org: Option<String>,
    email: Option<String>,
    format: Format,
) -> Result<(), CliError> {
    let mut output = Output::new(format);
    if email.is_some() {
        output.no_users = "no user matches";
    } else if org.is_none() {
        output.no_users = "there are no users yet";
    }
    output.email = email.as_deref().map(names::normalize_handle);
    let Some(org) = org else { return print_all_orgs(installation, Operation::list_users, output) };
    let operation = Operation::list_users(org);
    control::for_each_page(installation, operation, |reply, activity| Ok(output.print(reply, activity)?))?;
    Ok(output.finish()?)
}

/// Prints the lists of an operation in each organization, as one list.
fn print_all_orgs(
    installation: &Installation,
    operation: impl Fn(String) -> Operation,
    mut output: Output,
) -> Result<(), CliError> {
    control::with_server(installation, async |server| {
        for org in server.read_orgs().await? {
            output.org = Some(org.name);
            let operation = operation(org.id.to_string());
            server.for_each_page(operation, |reply, activity| Ok(output.print(reply, activity)?)).await?;
        }
        Ok(())
    })?;
    Ok(output.finish()?)
}

/// Output of one operation.
struct Output {
    format: Format,
    /// The list in JSON, once its first page has come.
    json: Option<JsonList>,
    /// The table, once its first page has come, and the note for an empty one.
    table: Option<(Table, &'static str)>,
    has_own_limits: bool,
    /// The organization of the next keys or users, where those of all are listed.
    org: Option<String>,
    /// Email address of the users that are listed; none for all users.
    email: Option<String>,
    /// Note for an empty list of keys.
    no_keys: &'static str,
    /// Note for an empty list of users.
    no_users: &'static str,
}

/// Columns of keys of one organization.
const KEY_COLUMNS: [&str; 10] =
    ["ID", "NAME", "USER", "STATUS", "LIMIT", "REQUESTS", "LAST USED", "LAST ATTEMPT", "CREATED", "POLICY"];

impl Output {
    fn new(format: Format) -> Self {
        let no_keys = "this organization has no keys yet";
        let no_users = "this organization has no users yet";
        Self { format, json: None, table: None, has_own_limits: false, org: None, email: None, no_keys, no_users }
    }

    fn print(&mut self, reply: Reply, activity: &KeyActivities) -> io::Result<()> {
        match reply {
            Reply::Orgs(page) => self.print_orgs(&page.items),
            Reply::Users(page) => self.print_users(page.items),
            Reply::Keys(page) => self.print_keys(&page.items, activity),
            Reply::Uses(uses) => {
                let header = &["TIME", "ACTION", "OUTCOME", "STATUS", "IP"];
                self.print_rows(&uses.page.items, header, use_row, "there are no requests with this key")
            }
            Reply::Sessions(page) => {
                let header = &["ID", "USER", "ORG", "BY", "SEEN", "EXPIRES", "IP"];
                self.print_rows(&page.items, header, session_row, "there are no sessions")
            }
            Reply::Tokens(page) => {
                let header = &["ID", "NAME", "ORG", "STATUS", "ALLOW", "NETWORKS", "EXPIRES", "BY"];
                self.print_rows(&page.items, header, token::token_row, "there are no tokens")
            }
            Reply::FederationRules(page) => {
                let empty = "this organization has no federation rules yet";
                self.print_rows(&page.items, &federation::COLUMNS, federation::rule_row, empty)
            }
            other => show::reply(other, self.format),
        }
    }

    fn print_orgs(&mut self, orgs: &[Org]) -> io::Result<()> {
        self.has_own_limits |= orgs.iter().any(|org| org.concurrent.is_some());
        let header = &["NAME", "ID", "TAG", "STATUS", "CONCURRENT", "CREATED"];
        self.print_rows(orgs, header, org_row, "there are no organizations yet")
    }

    fn print_users(&mut self, mut users: Vec<User>) -> io::Result<()> {
        if let Some(email) = &self.email {
            users.retain(|user| user.email == *email);
        }
        let header = &["USER", "ID", "KIND", "STATUS", "RESPONSIBLE", "PERMISSIONS", "CREATED"];
        let Some(org) = self.org.clone() else {
            return self.print_rows(&users, header, user_row, self.no_users);
        };
        let [user, rest @ ..] = *header;
        let header = &with_org_column(user, "ORG", rest);
        self.print_rows(&users, header, |user| user_row_with_org(&org, user), self.no_users)
    }

    fn print_keys(&mut self, keys: &[Key], activity: &KeyActivities) -> io::Result<()> {
        self.has_own_limits |= keys.iter().any(|key| key.limits.own);
        let row = |key: &Key| key_row(key, activity.get(&key.id).and_then(|activity| activity.last_attempt.as_ref()));
        let Some(org) = self.org.clone() else {
            return self.print_rows(keys, &KEY_COLUMNS, row, self.no_keys);
        };
        let [id, name, user, status, limit, uses, last_used, attempt, created, policy] = KEY_COLUMNS;
        let header = &[id, name, "ORG", user, status, limit, uses, last_used, attempt, created, policy];
        self.print_rows(keys, header, |key| with_org(&org, row(key)), "no key matches")
    }

    fn print_rows<T: Serialize, const N: usize>(
        &mut self,
        items: &[T],
        header: &[&str; N],
        row: impl Fn(&T) -> [String; N],
        empty: &'static str,
    ) -> io::Result<()> {
        if self.format.json {
            return self.json.get_or_insert_default().items(items);
        }
        let (table, _) = self.table.get_or_insert_with(|| (Table::new(header), empty));
        table.rows(&items.iter().map(row).collect::<Vec<_>>())
    }

    /// Prints what comes after the last page.
    fn finish(&self) -> io::Result<()> {
        if let Some(json) = &self.json {
            return json.end();
        }
        if let Some((table, empty)) = &self.table {
            table.end(empty);
            show::legend(self.has_own_limits);
        }
        Ok(())
    }
}

fn org_row(org: &Org) -> [String; 6] {
    let concurrent = format!("{}{}", org.concurrent_in_force, asterisk(org.concurrent.is_some()));
    let status = org_status(org).into();
    [org.name.clone(), org.id.to_string(), org.tag.to_string(), status, concurrent, seconds(org.created)]
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

/// The row of a user with its organization behind the email address.
fn user_row_with_org(org: &str, user: &User) -> [String; 8] {
    let [email, rest @ ..] = user_row(user);
    with_org_column(email, org.to_owned(), rest)
}

/// A row of users with the organization in the second column.
fn with_org_column<T>(user: T, org: T, rest: [T; 6]) -> [T; 8] {
    let [id, kind, status, responsible, permissions, created] = rest;
    [user, org, id, kind, status, responsible, permissions, created]
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

/// The row of a key with its organization behind its name.
fn with_org(org: &str, row: [String; 10]) -> [String; 11] {
    let [id, name, user, status, limit, uses, last_used, attempt, created, policy] = row;
    [id, name, org.to_owned(), user, status, limit, uses, last_used, attempt, created, policy]
}

fn use_row(record: &Record) -> [String; 5] {
    let status = or_dash(record.status);
    [seconds(record.time), record.action.clone(), word(record.outcome), status, or_dash(record.ip)]
}

fn session_row(session: &Session) -> [String; 7] {
    let by = session.provider.clone().unwrap_or_else(|| "link".into());
    let seen = seconds(session.seen);
    let expires = seconds(session.expires);
    [session.id.to_string(), session.email.clone(), session.org.to_string(), by, seen, expires, or_dash(session.ip)]
}
