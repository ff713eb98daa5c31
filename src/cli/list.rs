//! Lists: all pages of a call, printed as they arrive, as a table or as `{"items":[…]}`.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CliError;
use super::call::Call;
use super::control::{self, Server};
use super::installation::Installation;
use super::output::JsonList;
use super::show::{Fields, Format};
use super::table::{Column, Table};

/// Record that a list has as a row.
pub(super) trait Row: Serialize + Sized + 'static {
    const COLUMNS: &'static [Column<Self>];

    /// The first cells of the row, each under a name.
    fn named(&self, names: &[&'static str]) -> Fields {
        names.iter().zip(Self::COLUMNS).map(|(name, column)| (*name, column.text(self))).collect()
    }
}

/// Output of one list.
pub(super) struct List<R: Row> {
    is_json: bool,
    json: JsonList,
    table: Table<'static, R>,
    /// Note for an empty list.
    empty: &'static str,
}

impl<R: Row> List<R> {
    pub(super) fn new(empty: &'static str, format: Format) -> Self {
        let table = Table::new(R::COLUMNS, format.wide);
        Self { is_json: format.json, json: JsonList::default(), table, empty }
    }

    /// Prints a page.
    pub(super) fn page(&mut self, rows: &[R]) -> io::Result<()> {
        if self.is_json { self.json.items(rows) } else { self.table.rows(rows) }
    }

    /// Prints what comes after the last page.
    pub(super) fn end(&self) -> io::Result<()> {
        if self.is_json {
            return self.json.end();
        }
        self.table.end(self.empty);
        Ok(())
    }
}

/// Performs the call of a list, and prints all its pages.
pub(super) fn print<R: Row + DeserializeOwned>(
    installation: &Installation,
    call: Call,
    empty: &'static str,
    format: Format,
) -> Result<(), CliError> {
    let mut list = List::<R>::new(empty, format);
    control::with_server(installation, async |server| {
        server.for_each_page(call, async |_, rows: Vec<R>| Ok(list.page(&rows)?)).await
    })?;
    Ok(list.end()?)
}

/// Prints the records of one organization, or of all with the column `ORG`, as one list. `rows` makes the rows of the
/// records of the organization with this name.
pub(super) fn print_of_orgs<T: DeserializeOwned, R: Row>(
    installation: &Installation,
    org: Option<String>,
    mut list: List<R>,
    call: impl Fn(&str) -> Call,
    rows: impl AsyncFn(&mut Server<'_>, Vec<T>, &str) -> Vec<R>,
) -> Result<(), CliError> {
    if org.is_some() {
        list.table = list.table.without("ORG");
    }
    control::with_server(installation, async |server| {
        for (org, name) in orgs(server, org).await? {
            let each =
                async |server: &mut Server<'_>, records: Vec<T>| Ok(list.page(&rows(server, records, &name).await)?);
            server.for_each_page(call(&org), each).await?;
        }
        Ok(())
    })?;
    Ok(list.end()?)
}

/// The organization that was given, or all: what names each in a path, and its name.
async fn orgs(server: &mut Server<'_>, given: Option<String>) -> Result<Vec<(String, String)>, CliError> {
    match given {
        Some(org) => Ok(vec![(org.clone(), org)]),
        None => Ok(server.read_orgs().await?.into_iter().map(|org| (org.id.to_string(), org.name)).collect()),
    }
}
