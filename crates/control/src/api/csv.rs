//! Keys and changes as CSV (RFC 4180), for spreadsheets.
//!
//! - CSV injection (formula injection, CWE-1236): names and tags are of users, and a spreadsheet executes a cell that
//!   begins like a formula. Such a cell has an apostrophe before it, which makes it a text.
//! - A record of a key has no secret and no digest, so neither has its row.

use platform::settings::WithUnit;

use crate::management::{ChangeEntry, ChangeUser, Key, KeyActor};

/// Media type (RFC 4180, section 3).
pub(super) const MEDIA_TYPE: &str = "text/csv; charset=utf-8; header=present";
/// Titles of the columns.
const COLUMNS: [&str; 18] = [
    "id",
    "name",
    "user",
    "status",
    "created",
    "created_by",
    "expires",
    "last_used",
    "requests",
    "limit",
    "per",
    "burst",
    "permissions",
    "networks",
    "concurrent",
    "tags",
    "rotated",
    "revoked",
];
/// Characters with which spreadsheets begin a formula.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// A row of titles, and one for each key.
pub(super) fn render_keys(keys: &[Key]) -> String {
    let titles = row(&COLUMNS.map(str::to_owned));
    keys.iter().fold(titles, |rows, key| rows + &row(&cells(key)))
}

/// A row of titles, and one for each change.
pub(super) fn render_changes(changes: &[ChangeEntry]) -> String {
    let titles = ["time", "action", "by", "user", "key", "ip", "user_agent", "outcome", "gateway", "id"];
    let cells = |change: &ChangeEntry| {
        [
            change.time.to_string(),
            change.action.clone(),
            change.maker().unwrap_or_else(|| "the operator".to_owned()),
            change.subject.as_ref().map(ChangeUser::label).unwrap_or_default(),
            or_empty(change.key_id),
            or_empty(change.ip),
            change.user_agent.clone().unwrap_or_default(),
            change.outcome.name().to_owned(),
            change.gateway.clone(),
            change.id.to_string(),
        ]
    };
    changes.iter().fold(row(&titles.map(str::to_owned)), |rows, change| rows + &row(&cells(change)))
}

/// The cells of a key: empty where it has none of the column.
fn cells(key: &Key) -> [String; COLUMNS.len()] {
    let (limits, policy) = (&key.limits, &key.policy);
    let tags: Vec<String> = policy.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    [
        key.id.to_string(),
        key.name.clone(),
        key.email.clone(),
        key.status.word(),
        key.created.to_string(),
        key.created_by.as_ref().map(KeyActor::label).unwrap_or_default(),
        or_empty(policy.expires),
        or_empty(key.last_used),
        key.uses.to_string(),
        limits.requests.to_string(),
        WithUnit::Duration(limits.per).to_string(),
        limits.burst.to_string(),
        policy.permissions.as_deref().map(|some| join(some, "none")).unwrap_or_default(),
        join(&policy.networks, ""),
        or_empty(policy.concurrent),
        tags.join("; "),
        or_empty(key.rotated),
        or_empty(key.revoked),
    ]
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The items with spaces between them, or another text for none.
fn join(items: &[impl ToString], none: &str) -> String {
    if items.is_empty() { none.to_owned() } else { items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ") }
}

/// A line of these cells.
fn row(cells: &[String]) -> String {
    cells.iter().map(|text| cell(text)).collect::<Vec<_>>().join(",") + "\r\n"
}

/// A cell, in quotes where RFC 4180 (section 2) requires them.
fn cell(text: &str) -> String {
    let text = without_formulas(text);
    if text.contains([',', '"', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// The text with an apostrophe before what would begin a formula. After a semicolon as well: where the comma is the
/// decimal mark, spreadsheets begin a cell there, which may be in quotes.
fn without_formulas(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    let mut is_begin = true;
    for c in text.chars() {
        if is_begin && FORMULA.contains(&c) {
            harmless.push('\'');
        }
        is_begin = c == ';' || is_begin && matches!(c, ' ' | '"');
        harmless.push(c);
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_have_to_be() {
        for (text, expected) in [
            ("", ""),
            ("a b", "a b"),
            ("a,b", "\"a,b\""),
            ("a \"b\"", "\"a \"\"b\"\"\""),
            ("a\r\nb", "\"a\r\nb\""),
            ("é; 'x'", "é; 'x'"),
        ] {
            assert_eq!(cell(text), expected);
        }
        assert_eq!(row(&["a".into(), String::new(), "b,c".into()]), "a,,\"b,c\"\r\n");
    }

    #[test]
    fn no_cell_begins_a_formula() {
        for (text, expected) in [
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r=1", "\"'\r=1\""),
            ("  =1", "  '=1"),
            ("a;=1; -1", "a;'=1; '-1"),
            ("a;\"=1;", "\"a;\"\"'=1;\""),
            ("=cmd,\"x\"", "\"'=cmd,\"\"x\"\"\""),
            ("a=1 -b @c", "a=1 -b @c"),
        ] {
            assert_eq!(cell(text), expected, "{text:?}");
        }
    }
}
