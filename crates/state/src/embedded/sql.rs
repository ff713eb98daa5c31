//! SQL helpers that the other files share: statements, columns as values of their types, and classified errors.

use std::str::FromStr;

use rusqlite::ffi::{SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE};
use rusqlite::types::{FromSql, Type, ValueRef};
use rusqlite::{Connection, Error, Params, Row};

use crate::ChangeError;
use domain::clock::Micros;

/// The unique constraints of the schema, by their columns as SQLite names them, and the field that is then taken.
const UNIQUE: [(&str, &str); 12] = [
    ("orgs.id", "id"),
    ("orgs.tag", "tag"),
    ("orgs.name", "name"),
    ("users.id", "id"),
    ("users.org, users.email", "email"),
    ("keys.id", "id"),
    ("keys.digest", "digest"),
    ("replaced.digest", "digest"),
    ("sessions.id", "id"),
    ("sessions.digest", "digest"),
    ("management_tokens.id", "id"),
    ("federation_rules.org, federation_rules.name", "name"),
];

/// Returns true when a query has a row.
pub(super) fn exists(sql: &Connection, query: &str, parameters: impl Params) -> Result<bool, ChangeError> {
    sql.prepare_cached(query).and_then(|mut query| query.exists(parameters)).map_err(classify_error)
}

/// Runs a statement and returns the number of rows that it changed.
pub(super) fn execute(sql: &Connection, statement: &str, parameters: impl Params) -> Result<usize, ChangeError> {
    sql.prepare_cached(statement).and_then(|mut statement| statement.execute(parameters)).map_err(classify_error)
}

/// Runs a query without parameters and hands over its rows one by one.
pub(super) fn for_each_row(
    connection: &Connection,
    query: &str,
    mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(query)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

/// Classifies an error: [`ChangeError::Taken`] for a violated unique constraint, [`ChangeError::Unavailable`] for
/// everything else.
///
/// The extended result code tells the kind of the constraint, the message names its columns.
pub(super) fn classify_error(error: Error) -> ChangeError {
    match taken_field(&error) {
        Some(field) => ChangeError::Taken(field),
        None => ChangeError::Unavailable(error.into()),
    }
}

fn taken_field(error: &Error) -> Option<&'static str> {
    let Error::SqliteFailure(failure, Some(message)) = error else { return None };
    if ![SQLITE_CONSTRAINT_UNIQUE, SQLITE_CONSTRAINT_PRIMARYKEY].contains(&failure.extended_code) {
        return None;
    }
    let columns = message.strip_prefix("UNIQUE constraint failed: ")?;
    UNIQUE.iter().find(|(constraint, _)| *constraint == columns).map(|(_, field)| *field)
}

/// A count or time as SQLite stores it, saturating: larger values are as good as infinite.
pub(super) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A time as SQLite stores it; a negative one is the epoch.
pub(super) fn micros(value: i64) -> Micros {
    Micros(u64::try_from(value).unwrap_or(0))
}

/// A column that holds a time.
pub(super) fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Micros>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(micros))
}

/// The columns of a row, read one after the other. A look-up by name would compare the names of all columns.
pub(super) struct Columns<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> Columns<'a> {
    pub(super) fn new(row: &'a Row<'a>) -> Self {
        Self { row, next: 0 }
    }

    /// The next column.
    pub(super) fn value<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    /// The next column, which holds a time.
    pub(super) fn time(&mut self) -> rusqlite::Result<Option<Micros>> {
        Ok(self.value::<Option<i64>>()?.map(micros))
    }

    /// The next column, which holds a count.
    pub(super) fn count(&mut self) -> rusqlite::Result<Option<u64>> {
        Ok(self.time()?.map(|count| count.0))
    }

    /// The next column, which holds the text form of a type.
    pub(super) fn text<T>(&mut self) -> rusqlite::Result<T>
    where
        T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
    {
        let index = self.next;
        self.next += 1;
        parse_text(self.row, index)
    }

    /// The same; none when the column is `NULL`.
    pub(super) fn optional_text<T>(&mut self) -> rusqlite::Result<Option<T>>
    where
        T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
    {
        if self.row.get_ref(self.next)? == ValueRef::Null {
            self.next += 1;
            return Ok(None);
        }
        self.text().map(Some)
    }
}

