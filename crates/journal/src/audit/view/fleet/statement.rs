//! SQL that selects records: a filter, an order and a limit as one statement with its parameters.
//!
//! - Conditions on what the indexes have come first, inside; those on an outcome are checked on the records so found,
//!   of which there is a bounded number for each page ([`MAX_SCANNED`]).

use std::fmt::Write as _;
use std::time::Duration;

use tokio_postgres::types::ToSql;

use crate::audit::filter::Filter;
use crate::audit::format::record::{Outcome, Record, RecordKind};
use crate::audit::view::cursor::RecordPlace;
use domain::clock::Micros;
use domain::identity::{AuthMethod, MANAGEMENT_METHOD};

/// Records of one statement at most.
pub(crate) const MAX_ROWS: u32 = 5000;
/// Records that are looked through for one page, where few of them match: some tenths of a second.
pub(crate) const MAX_SCANNED: u32 = 50_000;

/// Selection of records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordQuery<'a> {
    pub(crate) filter: &'a Filter,
    /// The end of the order that comes first.
    pub(crate) from: End,
    /// Only records behind this one, seen from the end.
    pub(crate) behind: Option<RecordPlace>,
    pub(crate) limit: u32,
}

/// End of the order of records from which they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Newest,
    Oldest,
}

/// A statement and its parameters.
#[derive(Default)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) params: Vec<Box<dyn ToSql + Sync + Send>>,
    /// A condition was added already.
    has_where: bool,
}

/// The SQL of the listed route of a record; null of a request of no listed route.
pub(super) const ROUTE: &str = "CASE WHEN position(' ' IN action) = 0 THEN action END";

/// The condition that a record is a change by management.
pub(super) fn is_change() -> String {
    format!("auth_method <> '{}' AND method = '{MANAGEMENT_METHOD}'", AuthMethod::ApiKey.as_str())
}

/// The names of the outcomes that are refusals.
pub(super) fn refusals() -> Vec<&'static str> {
    Outcome::all().filter(|outcome| outcome.is_refusal()).map(Outcome::name).collect()
}

impl End {
    /// True when `place` is nearer to this end than `other`.
    pub(crate) fn is_nearer(self, place: RecordPlace, other: RecordPlace) -> bool {
        match self {
            Self::Newest => place > other,
            Self::Oldest => place < other,
        }
    }

    /// Sorts records from this end on.
    pub(crate) fn sort(self, records: &mut [Record]) {
        records.sort_unstable_by_key(RecordPlace::of);
        if self == Self::Newest {
            records.reverse();
        }
    }
}

impl<'a> RecordQuery<'a> {
    /// All records of a filter, from this end on.
    pub(crate) fn new(filter: &'a Filter, from: End) -> Self {
        Self { filter, from, behind: None, limit: MAX_ROWS }
    }

    /// The statement whose rows are the records, as JSON without members that are `null`.
    pub(super) fn records(&self) -> Statement {
        let mut statement = Statement::new(
            "SELECT json_strip_nulls(row_to_json(found))::text FROM (SELECT * FROM (SELECT * FROM keygate.records",
        );
        self.write_indexed(&mut statement);
        if self.is_sparse() {
            write!(statement.sql, "{} LIMIT {MAX_SCANNED}", self.order()).expect("text can be written");
        }
        statement.sql += ") AS scanned";
        self.write_sparse(&mut statement);
        write!(statement.sql, "{} LIMIT {}) AS found{}", self.order(), self.limit, self.order())
            .expect("text can be written");
        statement
    }

    /// The statement whose row is the place of the last record that [`RecordQuery::records`] looks through; no row when
    /// it looks through all.
    pub(super) fn last_scanned(&self) -> Option<Statement> {
        if !self.is_sparse() {
            return None;
        }
        let mut statement = Statement::new("SELECT ");
        statement.sql += &micros("time");
        statement.sql += ", id::text FROM keygate.records";
        self.write_indexed(&mut statement);
        write!(statement.sql, "{} OFFSET {} LIMIT 1", self.order(), MAX_SCANNED - 1).expect("text can be written");
        Some(statement)
    }

    /// The statement whose rows are the ids of the records that match the conditions on what the indexes have.
    pub(super) fn ids(filter: &'a Filter) -> Statement {
        let mut statement = Statement::new("SELECT id::text FROM keygate.records");
        RecordQuery::new(filter, End::Newest).write_indexed(&mut statement);
        statement
    }

    /// True when few records may match, of those that the indexes find.
    fn is_sparse(&self) -> bool {
        let Filter { outcome, refused, kind, covers, action, .. } = *self.filter;
        outcome.is_some() || refused.is_some() || kind.is_some() || covers.is_some() || action.is_some()
    }

