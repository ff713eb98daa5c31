//! Pages of the dashboard: their values and templates.
//!
//! A page is a plain struct of values ready to be shown, and a template. Nothing here loads data or decides anything.
//!
//! - Every value is escaped for HTML where it is written: no template marks a value as safe.
//! - No page has an inline script or style, or loads anything from another origin. The Content Security Policy can be
//!   `default-src 'none'`, with `'self'` for styles, scripts, images and forms.
//! - Every page works without scripts. The script among the assets adds copy buttons, and dates in the reader's
//!   language and time zone.
//! - All links and forms are below [`Layout::base`].

// The frame.
mod layout;
// The pages.
mod overview;
mod keys;
mod create;
mod new_key;
mod key;
mod policy;
mod selected;
mod rotate;
mod audit;
mod users;
mod sessions;
mod tokens;
mod create_token;
mod sign_in;
// Their parts.
mod activity;
mod usage;
mod use_row;
mod limits;
mod outcome;
mod paging;
mod recorded;
mod timestamp;
mod numbers;
#[cfg(test)]
mod tests;

pub use self::activity::ActivityChart;
pub use self::audit::{AuditPage, ChangeFields, ChangeRow, FoundRequest, RequestSearch};
pub use self::create::{CreatePage, OwnerChoice, OwnerInput};
pub use self::create_token::{CreateTokenPage, ScopeChoice, TokenErrors, TokenExpiry};
pub use self::key::{AdmissionFilter, KeyDetails, KeyPage, RevokePage, UseFilter, UsedByPart, Verdict};
pub use self::keys::{
    AttemptCell, KeyFilter, KeyOrder, KeyRow, KeySwitch, KeysPage, LastUseCell, SelectLink, SortColumns, StateFilter,
    UseSource,
};
pub use self::layout::{Layout, NavEntry, OrgChoice, Viewer};
pub use self::limits::{BudgetCell, Gauge, KeyLimits, LimitUsage, PlanCell};
pub use self::new_key::{ExampleProgram, Issuance, NewKeyPage};
pub use self::numbers::{format_count, format_counted, format_duration};
pub use self::outcome::OutcomeText;
pub use self::overview::{KeyLink, KeyLinks, OverviewPage};
pub use self::paging::{Paging, link};
pub use self::policy::{
    DisabledFact, Expiry, PermissionChoice, PolicyErrors, PolicyFacts, PolicyFields, PolicyPage, RateField,
};
pub use self::recorded::{FleetFreshness, GatewayRow, RecordSource};
pub use self::rotate::{Overlap, RotateErrors, RotatePage};
pub use self::selected::{SelectedAction, SelectedPage, SelectedResultPage, SelectedRow};
pub use self::sessions::{SessionRow, SessionsPage};
pub use self::sign_in::{LeavingPage, LinkPage, ProviderChoice, SignInPage, SignedOutPage};
pub use self::timestamp::{Timestamp, with_exact_times};
pub use self::tokens::{NewTokenPage, RevokeTokenPage, TokenFacts, TokensPage};
pub use self::usage::{RangeUsage, ShareRow, UsagePart, percent};
pub use self::use_row::UseRow;
pub use self::users::{AddUserPage, ResponsibleCell, SuspendUserPage, UserPage, UserRow, UsersPage};
