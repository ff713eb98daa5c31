//! `keygate key generate`: makes keys offline, of which a gateway gets the id and the SHA-256 alone.

use std::collections::HashSet;
use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use serde_json::json;

use super::CliError;
use super::key_target::KeyIdParser;
use super::output::{self, JsonList};
use super::secret_output;
use super::show::Format;
use domain::key::{KeyId, OrgTag, PlainKey};

/// Keys of one command at most.
const MAX_KEYS: i64 = 10_000;

/// Arguments of `keygate key generate`.
#[derive(Debug, clap::Args)]
pub(super) struct GenerateArgs {
    /// Tag of the organization, as `keygate org show` prints it: three letters and digits
    #[arg(long, required_unless_present = "id")]
    tag: Option<OrgTag>,
    /// Id of a key that exists, for a new secret of it: `key rotate --sha256` takes its digest
    #[arg(long, value_name = "KEY_ID", value_parser = KeyIdParser, conflicts_with_all = ["tag", "count"])]
    id: Option<KeyId>,
    /// Number of keys; with --json they are items of a list then [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_KEYS))]
    count: Option<u32>,
}

/// A secret that was made offline.
#[derive(Debug, clap::Args)]
pub(super) struct GivenSecret {
    /// Id of a key that `key generate` has made
    #[arg(long, value_name = "KEY_ID", value_parser = KeyIdParser, requires = "sha256")]
    pub(super) id: Option<KeyId>,
    /// SHA-256 of the whole key, as `key generate` has printed it
    #[arg(long, value_name = "HEX", requires = "id")]
    pub(super) sha256: Option<String>,
}

impl GenerateArgs {
    /// Makes the keys, and prints each with its id and its digest: as JSON; on a terminal with their names; elsewhere
    /// as words of one line, for `read -r id key sha256`.
    pub(super) fn run(&self, format: Format) -> Result<(), CliError> {
        secret_output::check()?;
        let mut keys = Vec::new();
        let mut ids = HashSet::new();
        while keys.len() < self.count.unwrap_or(1) as usize {
            let key = self.generate().context("the operating system gave no randomness")?;
            // Ids are shorter than secrets: two of ten thousand may be the same.
            if ids.insert(key.id()) {
                keys.push(key);
            }
        }
        let way_out = "no gateway has these keys yet; make others".to_owned();
        Ok(secret_output::write(Some(way_out), || self.print(&keys, format))?)
    }

    fn print(&self, keys: &[PlainKey], format: Format) -> io::Result<()> {
        let mut list = JsonList::default();
        for key in keys {
            let id = key.id().to_string();
            let text = key.expose().expose();
            let sha256 = key.digest().to_hex();
            let object = || json!({ "id": id, "key": text, "sha256": sha256 });
            match self.count {
                Some(_) if format.json => list.items(&[object()])?,
                None if format.json => output::json(&object())?,
                _ if io::stdout().is_terminal() => {
                    output::fields(&[("id", id), ("key", text.to_owned()), ("sha256", sha256)])?;
                }
                _ => output::line(format_args!("{id} {text} {sha256}"))?,
            }
        }
        if format.json && self.count.is_some() { list.end() } else { Ok(()) }
    }

    /// Makes one key under an id of the organization, or under the given id.
    fn generate(&self) -> anyhow::Result<PlainKey> {
        match (self.id, self.tag) {
            (Some(id), _) => Ok(PlainKey::generate(id)?),
            (None, Some(tag)) => Ok(PlainKey::generate(KeyId::generate(tag)?)?),
            (None, None) => unreachable!("one of the two is required"),
        }
    }
}
