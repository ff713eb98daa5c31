//! Presentation of a new key: the key alone on standard output, and everything for people on standard error. A key
//! whose secret was made elsewhere is shown as `key show` does.

use std::io::{self, IsTerminal as _};

use super::output::{fields, line, note, seconds};
use super::show::key_fields;
use ::control::management::{ApiKey, GoodPractice, Key, NewKey};

/// Prints a new key. Good practice, and a line for a shell, follow on a terminal only: a log that keeps standard error
/// must not get the key.
pub(super) fn show(new: &NewKey) -> io::Result<()> {
    let NewKey { api_key, key, warning } = new;
    if let Some(warning) = warning {
        note(format_args!("warning: {warning}"));
    }
    let Some(api_key) = api_key else {
        note_replaced(key);
        return fields(&key_fields(key));
    };
    note(format_args!("key {} `{}` of {}; the key is shown only once:", key.id, key.name, key.email));
    note_replaced(key);
    line(api_key.expose())?;
    if io::stdout().is_terminal() && io::stderr().is_terminal() {
        advice(api_key).iter().for_each(note);
    }
    Ok(())
}

/// Notes the time until which the secret before a rotation is valid.
fn note_replaced(key: &Key) {
    match &key.previous_until {
        Some(until) if key.rotated.as_ref() != Some(until) => {
            note(format_args!("the old secret is valid until {}", seconds(until)));
        }
        Some(_) => note("the old secret is refused from now on"),
        None => {}
    }
}

/// The lines that follow the key on a terminal.
fn advice(api_key: &ApiKey) -> Vec<String> {
    let practice = GoodPractice::LINES.iter().map(|line| format!("- {line}"));
    let exports = ["To set it in this shell:".to_owned(), format!("  {}", GoodPractice::export_key(api_key.expose()))];
    practice.chain(exports).collect()
}
