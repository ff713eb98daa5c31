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
//! - Links and forms lead below [`Frame::base`].

// What is on every page.
mod frame;
// The pages.
mod keys;
mod create;
mod new_key;
mod key;
mod revoke;
mod rotate;
mod sessions;
mod sign_in;
mod message;
// What they are made of.
mod key_state;
mod activity;
mod standing;
mod outcome;
mod paging;
mod when;
mod figures;
#[cfg(test)]
mod samples;

pub use self::activity::{Activity, Hour};
pub use self::create::{CreatePage, Owner, OwnerChoice};
pub use self::figures::{count, counted, duration};
pub use self::frame::{Frame, OrgChoice, Person, Section};
pub use self::key::{KeyPage, Refusal, Show, Use, UseFilter, Verdict};
pub use self::key_state::KeyState;
pub use self::keys::{Details, KeyFilter, KeyRow, KeysPage, LastUse};
pub use self::message::{Back, MessagePage};
pub use self::new_key::{Made, NewKeyPage};
pub use self::outcome::Outcome;
pub use self::paging::{Paging, link};
pub use self::revoke::RevokePage;
pub use self::rotate::{Overlap, RotatePage};
pub use self::sessions::{SessionRow, SessionsPage};
pub use self::sign_in::{LeavingPage, LinkPage, ProviderChoice, SignInPage, SignedOutPage};
pub use self::standing::{Gauge, Limits, Standing};
pub use self::when::When;
