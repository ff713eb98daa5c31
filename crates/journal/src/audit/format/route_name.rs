//! Names of routes, each of which is in memory once.

use std::sync::LazyLock;

use parking_lot::RwLock;
use rustc_hash::FxHashSet;

/// The name of a listed route, as it is in the configuration. Names are never removed: there are as many as the
/// configurations of this process have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RouteName(&'static str);

static NAMES: LazyLock<RwLock<FxHashSet<&'static str>>> = LazyLock::new(RwLock::default);

impl RouteName {
    /// The route of a request with this action; `None` of `METHOD /path`, the action of a request of no listed route: a
    /// client could make up as many as it likes.
    pub(crate) fn of_action(action: &str) -> Option<Self> {
        if action.contains(' ') {
            return None;
        }
        if let Some(name) = NAMES.read().get(action) {
            return Some(Self(name));
        }
        let mut names = NAMES.write();
        let known = names.get(action).copied();
        Some(Self(known.unwrap_or_else(|| {
            let name: &'static str = Box::leak(action.into());
            names.insert(name);
            name
        })))
    }

    /// The name.
    pub(crate) fn as_str(self) -> &'static str {
        self.0
    }
}
