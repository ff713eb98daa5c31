//! Arguments that name a key by its id, by the whole key, or by its SHA-256, on the command line or standard input.

use std::ffi::OsStr;
use std::io::{self, Read as _};

use anyhow::anyhow;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use uuid::Uuid;
use uuid::fmt::Hyphenated;
use zeroize::Zeroizing;

use super::calls::list_keys;
use super::control::Server;
use super::{CliError, ExitStatus, output};
use ::control::management::{Key, KeyQuery};
use domain::key::{self, KeyDigest, KeyId};
use domain::management_token;
use domain::secret::Secret;

/// Bytes of a key to read, at most: far longer than any header that carries one.
const MAX_KEY: usize = 16 << 10;

/// Error of a command about keys that is given a management token.
const IS_TOKEN: &str = "this is a management token, not an API key: it has no key id, and cannot be imported as a key";

const NOT_FOUND: &str = "no key has or had this secret or SHA-256; if the key was cut off, give its id: the nine \
                         characters that follow sk_live_";

const IS_NAME: &str = "this is the name of keys, and no id; give the id";

/// The key that a command is about.
#[derive(Debug, clap::Args)]
pub(super) struct TargetArgs {
    /// Key id, whole key of any format, or SHA-256 of a whole key; better --stdin for a whole key
    #[arg(value_name = "ID|KEY|SHA256", value_parser = KeyTargetParser, required_unless_present = "stdin")]
    target: Option<KeyTarget>,
    /// Read it from standard input, so that neither the history of the shell nor `ps` shows a secret
    #[arg(long, conflicts_with = "target")]
    stdin: bool,
}

/// A key by what is known of it. A whole key of keygate's own format is not kept.
#[derive(Clone, Debug)]
pub(super) enum KeyTarget {
    Id(KeyId),
    /// The SHA-256 of a whole key, and the id in it when it is of keygate's own format.
    Digest(KeyDigest, Option<KeyId>),
    /// The SHA-256 of a text that may be a whole key of another format, and the text, which may be the name of a key.
    Text(KeyDigest, Secret),
}

/// Parses a key id, a whole key, or its SHA-256. Unlike those of clap, its errors do not repeat the argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyTargetParser;

impl TypedValueParser for KeyTargetParser {
    type Value = KeyTarget;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<KeyTarget, clap::Error> {
        let invalid = |message| clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n")).with_cmd(command);
        if is_token(value.as_encoded_bytes()) {
            return Err(invalid(IS_TOKEN));
        }
        let message = "this is no key: give a key id, a whole key, or its SHA-256";
        KeyTarget::parse(value.as_encoded_bytes()).ok_or_else(|| invalid(message))
    }
}

impl TargetArgs {
    /// The key that was named.
    pub(super) fn read(&self) -> Result<KeyTarget, CliError> {
        match &self.target {
            Some(target) => Ok(target.clone()),
            None => KeyTarget::parse(&read_key()?).ok_or_else(|| unreachable!("an empty input was refused")),
        }
    }
}

impl KeyTarget {
    /// Parses a text; none when it is empty.
    fn parse(text: &[u8]) -> Option<Self> {
        let trimmed = text.trim_ascii();
        if trimmed.is_empty() {
            return None;
        }
        let text = str::from_utf8(trimmed).ok();
        if let Some(digest) = text.and_then(|text| KeyDigest::from_hex(text).ok()) {
            return Some(Self::Digest(digest, None));
        }
        // A key that was cut off behind its id names that one alone.
        if let Some(id) = text.filter(|text| domain::key::parse(text.as_bytes()).is_none()).and_then(find_key_id) {
            return Some(Self::Id(id));
        }
        let digest = KeyDigest::of(trimmed);
        Some(match (domain::key::parse(trimmed), text) {
            (None, Some(text)) => Self::Text(digest, Secret::new(text.to_owned())),
            (id, _) => Self::Digest(digest, id),
        })
    }

    /// The id of a request that the text is instead of a key: a UUID of version 7. Others may be keys of other systems,
    /// and are not to be searched for in records.
    pub(super) fn request_id(&self) -> Option<Uuid> {
        let Self::Text(_, text) = self else { return None };
        let id = Uuid::try_parse(text.expose()).ok().filter(|_| text.expose().len() == Hyphenated::LENGTH);
        id.filter(|id| id.get_version_num() == 7)
    }

    /// Returns whether a whole key of this text, or of another one with the same SHA-256, exists or existed.
    pub(super) async fn is_whole_key(&self, server: &mut Server<'_>) -> Result<bool, CliError> {
        let (Self::Digest(digest, _) | Self::Text(digest, _)) = self else { return Ok(false) };
        Ok(!server.find_keys(&[digest.to_hex()]).await?.is_empty())
    }

