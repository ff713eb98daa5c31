//! The worked examples of `docs/development/design/`, run for real: each test prints the steps of its page, and fails
//! when the page has others.
//!
//! One example runs through all of them: two gateways A and B, the organization `acme` with 3 slots, and one key with 5
//! tokens, of which one flows in every 2 seconds. Redis fails over at second 7. The clock of Redis stands still until
//! the story moves it, so that tokens and ends of leases are exact.

mod held_upstream;
mod monitor;
mod records;
mod stage;

mod decision_on_redis;
mod slot_lease;
mod journal_line;
mod retry;

/// Limits of the example.
const LIMITS: &str = "limits: { key: { requests: 5, per: 10s }, org: { concurrent: 3 } }\n";
