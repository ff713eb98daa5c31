//! Tables of records: columns, each a title and a function from a record to its cell, fitted to the terminal.
//!
//! - Scripts read every column: with `--wide`, and where standard output is no terminal, none is left out, and no cell
//!   is cut.
//! - On a terminal, columns that do not fit are left out, the least important ones first, and a note counts them.

use std::io;

use rustix::termios::tcgetwinsize;

use super::output::{Escaped, aligned, line, note};
use domain::counted::Counted;

/// Characters of a cell with several values, on a terminal; the values beyond are counted.
const VALUES_WIDTH: usize = 40;
/// Characters between two columns.
const GAP: usize = 2;

/// Column of a table of records.
pub(super) struct Column<T> {
    title: &'static str,
    /// 1 is the most important.
    rank: u8,
    cell: Cell<T>,
    /// Meaning of an asterisk at the end of a cell, which no name is in.
    legend: Option<&'static str>,
}

enum Cell<T> {
    Text(fn(&T) -> String),
    Values(fn(&T) -> Vec<String>),
}

/// Table that is written a page at a time.
pub(super) struct Table<'a, T> {
    columns: Vec<&'a Column<T>>,
    /// Widths of the columns, as of the pages so far.
    widths: Vec<usize>,
    /// Places of the columns that are shown; none before the first row.
    shown: Vec<usize>,
    /// Width of the terminal; none where everything is shown.
    terminal: Option<usize>,
    legend: Option<&'static str>,
}

/// Writes all rows of a table; for no rows, the note `empty` instead.
pub(super) fn print<T>(columns: &[Column<T>], rows: &[T], empty: &str, is_wide: bool) -> io::Result<()> {
    let mut table = Table::new(columns, is_wide);
    table.rows(rows)?;
    table.end(empty);
    Ok(())
}

impl<T> Column<T> {
    pub(super) const fn new(title: &'static str, rank: u8, cell: fn(&T) -> String) -> Self {
        Self { title, rank, cell: Cell::Text(cell), legend: None }
    }

    /// A column whose cells have several values each: a dash for none.
    pub(super) const fn values(title: &'static str, rank: u8, cell: fn(&T) -> Vec<String>) -> Self {
        Self { title, rank, cell: Cell::Values(cell), legend: None }
    }

    /// A column whose cells may end with an asterisk, which the legend explains.
    pub(super) const fn starred(title: &'static str, rank: u8, legend: &'static str, cell: fn(&T) -> String) -> Self {
        Self { title, rank, cell: Cell::Text(cell), legend: Some(legend) }
    }

    /// The whole cell of a record.
    pub(super) fn text(&self, record: &T) -> String {
        self.cell(record, usize::MAX)
    }

    fn cell(&self, record: &T, values_width: usize) -> String {
        match self.cell {
            Cell::Text(text) => text(record),
            Cell::Values(values) => values_text(&values(record), values_width),
        }
    }
}

impl<'a, T> Table<'a, T> {
    pub(super) fn new(columns: &'a [Column<T>], is_wide: bool) -> Self {
        Self::within(columns, if is_wide { None } else { terminal_width() })
    }

    fn within(columns: &'a [Column<T>], terminal: Option<usize>) -> Self {
        let widths = columns.iter().map(|column| column.title.chars().count()).collect();
        Self { columns: columns.iter().collect(), widths, shown: Vec::new(), terminal, legend: None }
    }

    /// The same without this column.
    pub(super) fn without(mut self, title: &str) -> Self {
        self.columns.retain(|column| column.title != title);
        self.widths = self.columns.iter().map(|column| column.title.chars().count()).collect();
        self
    }

    /// Writes more rows. A column is as wide as its widest cell so far.
    pub(super) fn rows(&mut self, rows: &[T]) -> io::Result<()> {
        self.lines(rows).into_iter().try_for_each(line)
    }

    /// The lines of more rows: the header before the first ones, and again where fewer columns fit from there on.
    fn lines(&mut self, rows: &[T]) -> Vec<String> {
        let values_width = self.terminal.map_or(usize::MAX, |_| VALUES_WIDTH);
        // Escaped before they are measured.
        let cell = |column: &&Column<T>, row| Escaped(column.cell(row, values_width)).to_string();
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| self.columns.iter().map(|column| cell(column, row)).collect()).collect();
        if rows.is_empty() {
            return Vec::new();
        }
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let shown = self.fitting();
        let titles = || self.columns.iter().map(|column| column.title.to_owned()).collect();
        let header: Option<Vec<String>> = (shown != self.shown).then(titles);
        let is_marked =
            |at: &&usize| self.columns[**at].legend.is_some() && rows.iter().any(|row| row[**at].ends_with('*'));
        self.legend = shown.iter().find(is_marked).map_or(self.legend, |at| self.columns[*at].legend);
        self.shown = shown;
        header.iter().chain(&rows).map(|row| self.line(row)).collect()
    }

    /// The columns that fit, at least one.
    fn fitting(&self) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let width = |shown: &[usize]| shown.iter().map(|at| self.widths[*at] + GAP).sum::<usize>() - GAP;
        while shown.len() > 1 && self.terminal.is_some_and(|terminal| width(&shown) > terminal) {
            let least = shown.iter().copied().max_by_key(|at| self.columns[*at].rank);
            shown.retain(|at| Some(*at) != least);
        }
        shown
    }

    fn line(&self, cells: &[String]) -> String {
        let shown = self.shown.iter().map(|at| (cells[*at].as_str(), self.widths[*at]));
        aligned(shown)
    }

    /// Writes the notes below the table: for no rows, `empty` instead.
    pub(super) fn end(&self, empty: &str) {
        self.notes(empty).iter().for_each(note);
    }

    fn notes(&self, empty: &str) -> Vec<String> {
        if self.shown.is_empty() {
            return vec![empty.to_owned()];
        }
        let left_out = self.columns.len() - self.shown.len();
        let left_out = (left_out > 0).then(|| format!("{}: --wide", Counted(left_out, "more column")));
        self.legend.map(str::to_owned).into_iter().chain(left_out).collect()
    }
}

