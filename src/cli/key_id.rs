//! Parser of key id arguments. It accepts a whole key given by mistake, uses its id, and never shows its secret.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;

use domain::key::{self, KeyId};

/// Parses a key id, or the id in a whole key. Unlike clap's own parsers, its error does not repeat the argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyIdParser;

impl TypedValueParser for KeyIdParser {
    type Value = KeyId;

    fn parse_ref(&self, command: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> Result<KeyId, clap::Error> {
        value.to_str().and_then(find_key_id).ok_or_else(|| {
            let message = "this is not a key id: give the nine characters that follow sk_live_\n";
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

/// The key id in a text: in a whole key, in the beginning of one, or by itself.
pub(super) fn find_key_id(text: &str) -> Option<KeyId> {
    key::parse(text.as_bytes()).or_else(|| text.strip_prefix(key::PREFIX).unwrap_or(text).parse().ok())
}