    fn order(&self) -> &'static str {
        match self.from {
            End::Newest => " ORDER BY time DESC, id DESC",
            End::Oldest => " ORDER BY time, id",
        }
    }

    fn write_indexed(&self, to: &mut Statement) {
        // The others are conditions on what the indexes do not have.
        let Filter { key, user, subject, token, org, since, until, id, .. } = *self.filter;
        to.and_text("key_id = ", key.map(|key| key.to_string()));
        to.and_text("user_id = ", user.map(|user| user.to_string()));
        to.and_text("subject = ", subject.map(|user| user.to_string()));
        to.and_text("token_id = ", token.map(|token| token.to_string()));
        to.and_text("org_id = ", org.map(|org| org.to_string()));
        to.and_time("time >= ", since);
        to.and_time("time < ", until);
        if let Some(id) = id {
            let id = to.param(id.to_string(), "text::uuid");
            to.and(&format!("id = {id}"));
        }
        if let Some(RecordPlace { time, id }) = self.behind {
            let operator = if self.from == End::Newest { "<" } else { ">" };
            let time = to.time(time);
            let id = to.param(id.to_string(), "text::uuid");
            // The first condition is for the choice of partitions.
            to.and(&format!("time {operator}= {time} AND (time, id) {operator} ({time}, {id})"));
        }
    }

    fn write_sparse(&self, to: &mut Statement) {
        to.has_where = false;
        to.and_text("outcome = ", self.filter.outcome.map(|outcome| outcome.name().to_owned()));
        to.and_text("action = ", self.filter.action.map(|action| action.as_str().to_owned()));
        let change = is_change();
        match self.filter.kind {
            Some(RecordKind::Change) => to.and(&change),
            Some(RecordKind::Request) => to.and(&format!("NOT ({change})")),
            None => {}
        }
        if let Some(refused) = self.filter.refused {
            let refusals = to.param(refusals(), "text[]");
            to.and(&format!("(outcome = ANY ({refusals})) = {refused}"));
        }
        if let Some(covers) = self.filter.covers {
            to.and("count > 1");
            to.and_time("time < ", Some(covers.after(Duration::from_millis(1))));
            to.and_time("last_time >= ", Some(covers));
        }
    }
}

/// The SQL of a time as a number of microseconds.
pub(super) fn micros(column: &str) -> String {
    format!("(extract(epoch FROM {column}) * 1000000)::bigint")
}

impl Statement {
    pub(super) fn new(sql: &str) -> Self {
        Self { sql: sql.to_owned(), ..Self::default() }
    }

    /// Adds a parameter, and returns its place in the SQL.
    pub(super) fn param(&mut self, value: impl ToSql + Sync + Send + 'static, type_name: &str) -> String {
        self.params.push(Box::new(value));
        format!("${}::{type_name}", self.params.len())
    }

    /// Adds a time.
    pub(super) fn time(&mut self, time: Micros) -> String {
        let micros = self.param(i64::try_from(time.0).unwrap_or(i64::MAX), "bigint");
        // Exact: a number of microseconds until the year 2255 is a number of floating point as well.
        format!("('epoch'::timestamptz + {micros} * '1 microsecond'::interval)")
    }

    fn and_text(&mut self, condition: &str, value: Option<String>) {
        if let Some(value) = value {
            let value = self.param(value, "text");
            self.and(&format!("{condition}{value}"));
        }
    }

    fn and_time(&mut self, condition: &str, time: Option<Micros>) {
        if let Some(time) = time {
            let time = self.time(time);
            self.and(&format!("{condition}{time}"));
        }
    }

    /// Adds a condition.
    pub(super) fn and(&mut self, condition: &str) {
        self.sql += if std::mem::replace(&mut self.has_where, true) { " AND " } else { " WHERE " };
        self.sql += condition;
    }

    /// The parameters, as the client takes them.
    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_parameters() {
        let filter = Filter { key: Some("abcDEF123".parse().unwrap()), refused: Some(true), ..Filter::default() };
        let query = RecordQuery {
            filter: &filter,
            from: End::Newest,
            behind: Some(RecordPlace { time: Micros(7), id: uuid::Uuid::nil() }),
            limit: 21,
        };
        let Statement { sql, params, .. } = query.records();
        assert!(sql.contains("WHERE key_id = $1::text AND time <= "), "{sql}");
        assert!(sql.contains("LIMIT 50000) AS scanned WHERE (outcome = ANY ($4::text[])) = true"), "{sql}");
        assert!(!sql.contains("abcDEF123"), "texts are parameters: {sql}");
        assert_eq!(params.len(), 4);
        let all = RecordQuery { filter: &Filter::default(), behind: None, ..query };
        assert!(!all.records().sql.contains("WHERE"), "{}", all.records().sql);
        assert!(all.last_scanned().is_none() && query.last_scanned().is_some());
    }
}
