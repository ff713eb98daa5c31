//! The operand that names a key. People give the whole key by mistake: its id is taken, and its secret is never shown.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;

use crate::key::{self, KeyId};

/// Reads a key id, also out of a whole key. Unlike clap's own, its error does not repeat what was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyIdParser;

impl TypedValueParser for KeyIdParser {
    type Value = KeyId;

    fn parse_ref(&self, command: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> Result<KeyId, clap::Error> {
        value.to_str().and_then(named).ok_or_else(|| {
            let told = "this is no key id: give the nine characters of the key id that follow sk_live_\n";
            clap::Error::raw(ErrorKind::ValueValidation, told).with_cmd(command)
        })
    }
}

/// The key that a text names: by a whole key, by its beginning, or by the id.
fn named(text: &str) -> Option<KeyId> {
    key::parse(text.as_bytes()).or_else(|| text.strip_prefix(key::PREFIX).unwrap_or(text).parse().ok())
}
