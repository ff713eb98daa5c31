//! The document for `keygate apply`: YAML with one line for each user and each key, so that a difference between two
//! conversions is one of lines.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::users::{User, UserKey};
use crate::cli::output::{json_text, seconds};
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
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<&'a [Permission]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disabled: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: &'a BTreeMap<String, String>,
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
    for (user, key) in keys {
        writeln!(out, "      - {}", json_text(&KeyLine::new(user, key))?)?;
    }
    out.flush()
}

impl<'a> KeyLine<'a> {
    fn new(user: &'a str, UserKey { name, digest, limits, policy }: &'a UserKey) -> Self {
        Self {
            name,
            user,
            sha256: digest.to_hex(),
            limits: limits.map(LimitLine::from),
            permissions: policy.permissions.as_deref(),
            expires: policy.expires.map(seconds),
            disabled: policy.disabled.is_some(),
            tags: &policy.tags,
        }
    }
}

impl From<Quota> for LimitLine {
    fn from(Quota { requests, per, burst, .. }: Quota) -> Self {
        Self { requests, per: WithUnit::Duration(per).to_string(), burst }
    }
}
