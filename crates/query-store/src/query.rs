//! Stored queries, and drafts: the checked input of a client.

use serde::{Serialize, Serializer};
use uuid::Uuid;

use domain::clock::Micros;
use domain::identity::UserId;

/// Maximum length of a name in characters: it fits a line of a list.
pub const MAX_NAME: usize = 200;
/// Maximum size of a query's text in bytes: far more than people write, and a page of 100 queries stays below 7 MiB.
pub const MAX_SQL: usize = 64 * 1024;

/// A stored query, in the form that `GET` returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Query {
    /// UUIDv7, assigned at creation.
    pub id: Uuid,
    /// The text of the query.
    pub sql: String,
    /// The name, for people.
    pub name: String,
    /// Time of creation; never changes.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: Micros,
    /// Time of creation or of the last replacement.
    #[serde(serialize_with = "rfc3339")]
    pub updated_at: Micros,
    /// The user who created it.
    pub created_by: UserId,
}

/// Draft of a query: the part that a client writes.
///
/// - The name is 1 to [`MAX_NAME`] characters, not all blank, none of them a control character.
/// - The text is 1 to [`MAX_SQL`] bytes, not all blank, without NUL (PostgreSQL cannot store it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryDraft {
    name: String,
    sql: String,
}

/// The first rule that a draft breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDraft {
    /// The name is empty or blank.
    #[error("`name` must not be empty")]
    NameEmpty,
    /// The name is too long.
    #[error("`name` must have at most {MAX_NAME} characters")]
    NameTooLong,
    /// The name has control characters.
    #[error("`name` must not contain control characters")]
    NameControl,
    /// The text is empty or blank.
    #[error("`sql` must not be empty")]
    SqlEmpty,
    /// The text is too long.
    #[error("`sql` must have at most {MAX_SQL} bytes")]
    SqlTooLong,
    /// The text has a NUL character.
    #[error("`sql` must not contain the character U+0000")]
    SqlNul,
}

impl Query {
    /// A new query of this user, under an id of its own.
    pub(crate) fn new(user: UserId, draft: &QueryDraft, now: Micros) -> Self {
        Self {
            id: Uuid::now_v7(),
            sql: draft.sql.clone(),
            name: draft.name.clone(),
            created_at: now,
            updated_at: now,
            created_by: user,
        }
    }
}

impl QueryDraft {
    /// Checks the input of a client.
    ///
    /// # Errors
    /// [`InvalidDraft`]: the first rule that is broken.
    pub fn new(name: String, sql: String) -> Result<Self, InvalidDraft> {
        check_name(&name)?;
        check_sql(&sql)?;
        Ok(Self { name, sql })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn sql(&self) -> &str {
        &self.sql
    }
}

fn check_name(name: &str) -> Result<(), InvalidDraft> {
    if name.trim().is_empty() {
        return Err(InvalidDraft::NameEmpty);
    }
    if name.chars().count() > MAX_NAME {
        return Err(InvalidDraft::NameTooLong);
    }
    if name.chars().any(char::is_control) { Err(InvalidDraft::NameControl) } else { Ok(()) }
}

fn check_sql(sql: &str) -> Result<(), InvalidDraft> {
    if sql.trim().is_empty() {
        return Err(InvalidDraft::SqlEmpty);
    }
    if sql.len() > MAX_SQL {
        return Err(InvalidDraft::SqlTooLong);
    }
    if sql.contains('\0') { Err(InvalidDraft::SqlNul) } else { Ok(()) }
}

fn rfc3339<S: Serializer>(time: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(name: &str, sql: &str) -> Result<QueryDraft, InvalidDraft> {
        QueryDraft::new(name.into(), sql.into())
    }

    #[test]
    fn draft_rules_are_checked() {
        assert!(draft("Orders", "select 1\n\t-- fine").is_ok());
        assert!(draft(&"ü".repeat(MAX_NAME), &"x".repeat(MAX_SQL)).is_ok());
        assert_eq!(draft(" \t", "select 1"), Err(InvalidDraft::NameEmpty));
        assert_eq!(draft(&"x".repeat(MAX_NAME + 1), "select 1"), Err(InvalidDraft::NameTooLong));
        assert_eq!(draft("a\nb", "select 1"), Err(InvalidDraft::NameControl));
        assert_eq!(draft("a", "  "), Err(InvalidDraft::SqlEmpty));
        assert_eq!(draft("a", &"x".repeat(MAX_SQL + 1)), Err(InvalidDraft::SqlTooLong));
        assert_eq!(draft("a", "select '\0'"), Err(InvalidDraft::SqlNul));
    }
}