/// A column that holds the text form of a type.
pub(super) fn text<T>(row: &Row<'_>, column: &'static str) -> rusqlite::Result<T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    parse_text(row, row.as_ref().column_index(column)?)
}

/// The same; none when the column is `NULL`.
pub(super) fn optional_text<T>(row: &Row<'_>, column: &'static str) -> rusqlite::Result<Option<T>>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    if row.get_ref(column)? == ValueRef::Null { Ok(None) } else { text(row, column).map(Some) }
}

fn parse_text<T>(row: &Row<'_>, index: usize) -> rusqlite::Result<T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text = row.get_ref(index)?.as_str().map_err(|error| invalid_at(index, error))?;
    text.parse().map_err(|error| invalid_at(index, error))
}

/// The error for a column with a value that is not valid for its type.
pub(super) fn invalid(
    row: &Row<'_>,
    column: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    invalid_at(row.as_ref().column_index(column).unwrap_or(usize::MAX), error)
}

fn invalid_at(index: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::super::state_file;
    use super::*;

    fn strings(connection: &Connection, query: &str) -> Vec<String> {
        let mut found = Vec::new();
        for_each_row(connection, query, |row| row.get(0).map(|value| found.push(value))).unwrap();
        found
    }

    /// Every unique constraint of the schema, as SQLite names it in errors. Tickets replace those with the same digest,
    /// and `meta` its values.
    #[test]
    fn unique_constraints_of_the_schema_are_known() {
        let directory = tempfile::tempdir().unwrap();
        let connection = state_file::open(&directory.path().join("state.db")).unwrap();
        let mut constraints = Vec::new();
        for table in ["orgs", "users", "keys", "replaced", "sessions", "management_tokens", "federation_rules"] {
            let indexes = format!("SELECT name FROM pragma_index_list('{table}') WHERE \"unique\"");
            for index in strings(&connection, &indexes) {
                let columns = strings(&connection, &format!("SELECT name FROM pragma_index_info('{index}')"));
                constraints
                    .push(columns.iter().map(|column| format!("{table}.{column}")).collect::<Vec<_>>().join(", "));
            }
        }
        constraints.sort_unstable();
        let mut known: Vec<&str> = UNIQUE.iter().map(|(columns, _)| *columns).collect();
        known.sort_unstable();
        assert_eq!(constraints, known);
    }

    #[test]
    fn violated_constraints_are_classified() {
        let directory = tempfile::tempdir().unwrap();
        let connection = state_file::open(&directory.path().join("state.db")).unwrap();
        let insert = |row: &str| execute(&connection, &format!("INSERT INTO {row}"), []).map(drop);
        let user = |id, email| {
            let nulls = "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL";
            insert(&format!("users VALUES (NULL, '{id}', 'o', '{email}', '', 0, {nulls})"))
        };
        user("a", "mail").unwrap();
        assert!(matches!(user("a", "other"), Err(ChangeError::Taken("id"))));
        assert!(matches!(user("b", "mail"), Err(ChangeError::Taken("email"))));
        insert("replaced VALUES (x'00', 'k')").unwrap();
        assert!(matches!(insert("replaced VALUES (x'00', 'l')"), Err(ChangeError::Taken("digest"))));
        // Another constraint, although its message ends in the name of a unique column.
        let nameless = "orgs VALUES (NULL, 'i', 't', NULL, 0, 0, NULL, NULL, NULL, NULL)";
        assert!(matches!(insert(nameless), Err(ChangeError::Unavailable(_))));
    }
}
