//! The document for `keygate apply`: YAML with one line for each user and each key, so that a difference between two
//! conversions is one of lines.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::users::{User, UserKey};
use crate::cli::output::json_text;
use domain::identity::Permission;
use domain::quota::Quota;
use platform::settings::WithUnit;

#[derive(Serialize)]
struct UserLine<'a> {
    email: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<&'a [Permission]>,
}

#[derive(Serialize)]
struct KeyLine<'a> {
    name: &'a str,
    user: &'a str,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<LimitLine>,
}

#[derive(Serialize)]
struct LimitLine {
    requests: u32,
    per: String,
    burst: u32,
}

/// Writes the document. Its strings are those of JSON, which YAML has as well.
pub(super) fn write(out: &mut impl Write, org: &str, users: &[User]) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    writeln!(out, "organizations:\n  - name: {}", json_text(&org)?)?;
    if !users.is_empty() {
        writeln!(out, "    users:")?;
    }
    for User { email, permissions, .. } in users {
        writeln!(out, "      - {}", json_text(&UserLine { email, permissions: permissions.as_deref() })?)?;
    }
    let mut keys = users.iter().flat_map(|user| user.keys.iter().map(|key| (&*user.email, key))).peekable();
    if keys.peek().is_some() {
        writeln!(out, "    keys:")?;
    }
    for (user, UserKey { name, digest, limits }) in keys {
        let limits = limits.map(LimitLine::from);
        writeln!(out, "      - {}", json_text(&KeyLine { name, user, sha256: digest.to_hex(), limits })?)?;
    }
    out.flush()
}

impl From<Quota> for LimitLine {
    fn from(Quota { requests, per, burst, .. }: Quota) -> Self {
        Self { requests, per: WithUnit::Duration(per).to_string(), burst }
    }
}
