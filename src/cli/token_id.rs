//! Parser of management token id arguments. It accepts a whole token given by mistake, uses its id, and never shows its
//! secret.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;

use domain::management_token::{self, TokenId};

/// Parses the id of a token, or the id in a whole token. Unlike clap's own parsers, its error does not repeat the
/// argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenIdParser;

impl TypedValueParser for TokenIdParser {
    type Value = TokenId;

    fn parse_ref(&self, command: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> Result<TokenId, clap::Error> {
        value.to_str().and_then(find_token_id).ok_or_else(|| {
            let message = "this is not a token id: give the ten characters that follow kgm_\n";
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

/// The id in a text: in a whole token, in the beginning of one, or by itself.
fn find_token_id(text: &str) -> Option<TokenId> {
    let id = || text.strip_prefix(management_token::PREFIX).unwrap_or(text).parse().ok();
    management_token::parse(text.as_bytes()).or_else(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_found_in_a_whole_token_and_alone() {
        let token = management_token::PlainToken::generate().unwrap();
        let id = token.id();
        for text in [token.expose().expose(), id.as_str(), &format!("kgm_{id}")] {
            assert_eq!(find_token_id(text), Some(id), "{text}");
        }
        assert_eq!(find_token_id("abcDEF123"), None, "that is the id of a key");
    }
}
