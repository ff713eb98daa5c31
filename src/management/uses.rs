//! What the audit journal says of keys: read where files may be waited for.

use std::io;

use super::actor::By;
use super::{Management, ManagementError, Reply};
use crate::audit::{Cursor, Filter, Outcome, Reader};
use crate::key::KeyId;

/// Records on a page, unless another number is asked for.
const PAGE: usize = 50;
/// Records on a page at most.
const LARGEST_PAGE: usize = 200;

/// Which uses are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Uses {
    /// Those that ended like this.
    pub outcome: Option<Outcome>,
    /// Only those that were refused, or only the others.
    pub refused: Option<bool>,
    /// Those older than the page that this came with.
    pub before: Option<String>,
    /// How many: 1 to 200. Default: 50.
    pub limit: Option<usize>,
}

impl Management {
    /// The uses of a key that this gateway has recorded, newest first.
    pub(super) async fn list_uses(&self, key: KeyId, uses: Uses) -> Result<Reply, ManagementError> {
        let before = uses.before.map(|before| before.parse::<Cursor>()).transpose()?;
        let limit = uses.limit.unwrap_or(PAGE);
        if !(1..=LARGEST_PAGE).contains(&limit) {
            return Err(ManagementError::PageSize);
        }
        let filter = Filter {
            key: Some(key),
            outcome: uses.outcome,
            refused: uses.refused,
            requests_only: true,
            ..Filter::default()
        };
        let page = self.read(move |reader| reader.list(&filter, limit, before)).await?;
        let next = page.next.map(|cursor| cursor.to_string());
        Ok(Reply::Uses { uses: page.records, next, gateway: self.gateway.clone() })
    }

    /// What happened with the keys of an organization in the last day, as far as this gateway has recorded it.
    pub(super) async fn activity(&self, org: &str, by: By<'_>) -> Result<Reply, ManagementError> {
        let org = self.org(org).await?.id;
        let now = by.now;
        let mut activity = self.read(move |reader| reader.activity(org, now)).await?;
        if let Some(only) = by.actor.only() {
            let keys = self.state.keys(org).await?;
            activity.retain(|id, _| keys.iter().any(|key| key.id == *id && key.user == only));
        }
        let keys = activity.into_iter().map(|(id, activity)| (id, activity.into())).collect();
        Ok(Reply::Activity { keys, gateway: self.gateway.clone() })
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ManagementError> {
        let directory = self.journal_directory.clone();
        let reading = tokio::task::spawn_blocking(move || Reader::open(&directory).and_then(|reader| read(&reader)));
        match reading.await {
            Ok(read) => read.map_err(ManagementError::JournalUnread),
            Err(_) => Err(ManagementError::JournalUnread(io::Error::other("the reading broke off"))),
        }
    }
}