    /// The id of the key; a key of another format is found by its digest.
    pub(super) async fn resolve(self, server: &mut Server<'_>) -> Result<KeyId, CliError> {
        let (digest, id_in_key, text) = match self {
            Self::Id(id) => return Ok(id),
            Self::Digest(digest, id) => (digest.to_hex(), id, None),
            Self::Text(digest, text) => (digest.to_hex(), None, Some(text)),
        };
        let found = server.find_keys(&[digest]).await?;
        if let Some(id) = found.into_values().next() {
            return Ok(id);
        }
        let Some(id) = id_in_key else {
            let named = match text {
                Some(name) => keys_named(server, &name).await?,
                None => Vec::new(),
            };
            let error = if named.is_empty() { anyhow!(NOT_FOUND) } else { anyhow!("{IS_NAME}: {}", named.join(", ")) };
            return Err(CliError::new(ExitStatus::Failed, error));
        };
        output::note(format_args!("this secret is not one of key {id}, which its text names"));
        Ok(id)
    }
}

/// The ids of the keys with this name, in all organizations, with their owners. None at a gateway elsewhere: the text
/// may be a key after all, and its log would have it in the address of a request.
async fn keys_named(server: &mut Server<'_>, name: &Secret) -> Result<Vec<String>, CliError> {
    if matches!(server, Server::Remote(_)) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for org in server.read_orgs().await? {
        // Those whose name has this part.
        let query = KeyQuery { name: name.expose().to_owned(), ..KeyQuery::default() };
        let call = list_keys(&org.id.to_string(), &query);
        let keys: Vec<Key> = server.read_all(call).await?;
        let named = keys.iter().filter(|key| key.name == name.expose());
        found.extend(named.map(|key| format!("{} of {} in {}", key.id, key.email, org.name)));
    }
    Ok(found)
}

/// Reads a key from standard input, without white space around it: a line that was piped has an end.
pub(super) fn read_key() -> Result<Zeroizing<Vec<u8>>, CliError> {
    let mut key = Zeroizing::new(Vec::with_capacity(MAX_KEY));
    io::stdin().lock().take(MAX_KEY as u64).read_to_end(&mut key)?;
    let trimmed = key.trim_ascii();
    if trimmed.is_empty() || key.len() == MAX_KEY {
        let message = anyhow!("pipe the key into the command, as in `printf %s \"$KEY\" | keygate key digest`");
        return Err(CliError::new(ExitStatus::Usage, message));
    }
    if is_token(trimmed) {
        return Err(CliError::new(ExitStatus::Usage, anyhow!(IS_TOKEN)));
    }
    Ok(Zeroizing::new(trimmed.to_vec()))
}

/// Returns whether a text is a whole management token.
fn is_token(text: &[u8]) -> bool {
    management_token::parse(text.trim_ascii()).is_some()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_an_id_a_key_or_a_digest() {
        let id: KeyId = "abcDEF123".parse().unwrap();
        let is_id = |text: &str| matches!(KeyTarget::parse(text.as_bytes()), Some(KeyTarget::Id(found)) if found == id);
        assert!(is_id("abcDEF123") && is_id(" sk_live_abcDEF123\n"));
        let plain = domain::key::PlainKey::generate(id).unwrap();
        let whole = plain.expose().expose();
        let hex = plain.digest().to_hex();
        for (text, id_in_key) in [(whole, Some(id)), (&hex, None), (&hex.to_uppercase(), None)] {
            let Some(KeyTarget::Digest(digest, found)) = KeyTarget::parse(text.as_bytes()) else { panic!("no digest") };
            assert_eq!((digest.to_hex(), found), (hex.clone(), id_in_key));
        }
        let Some(KeyTarget::Digest(digest, None)) = KeyTarget::parse(b"old-1\xff\n") else { panic!("no digest") };
        assert_eq!(digest, KeyDigest::of(b"old-1\xff"));
        let Some(text) = KeyTarget::parse(b"old-2\n") else { panic!("no text") };
        assert!(!format!("{text:?}").contains("old-2"), "it may be a whole key");
        assert!(matches!(text, KeyTarget::Text(digest, _) if digest == KeyDigest::of(b"old-2")));
        assert!(KeyTarget::parse(b" \n").is_none());
        let request = |text: &str| KeyTarget::parse(text.as_bytes()).unwrap().request_id();
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(request(id), Some(id.parse().unwrap()));
        // Keys of other systems look like these.
        for key in ["01890a5dac96774bbcceb302099a8057", "9f1c2f0e-6a1c-4b63-a5b5-0c5f8f0f3c11", "abcDEF123"] {
            assert_eq!(request(key), None, "{key}");
        }
    }
}
