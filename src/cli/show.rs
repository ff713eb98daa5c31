//! Presentation of records, as names and values or as JSON.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::Call;
use super::installation::Installation;
use super::output::{self, json, or_dash, seconds, word};
use super::{CliError, control, secret_output};
use ::control::management::Responsible;
use domain::clock::Micros;

/// Meaning of [`asterisk`].
pub(super) const OWN_LIMIT: &str = "* own limit, not the configured one";

/// Output format.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Format {
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Print tables with all columns, also those that do not fit in the terminal
    #[arg(long, global = true)]
    pub(super) wide: bool,
}

/// Names and values of a record.
pub(super) type Fields = Vec<(&'static str, String)>;

/// Record that a command prints.
pub(super) trait Shown: Serialize + DeserializeOwned {
    /// Its names and values; none of a record that `show` prints in another way.
    fn fields(&self) -> Fields {
        Fields::new()
    }

    /// Prints it for people.
    fn show(&self) -> io::Result<()> {
        output::fields(&self.fields())
    }

    /// Advice for when its secret is lost, of a record that has one.
    fn way_out(&self) -> Option<String> {
        None
    }
}

/// Performs a call, and prints the record that it answers with.
pub(super) fn perform<T: Shown>(installation: &Installation, call: &Call, format: Format) -> Result<(), CliError> {
    Ok(record(&control::perform::<T>(installation, call)?, format)?)
}

/// Prints a record.
pub(super) fn record(record: &impl Shown, format: Format) -> io::Result<()> {
    secret_output::write(record.way_out(), || if format.json { json(record) } else { record.show() })
}

/// Prints a record: in JSON with one more member, else with these fields.
pub(super) fn record_with(
    record: &impl Shown,
    (name, value): (&str, impl Serialize),
    fields: &Fields,
    format: Format,
) -> io::Result<()> {
    if !format.json {
        return output::fields(fields);
    }
    let mut object = serde_json::to_value(record)?;
    object[name] = serde_json::to_value(value)?;
    json(&object)
}

/// Inserts a field behind the one of this name.
pub(super) fn insert_after(fields: &mut Fields, name: &str, field: (&'static str, String)) {
    let behind = fields.iter().position(|(other, _)| *other == name).map_or(fields.len(), |at| at + 1);
    fields.insert(behind, field);
}

/// `ada@example.com`, or `ada@example.com (suspended)`.
pub(super) fn responsible(person: &Responsible) -> String {
    let mark = if person.is_gone() { format!(" ({})", word(person.status)) } else { String::new() };
    person.label() + &mark
}

/// The origin of a limit, in words.
pub(super) fn origin(own: bool) -> &'static str {
    if own { "(its own)" } else { "(as configured)" }
}

/// The mark of an own limit in a table.
pub(super) fn asterisk(own: bool) -> &'static str {
    if own { "*" } else { "" }
}

pub(super) fn time(time: Option<Micros>) -> String {
    or_dash(time.map(seconds))
}
