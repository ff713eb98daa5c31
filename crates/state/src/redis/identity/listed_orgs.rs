//! List of organizations by which lost data of a shard is noticed. Pure.
//!
//! It is read in parts. Before it was read to its end, nothing is concluded from what it lacks: a reading may fail, or
//! take longer than a decision has time. Then the next request reads on.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use domain::key::OrgTag;

/// Age from which the list is read again for an organization without data: a client may send any tag.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Place of an organization without data in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// It is listed, so its data was lost.
    Listed,
    /// Others are listed.
    NotListed,
    /// None is listed: there is none yet, or the list was lost.
    Empty,
}

/// Tags of listed organizations.
#[derive(Debug, Default)]
pub struct ListedOrgs {
    tags: HashSet<OrgTag>,
    /// Time at which the list was last read to its end.
    read: Option<Instant>,
    /// Cursor of the server up to which all tags of the list are here, and the number of failovers before it was given.
    cursor: (u64, u64),
    /// The reading that was begun last has found none.
    is_empty: bool,
}

impl ListedOrgs {
    /// Returns the place of an organization; or the cursor from which the list is to be read on before that is known.
    /// A cursor of a server before a failover is not used.
    pub fn find(&mut self, tag: OrgTag, failovers: u64, now: Instant) -> ControlFlow<Listing, u64> {
        if self.tags.contains(&tag) {
            return ControlFlow::Break(Listing::Listed);
        }
        if self.read.is_some_and(|read| now.duration_since(read) < MAX_AGE) {
            return ControlFlow::Break(if self.is_empty { Listing::Empty } else { Listing::NotListed });
        }
        if self.cursor.1 != failovers {
            self.cursor = (0, failovers);
        }
        self.is_empty |= self.cursor.0 == 0;
        ControlFlow::Continue(self.cursor.0)
    }

    /// Adds a part of the list, and the next cursor of the server after so many failovers; 0 at the end.
    pub fn add(&mut self, tags: impl IntoIterator<Item = OrgTag>, (next, failovers): (u64, u64), now: Instant) {
        for tag in tags {
            self.tags.insert(tag);
            self.is_empty = false;
        }
        if self.cursor.1 != failovers {
            return;
        }
        self.cursor.0 = next;
        self.read = (next == 0).then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_concluded_from_only_after_its_end() {
        let [tag, other] = ["abc", "abd"].map(|tag| tag.parse::<OrgTag>().unwrap());
        let now = Instant::now();
        let mut listed = ListedOrgs::default();
        // A reading that failed, and one that is under way for another request.
        assert_eq!(listed.find(tag, 0, now), ControlFlow::Continue(0));
        assert_eq!(listed.find(tag, 0, now), ControlFlow::Continue(0));
        listed.add([other], (7, 0), now);
        assert_eq!(listed.find(tag, 0, now), ControlFlow::Continue(7));
        assert_eq!(listed.find(tag, 1, now), ControlFlow::Continue(0), "the cursor is of another server");
        listed.add([other], (0, 0), now);
        assert_eq!(listed.find(tag, 1, now), ControlFlow::Continue(0), "so is the end");
        listed.add([other], (0, 1), now);
        assert_eq!(listed.find(tag, 1, now), ControlFlow::Break(Listing::NotListed));
        assert_eq!(listed.find(tag, 1, now + MAX_AGE), ControlFlow::Continue(0));
        // It was lost meanwhile, and another organization with it.
        listed.add([], (0, 1), now + MAX_AGE);
        assert_eq!(listed.find(tag, 1, now + MAX_AGE), ControlFlow::Break(Listing::Empty));
        assert_eq!(listed.find(other, 1, now + MAX_AGE), ControlFlow::Break(Listing::Listed));
    }
}
