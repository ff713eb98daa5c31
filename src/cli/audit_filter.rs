//! Filter options of `keygate audit list`, `tail` and `export`.

use std::ffi::OsStr;

use anyhow::{Context as _, anyhow};
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use uuid::Uuid;

use super::call::Call;
use super::installation::Installation;
use super::key_target::KeyIdParser;
use super::{CliError, ExitStatus, control};
use ::control::management::{Org, User};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use domain::management_token::{self, TokenId};
use domain::names;
use journal::audit::{Filter, Outcome};
use platform::settings::parse_duration;

/// Filter options.
#[derive(Debug, clap::Args)]
pub(super) struct FilterArgs {
    /// Only requests with this key: the nine characters after sk_live_
    #[arg(long, value_name = "KEY_ID", value_parser = KeyIdParser)]
    key: Option<KeyId>,
    /// Only requests and changes by this user: an id, or, with --org, an email address
    #[arg(long)]
    user: Option<String>,
    /// Only changes of this user, their keys and their sessions: as of --user
    #[arg(long, value_name = "USER")]
    subject: Option<String>,
    /// Only changes by programs with this management token: the ten characters after kgm_
    #[arg(long, value_name = "TOKEN_ID", value_parser = TokenIdParser)]
    token: Option<TokenId>,
    /// Only requests in this organization: an id or a name
    #[arg(long)]
    org: Option<String>,
    /// Only from this time on: RFC 3339, or a duration before now, such as 1h
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Micros>,
    /// Only before this time: RFC 3339, or a duration before now, such as 1h
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Micros>,
    /// Only the record of this request: the value of X-Request-Id, or request_id of a refusal
    #[arg(long, value_name = "REQUEST_ID")]
    id: Option<Uuid>,
    /// Only requests with this outcome, such as rate_limited or expired
    #[arg(long, value_name = "OUTCOME", value_parser = outcome)]
    outcome: Option<Outcome>,
}

impl FilterArgs {
    /// The filter, with names and email addresses resolved to ids.
    pub(super) fn resolve(self, installation: &Installation) -> Result<Filter, CliError> {
        let Self { key, token, since, until, id, outcome, .. } = self;
        if since.is_some() && until.is_some() && since >= until {
            return Err(CliError::new(
                ExitStatus::Usage,
                anyhow!("--since is not before --until; no record can match"),
            ));
        }
        let mut filter = Filter { key, token, since, until, id, outcome, ..Filter::default() };
        if let Some(org) = &self.org {
            filter.org = Some(match org.parse() {
                Ok(id) => id,
                Err(_) => org_id(installation, org)?,
            });
        }
        filter.user = self.user_of(installation, self.user.as_deref())?;
        filter.subject = self.user_of(installation, self.subject.as_deref())?;
        Ok(filter)
    }

    fn user_of(&self, installation: &Installation, user: Option<&str>) -> Result<Option<UserId>, CliError> {
        let Some(user) = user else { return Ok(None) };
        user.parse().map_or_else(|_| user_id(installation, self.org.as_deref(), user), Ok).map(Some)
    }
}

/// The id of an organization given by name.
fn org_id(installation: &Installation, org: &str) -> Result<OrgId, CliError> {
    Ok(control::perform::<Org>(installation, &Call::get(&["orgs", org]))?.id)
}

/// The id of a user given by email address, also of a removed user; the newest of several that had the address.
fn user_id(installation: &Installation, org: Option<&str>, user: &str) -> Result<UserId, CliError> {
    let org = org.context("a user is an id usr_…; for an email address, give --org as well")?;
    let handle = names::normalize_handle(user);
    let call = Call::get(&["orgs", org, "users"]);
    let users: Vec<User> = control::with_server(installation, async |server| server.read_all(call).await)?;
    let found = users.iter().rfind(|known| known.email == handle).map(|user| user.id);
    Ok(found.with_context(|| format!("there is no user `{user}` in this organization"))?)
}

/// Parses an outcome by its word in records.
fn outcome(text: &str) -> Result<Outcome, String> {
    let words = || Outcome::all().map(Outcome::name).collect::<Vec<_>>().join(", ");
    Outcome::from_name(text).ok_or_else(|| format!("give one of {}", words()))
}

/// Parses a time, or a duration before now.
pub(super) fn time(text: &str) -> Result<Micros, String> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(clock::now().before(ago));
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| {
        "give an RFC 3339 time such as 2026-01-31T12:00:00Z, or a duration before now such as 1h".to_owned()
    })?;
    u64::try_from(time.as_microsecond()).map(Micros).map_err(|_| "is before 1970".to_owned())
}

/// Parses the id of a management token, or the id in a whole token that was given by mistake: unlike clap's own
/// parsers, its error does not repeat the argument, and so never shows a secret.
#[derive(Clone, Copy, Debug)]
struct TokenIdParser;

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
    fn time_is_a_timestamp_or_a_duration_before_now() {
        assert_eq!(time("1970-01-01T00:00:01Z"), Ok(Micros(1_000_000)));
        assert_eq!(time("1970-01-01T01:00:00.5+01:00"), Ok(Micros(500_000)));
        let ago = time("1h").unwrap();
        assert!(clock::now().since(ago).abs_diff(3_600_000_000) < 60_000_000);
        assert!(time("yesterday").is_err());
        assert!(time("1960-01-01T00:00:00Z").is_err());
    }

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
