//! Outlier ejection: endpoints that fail are set aside, by what their responses to ordinary requests show.
//!
//! The decisions are pure: [`Streaks`] counts failures in a row, [`EjectionState`] is the state machine of one
//! endpoint. [`Detector`] applies them to the state that all workers share.
//!
//! | state | event | next state |
//! |---|---|---|
//! | in | failures in a row reach a threshold | ejected for a time that doubles with each ejection, ± a fifth |
//! | in | connections fail as often as their threshold says | unreachable: the same, and at most one `ejection` long |
//! | ejected | its time is over | returning |
//! | unreachable | its time is over, and a connection can be made | returning |
//! | unreachable | its time is over, and no connection can be made | unreachable, for longer |
//! | unreachable | a request had no other endpoint, and connected | returning |
//! | returning | one failure | ejected or unreachable, for longer |
//! | returning | the slow start is over | in |
//! | in | active checks pass again ([`super::health`]) | returning |
//! | in | no ejection for as long as the last one took | in, and the next ejection is half as long |
//!
//! - At most half of the endpoints are ejected. Beyond that an endpoint over its threshold stays in, and the upstream
//!   is in *panic*: requests go to the ejected ones, too, because an ejection says nothing any more.
//! - An endpoint to which no connection can be made is out whatever that limit says: nothing could be sent to it. The
//!   last endpoint is never set aside.
//! - Whichever worker sees a threshold crossed decides, by compare-and-swap; one that finds a decision under way
//!   leaves it to the next failure. No request waits for a decision.

mod settings;
mod streaks;
mod state;
mod ejection;
mod detector;

pub(crate) use detector::{Change, Detector};
pub(crate) use ejection::Ejection;
pub use settings::OutlierSettings;
pub(crate) use state::{Jitter, Phase};
