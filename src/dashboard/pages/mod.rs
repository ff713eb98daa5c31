//! The pages of the dashboard: what each one shows, and how it looks.
//!
//! A page is a plain struct of things ready to be shown, and a template of the same name. Nothing here asks anybody for
//! anything, and nothing here decides.
//!
//! - Every value is escaped for HTML where it is written: no template marks anything as safe.
//! - No page holds an inline script or style, or names another origin: a policy of `default-src 'none'` with `'self'`
//!   for styles, scripts, images and forms is enough.
//! - Every page works without scripts. The script among the assets adds copy buttons, and dates in the
//!   reader's language and time zone.
//! - Links and forms lead below [`Layout::base`].

// What is on every page.
mod layout;
// The pages.
mod keys;
mod create;
mod new_key;
mod key;
mod revoke;
mod rotate;
mod sessions;
mod sign_in;
mod error;
// What they are made of.
mod key_state;
mod activity;
mod limits;
mod outcome;
mod paging;
mod timestamp;
mod numbers;
#[cfg(test)]
mod tests;

pub use self::activity::{ActivityChart, HourCounts};
pub use self::create::{CreatePage, OwnerChoice, OwnerInput};
pub use self::error::{ErrorPage, NextStep};
pub use self::key::{AdmissionFilter, KeyPage, RefusedUse, UseFilter, UseRow, Verdict};
pub use self::key_state::KeyState;
pub use self::keys::{KeyFilter, KeyRow, KeysPage, LastUseCell, UseSource};
pub use self::layout::{Layout, NavEntry, OrgChoice, Viewer};
pub use self::limits::{Gauge, KeyLimits, LimitUsage};
pub use self::new_key::{Issuance, NewKeyPage};
pub use self::numbers::{count, counted, duration};
pub use self::outcome::OutcomeText;
pub use self::paging::{Paging, link};
pub use self::revoke::RevokePage;
pub use self::rotate::{Overlap, RotatePage};
pub use self::sessions::{SessionRow, SessionsPage};
pub use self::sign_in::{LeavingPage, LinkPage, ProviderChoice, SignInPage, SignedOutPage};
pub use self::timestamp::Timestamp;
