//! `keygate convert`: makes a file for `keygate apply` of the consumers and keys of another gateway.
//!
//! - A pure function of the file, the options and, for keys that expire, the time: it opens no state and no socket.
//! - Keys are hashed where they are read. No output has one: findings name places, and a name that is a key is an
//!   error.
//! - An error anywhere means no output at all. What has no counterpart is listed, and the exit code says so.
//! - Memory: the text of the file, one of its records, and some 400 bytes for each consumer.

mod source;
mod kong;
mod apisix;
mod unkey;
mod users;
mod limit;
mod key_text;
mod placeholder;
mod key_policy;
mod consumer;
mod field;
mod report;
mod document;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use zeroize::Zeroizing;

use self::report::Report;
use self::source::{Options, Source};
use self::users::{Mapping, users};
use super::progress::ProgressLine;
use super::{CliError, ExitStatus, output};
use domain::counted::Counted;
use domain::{clock, names};

/// Bytes of a file at most: more than a million consumers.
const MAX_FILE: u64 = 512 << 20;

/// Arguments of `keygate convert`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Source of the file
    #[arg(value_enum)]
    source: Source,
    /// File of that gateway, as YAML or JSON; `-` for standard input
    file: PathBuf,
    /// Name of the organization that the users and keys will be of
    #[arg(long, value_name = "NAME")]
    org: String,
    /// Make the addresses of users from this field; default: USERNAME@consumer.invalid
    #[arg(long, value_enum, value_name = "FIELD")]
    email_from: Option<EmailFrom>,
    /// Make the permissions of users from this field; default: they are not set
    #[arg(long, value_enum, value_name = "FIELD")]
    permissions_from: Option<PermissionsFrom>,
    /// Convert keys that have a number of requests left, as keys without one; default: they are left out
    #[arg(long)]
    keep_counted: bool,
    /// Take keys of APISIX that look encrypted as they are
    #[arg(long)]
    plain_keys: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum EmailFrom {
    /// `custom_id` (Unkey: `externalId`), where it is an address; else the id with @consumer.invalid
    #[value(name = "custom_id")]
    CustomId,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PermissionsFrom {
    /// Groups and roles, by their names
    Groups,
}

impl Args {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let usage = |error: anyhow::Error| CliError::new(ExitStatus::Usage, error);
        let org = names::validate_org_name(&self.org).map_err(|error| usage(anyhow!("--org: {error}")))?;
        let name = if self.file == Path::new("-") { "standard input".into() } else { self.file.display().to_string() };
        let text = read(&self.file).with_context(|| format!("{name}: cannot be read")).map_err(usage)?;
        let mut report = Report::default();
        let users = self.convert(&text, &mut report);
        drop(text);
        for line in report.lines(&name) {
            output::note(line);
        }
        if report.errors() > 0 {
            return Err(usage(anyhow!("{name}: {report}, so nothing was converted")));
        }
        document::write(&mut io::stdout().lock(), &org, &users)?;
        let keys = users.iter().map(|user| user.keys.len()).sum::<usize>();
        output::note(format_args!("converted {} with {}", Counted(users.len(), "user"), Counted(keys, "key")));
        if report.left() == 0 {
            return Ok(());
        }
        let left = anyhow!("{name}: {report} left out, which the lines above name; all else was converted");
        Err(CliError::new(ExitStatus::Incomplete, left))
    }

    fn convert(&self, text: &str, report: &mut Report) -> Vec<users::User> {
        let permissions_from_groups = self.permissions_from.is_some();
        let options = Options {
            keep_counted: self.keep_counted,
            plain_keys: self.plain_keys,
            permissions_from_groups,
            now: clock::now(),
        };
        let mut progress = ProgressLine::new();
        let consumers = self.source.read(text, options, report, |items, offset| {
            let percent = (offset * 100 / text.len().max(1)).min(100);
            progress.show(|| format!("read {} ({percent} %)", Counted(items, "record")));
        });
        let mapping = Mapping { email_from_custom_id: self.email_from.is_some(), permissions_from_groups };
        users(consumers, mapping, report)
    }
}

/// Reads a file, whose text has keys.
fn read(file: &Path) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let length = if file == Path::new("-") {
        io::stdin().lock().take(MAX_FILE + 1).read_to_string(&mut text)?
    } else {
        File::open(file)?.take(MAX_FILE + 1).read_to_string(&mut text)?
    };
    if length as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it is larger than {} MiB; split it", MAX_FILE >> 20)));
    }
    Ok(text)
}
