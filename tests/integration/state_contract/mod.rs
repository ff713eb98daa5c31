//! The contract of the shared state, as cases that every variant of [`keygate::state::State`] passes, and what each
//! variant promises beyond it.
//!
//! A case may find records of other cases in its state: it asserts about those that it made.

use std::time::Duration;

use keygate::quota::Quota;

mod runtime;
mod tenancy;

// The contract.
mod cases_admission;
mod cases_changes;
mod cases_records;
mod cases_concurrency;
mod cases_session_quota;
mod cases_sessions;
mod cases_tickets;

// What the variants have in common beyond it.
mod same_trace;
mod same_arithmetic;

// What single variants promise.
mod embedded;
mod embedded_sessions;
mod redis;
mod redis_sessions;
mod redis_outages;
mod redis_load;
mod redis_deployments;
mod gateways;

/// The configured quota of all cases: a token each second, five at once.
const QUOTA: Quota = Quota { requests: 10, per: Duration::from_secs(10), burst: 5 };
/// The configured concurrency of all cases.
const CONCURRENT: u32 = 3;
/// How long a test waits for what happens within a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two tokens.
const TOKEN: Duration = Duration::from_secs(1);

/// Runs all cases over a variant, in a module of this name. The expression opens a state, within the runtime: it gives
/// the state, configured with [`QUOTA`] and [`CONCURRENT`], and whatever is to be kept as long as it is open.
macro_rules! contract {
    ($variant:ident, $open:expr) => {
        contract! {
            $variant, $open,
            cases_admission: [
                an_unknown_key_is_refused_without_a_principal,
                a_key_is_found_with_and_without_its_id,
                an_admission_says_who_and_where_they_stand,
                each_use_has_the_next_number,
                a_refusal_takes_nothing,
                refusals_come_in_their_order,
                a_bucket_gives_its_burst_and_then_its_rate,
                slots_are_limited_per_organization_and_come_back,
                a_refusal_for_slots_costs_no_token,
            ],
            cases_changes: [
                a_revocation_holds_at_once_and_for_good,
                a_rotation_replaces_the_secret_and_nothing_else,
                an_overlap_keeps_one_secret_for_its_time,
                permissions_follow_the_user,
                a_removed_user_takes_its_keys_along,
                a_suspension_holds_until_resumed,
                limits_of_an_organization_hold_at_once,
                another_quota_keeps_the_tokens,
                other_defaults_hold_at_once_and_keep_what_was_counted,
                other_defaults_leave_those_alone_who_have_limits_of_their_own,
            ],
            cases_records: [
                what_is_unique_is_taken_once,
                changes_to_what_does_not_exist_are_refused,
                a_change_that_fails_does_not_undo_its_neighbours,
                records_are_listed_in_the_order_of_creation,
                single_records_are_found,
            ],
            cases_concurrency: [
                no_decision_begun_after_a_change_misses_it,
                threads_share_a_bucket_exactly,
                threads_never_exceed_the_slots,
                a_storm_of_rate_limited_requests_holds_no_slot,
            ],
            cases_session_quota: [
                session_quota_key_names_its_user_and_no_key,
                session_quota_key_has_its_own_bucket,
                session_quota_keys_share_slots_with_the_keys_of_their_organization,
                session_quota_key_follows_its_user_and_organization,
                session_quota_keys_are_found_and_not_listed,
                session_quota_key_is_unique_for_each_user,
            ],
            cases_sessions: [
                a_session_is_found_as_it_was_made,
                a_session_ends_at_its_time_however_it_is_used,
                a_session_that_goes_unused_ends,
                a_session_in_use_outlasts_a_short_idle_time,
                an_ended_session_is_found_by_nobody,
                a_person_acts_in_one_of_their_organizations,
                a_digest_and_an_id_are_of_one_session,
                sessions_are_listed_oldest_first,
            ],
            cases_tickets: [
                a_ticket_is_taken_once,
                a_ticket_is_not_handed_out_too_late,
                of_all_who_try_one_gets_a_ticket,
            ],
        }
    };
    ($variant:ident, $open:expr, $($theme:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        mod $variant {
            $($(
                #[test]
                fn $case() {
                    let _entered = super::runtime::enter();
                    let (state, _kept) = $open;
                    super::runtime::block_on(super::$theme::$case(&state));
                    assert_eq!(state.in_flight(), 0, "a slot was kept");
                }
            )*)*
        }
    };
}

contract!(over_embedded, super::embedded::opened());

contract!(over_redis, super::redis::on_a_server());

contract!(over_a_redis_cluster, super::redis::on_a_cluster());