/// Values in one cell. Of those that are longer together, the first ones, and the number of the others.
fn values_text(values: &[String], width: usize) -> String {
    let first = |count: usize| values[..count].join(" ");
    let fits = |count: &usize| first(*count).chars().count() <= width;
    match (1..=values.len()).take_while(fits).last().unwrap_or(1) {
        _ if values.is_empty() => "-".to_owned(),
        count if count == values.len() => first(count),
        count => format!("{} and {} more", first(count), values.len() - count),
    }
}

/// Columns of the terminal that standard output is; none when it is not one, or does not say.
fn terminal_width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = (&'static str, &'static [&'static str], u32);

    const COLUMNS: [Column<Row>; 3] = [
        Column::new("NAME", 1, |row| row.0.to_owned()),
        Column::values("PERMISSIONS", 3, |row| row.1.iter().map(|value| (*value).to_owned()).collect()),
        Column::starred("LIMIT", 2, "* own", |row| format!("{}{}", row.2, if row.2 > 5 { "*" } else { "" })),
    ];
    const PERMISSIONS: &[&str] = &["queries:read", "queries:write", "queries:delete", "reports:read"];
    const ROWS: &[Row] = &[("zoë", &[], 5), ("a\u{1b}b", PERMISSIONS, 10)];

    /// The lines and the notes of a table, on a terminal of this width.
    fn table(rows: &[Row], terminal: Option<usize>) -> (Vec<String>, Vec<String>) {
        let mut table = Table::within(&COLUMNS, terminal);
        (table.lines(rows), table.notes("none"))
    }

    #[test]
    fn every_column_is_whole_where_no_terminal_bounds_it() {
        let (lines, notes) = table(ROWS, None);
        assert_eq!(
            lines,
            [
                "NAME      PERMISSIONS                                             LIMIT",
                "zoë       -                                                       5",
                "a\\u{1b}b  queries:read queries:write queries:delete reports:read  10*",
            ]
        );
        assert_eq!(notes, ["* own"]);
    }

    #[test]
    fn columns_beyond_the_terminal_are_left_out_by_rank() {
        let whole = "NAME      PERMISSIONS                            LIMIT";
        let cut = "a\\u{1b}b  queries:read queries:write and 2 more  10*";
        let (some, some_cut, one) = ("NAME      LIMIT", "a\\u{1b}b  10*", "a\\u{1b}b");
        let more = ["1 more column: --wide", "2 more columns: --wide"];
        for (terminal, header, last, notes) in [
            (120, whole, cut, &["* own"][..]),
            (80, whole, cut, &["* own"]),
            (54, whole, cut, &["* own"]),
            (53, some, some_cut, &["* own", more[0]]),
            (15, some, some_cut, &["* own", more[0]]),
            (14, "NAME", one, &[more[1]]),
            (1, "NAME", one, &[more[1]]),
        ] {
            let (lines, noted) = table(ROWS, Some(terminal));
            assert_eq!((lines[0].as_str(), lines[2].as_str()), (header, last), "{terminal}");
            assert_eq!(noted, notes, "{terminal}");
        }
    }

    #[test]
    fn header_comes_again_when_fewer_columns_fit() {
        let mut table = Table::within(&COLUMNS, Some(26));
        assert_eq!(table.lines(&[("a", &[], 1)]), ["NAME  PERMISSIONS  LIMIT", "a     -            1"]);
        assert_eq!(table.lines(&[("bcdef", &[], 2)]), ["bcdef  -            2"]);
        assert_eq!(table.lines(&[]), [""; 0]);
        assert_eq!(table.lines(&[("abcdefgh", &[], 6)]), ["NAME      LIMIT", "abcdefgh  6*"]);
        assert_eq!(table.notes("none"), ["* own", "1 more column: --wide"]);
    }

    #[test]
    fn note_stands_for_a_table_without_rows() {
        assert_eq!(table(&[], Some(80)), (vec![], vec!["none".to_owned()]));
    }

    #[test]
    fn column_can_be_taken_out() {
        let mut table = Table::within(&COLUMNS, None).without("PERMISSIONS");
        assert_eq!(table.lines(ROWS)[1..], ["zoë       5", "a\\u{1b}b  10*"]);
        assert_eq!(table.notes("none"), ["* own"]);
    }

    #[test]
    fn values_beyond_the_width_are_counted() {
        let values: Vec<String> = PERMISSIONS.iter().map(|value| (*value).to_owned()).collect();
        for (width, text) in [
            (usize::MAX, "queries:read queries:write queries:delete reports:read"),
            (54, "queries:read queries:write queries:delete reports:read"),
            (53, "queries:read queries:write queries:delete and 1 more"),
            (26, "queries:read queries:write and 2 more"),
            (5, "queries:read and 3 more"),
        ] {
            assert_eq!(values_text(&values, width), text, "{width}");
        }
        assert_eq!([values_text(&values[..1], 5), values_text(&[], 5)], ["queries:read", "-"]);
    }
}
