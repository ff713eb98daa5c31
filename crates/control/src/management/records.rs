//! Audit records, requests and changes, for programs and the operator: what `keygate audit list` shows.
//!
//! - A program of one organization gets the records of that one; those of no organization, such as attempts with
//!   unknown keys, are for programs of all.
//! - An organization is not told which person runs the gateway.

use super::authorization::{Access, authorize};
use super::operands::find_org;
use super::uses::page_of_records;
use super::{Actor, Management, ManagementError, UsePage};
use domain::clock::Micros;
use domain::management_token::TokenScope;
use domain::page::{Page, PageQuery};
use journal::audit::{Filter, Record, RecordKind};

/// Lists records, newest first, a page at a time: those of one organization, or all that the actor may see. The
/// filter names no organization of its own.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::Cursor`], [`ManagementError::JournalUnreadable`],
/// [`ManagementError::TooManyReads`].
pub async fn list_records(
    management: &Management,
    actor: &Actor,
    org: Option<&str>,
    filter: Filter,
    page: &PageQuery,
    now: Micros,
) -> Result<UsePage, ManagementError> {
    let own = actor.org().map(|org| org.to_string());
    let org = match org.or(own.as_deref()) {
        Some(org) => {
            authorize(management, actor, Access::OrgAdmin(org, TokenScope::AuditRead), now).await?;
            Some(find_org(management, org).await?.id)
        }
        None => {
            authorize(management, actor, Access::AllOrgs(TokenScope::AuditRead), now).await?;
            None
        }
    };
    let filter = Filter { org, ..filter };
    // All of them, so that a cursor is of no use with other ones.
    let Filter { key, user, subject, token, org, since, until, id, action: _, outcome, kind, refused, covers: _ } =
        filter;
    let times = [since, until].map(|time| time.map(|time| time.0));
    let kinds = [RecordKind::Request, RecordKind::Change].map(|known| kind == Some(known));
    let query = ("records", org, key, (user, subject, token), times, id, outcome, kinds, refused);
    let found = page_of_records(management, actor, &query, filter, page).await?;
    let knows_operators = actor.knows_operators();
    let show = |record: Record| {
        let actor = record.actor.filter(|name| knows_operators || !name.starts_with("unix:"));
        Record { actor, ..record }
    };
    let page = Page { items: found.page.items.into_iter().map(show).collect(), next: found.page.next };
    Ok(UsePage { page, ..found })
}
