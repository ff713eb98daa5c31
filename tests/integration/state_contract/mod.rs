//! Contract of the shared state: cases that every variant of [`state::State`] passes, and tests of further
//! guarantees of single variants.
//!
//! Several cases share one state: a case only makes assertions about records that it created.

use std::time::Duration;

use domain::quota::Quota;

pub(crate) mod runtime;
mod fixture;

// The contract.
mod cases_admission;
mod cases_changes;
mod cases_patches;
mod cases_plans;
mod cases_budgets;
mod cases_etags;
mod cases_idempotency;
mod cases_policy;
mod cases_policy_histories;
mod cases_unused_keys;
mod cases_services;
mod cases_suspensions;
mod cases_records;
mod cases_actors;
mod cases_pages;
mod cases_concurrency;
mod cases_key_slots;
mod cases_session_quota;
mod cases_sessions;
mod cases_tickets;
mod cases_token_uses;
mod cases_bounds;
mod cases_federation;
mod cases_standing;

// Equality of the variants.
mod budget_histories;
mod same_trace;
mod same_arithmetic;

// Guarantees of single variants.
mod embedded;
mod embedded_sessions;
mod embedded_requests;
mod state_file;
pub(crate) mod redis;
mod redis_sessions;
mod redis_pages;
mod redis_outages;
mod redis_memory;
mod lost_state;
mod redis_clocks;
mod redis_shares;
mod redis_load;
mod redis_heartbeat;
mod redis_size;
mod redis_deployments;
mod redis_failovers;
mod gateways;

// The page of plans.
mod price_lists;

/// The configured quota of all cases: a token each second, five at once.
const QUOTA: Quota = Quota { requests: 10, per: Duration::from_secs(10), burst: 5, strict: false };
/// The configured concurrency of all cases.
const CONCURRENT: u32 = 3;
/// Longest wait for an event that takes a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two tokens.
const TOKEN: Duration = Duration::from_secs(1);

/// Runs all cases over a variant, in a module of this name. The expression is evaluated within the runtime and returns
/// a state, configured with [`QUOTA`] and [`CONCURRENT`], and a guard that is kept as long as the state is open.
macro_rules! contract {
    ($variant:ident, $open:expr) => {
        contract! {
            $variant, $open,
            cases_admission: [
                unknown_key_is_denied_without_a_principal,
                key_is_found_with_and_without_its_id,
                admission_names_the_principal_and_the_rate_limit_status,
                uses_are_numbered_consecutively,
                denied_request_takes_nothing,
                refusals_have_a_fixed_order,
                bucket_gives_its_burst_and_then_its_rate,
                slots_are_limited_for_each_organization_and_released,
                refusal_for_slots_costs_no_token,
                cost_is_taken_whole_or_not_at_all,
                cost_above_the_burst_is_never_admitted,
            ],
            cases_changes: [
                revocation_holds_at_once_and_for_good,
                rotation_replaces_the_secret_and_nothing_else,
                rotation_that_depends_on_another_changes_nothing,
                rotation_overlap_keeps_the_previous_secret_valid,
                permissions_follow_the_user,
                withdrawn_user_is_denied_until_permitted_again,
                keys_of_a_removed_user_are_denied,
                suspension_holds_until_resumed,
                suspended_user_is_denied_until_resumed,
                organization_limits_hold_at_once,
                organization_has_the_policy_that_was_set_last,
                quota_change_keeps_the_tokens,
                default_limits_change_at_once_and_keep_tokens,
                time_before_other_default_limits_counts_by_those_before,
                default_limits_do_not_replace_own_limits,
                strict_quota_admits_its_requests_at_most_in_any_window,
            ],
            cases_patches: [
                fields_of_an_organization_are_changed_together,
                fields_of_a_user_are_changed_together,
                quota_and_policy_of_a_key_are_changed_together,
            ],
            cases_budgets: [
                budget_admits_its_units_and_begins_anew_with_the_next_period,
                budget_is_of_the_key_the_user_or_the_organization,
                sessions_spend_the_budget_of_their_user,
                refusal_for_tokens_or_slots_spends_nothing,
                five_at_once_with_room_for_three_are_three,
                what_a_request_did_not_cost_comes_back_into_its_period,
                reload_changes_the_budget_with_the_next_request,
                correction_begins_a_new_stretch_of_the_period,
                own_budget_is_the_one_that_is_spent,
                budget_is_found_nearly_spent_once_in_each_period,
            ],
            cases_plans: [
                first_level_that_says_something_gives_the_limits,
                plans_are_shown_as_they_were_given,
                tokens_stay_with_another_plan_and_a_new_key_begins_with_all,
                missing_plan_gives_the_limits_for_all_others_and_is_counted,
                each_key_has_the_requests_in_flight_of_its_plan,
                larger_plan_bounds_while_it_changes,
                reload_changes_all_keys_of_a_plan_at_once,
            ],
            cases_etags: [
                tag_changes_with_every_change_of_a_record,
                tag_of_a_service_changes_with_its_responsible_person,
                tag_is_unchanged_by_uses,
                change_with_a_stale_tag_changes_nothing,
                one_of_the_writers_with_the_same_tag_wins,
            ],
            cases_idempotency: [
                equal_requests_make_one_key,
                equal_requests_with_a_digest_make_one_key,
                equal_requests_make_one_organization_and_one_user,
                every_kind_of_change_is_made_once,
                failed_change_leaves_no_record,
                record_expires,
                live_records_of_a_token_are_bounded,
                rotations_at_once_for_one_request_rotate_once,
            ],
            cases_policy: [
                key_has_the_permissions_of_its_policy_and_its_user,
                disabled_key_is_refused_until_it_is_enabled,
                key_expires_by_the_clock_that_decides,
                addresses_outside_the_networks_are_refused_and_not_remembered,
                owner_narrows_and_the_operator_alone_undoes_what_the_operator_disabled,
                changes_of_two_fields_at_once_both_hold,
            ],
            cases_unused_keys: [
                unused_key_is_disabled_unless_it_was_used_created_or_enabled,
                use_at_the_time_of_the_sweep_wins_or_is_refused,
            ],
            cases_policy_histories: [
                decisions_are_those_of_the_model_in_every_history,
            ],
            cases_suspensions: [
                suspension_by_the_operator_is_taken_back_by_the_operator_alone,
                suspended_organization_gets_no_key_of_a_person,
            ],
            cases_services: [
                service_has_a_responsible_person_and_goes_on_without,
                responsible_person_is_one_of_the_organization,
            ],
            cases_records: [
                unique_fields_are_taken_once,
                organizations_have_names_that_do_not_look_the_same,
                changes_to_missing_records_are_refused,
                failed_change_does_not_undo_its_neighbours,
                records_are_listed_in_the_order_of_creation,
                single_records_are_found,
            ],
            cases_actors: [
                actors_of_a_key_are_those_who_changed_it,
                change_without_an_actor_has_none,
            ],
            cases_pages: [
                keys_are_listed_a_page_at_a_time,
                walk_over_keys_is_exact_while_others_come,
                page_begins_behind_a_key_that_is_not_listed,
                users_and_organizations_are_listed_a_page_at_a_time,
                revoked_keys_are_listed,
                walk_over_sessions_is_exact_while_others_come_and_end,
            ],
            cases_concurrency: [
                changes_hold_for_every_decision_that_begins_afterwards,
                all_of_many_changes_of_one_record_are_made,
                threads_share_a_bucket_exactly,
                threads_never_exceed_the_slots,
                rate_limited_requests_hold_no_slot,
            ],
            cases_key_slots: [
                key_has_no_more_in_flight_than_its_limit,
                slots_of_a_key_are_checked_between_bucket_and_organization,
                secrets_of_a_key_share_its_slots,
                limit_of_a_key_changes_at_once_and_counts_what_began_under_one,
                requests_at_once_never_exceed_the_slots_of_a_key,
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
                session_is_found_as_it_was_created,
                session_in_use_ends_at_its_expiry,
                unused_session_ends,
                session_in_use_outlasts_a_short_idle_time,
                ended_session_is_not_found,
                session_acts_in_one_of_the_organizations_of_its_person,
                membership_of_a_session_ends_in_one_organization,
                session_digest_and_id_are_unique,
                sessions_are_listed_oldest_first,
            ],
            cases_tickets: [
                ticket_is_taken_once,
                expired_ticket_is_not_handed_out,
                ticket_goes_to_one_of_several_takers,
                announcement_is_claimed_once_and_extended_by_the_same_gateway,
            ],
            cases_token_uses: [last_use_of_a_token_stands_until_the_token_expires],
            cases_federation: [
                rules_are_of_services_and_found_by_name,
                token_is_exchanged_once_by_a_rule,
                exchange_by_a_rule_that_was_changed_is_refused,
                exchanges_of_a_rule_are_bounded,
                key_of_a_rule_leaves_the_lists_an_hour_after_its_end,
            ],
            cases_standing: [
                person_gives_no_permission_that_they_lack,
                last_administrator_stays_whatever_happens_at_once,
                person_without_the_right_changes_nothing,
                expiry_is_put_off_within_the_policy,
                new_key_is_within_the_policy,
                values_of_an_organizations_policy_change_one_by_one,
            ],
            cases_bounds: [
                descendants_of_a_token_are_revoked_with_it,
                tokens_of_an_organization_are_bounded_at_once,
                keys_of_a_person_are_bounded_at_once,
                creations_and_rotations_of_a_person_share_a_bucket,
                creations_at_once_take_each_token_once,
                key_revoked_long_ago_is_refused_and_not_listed,
                sessions_of_a_person_are_bounded_at_once,
                sessions_are_listed_by_organization,
                users_are_found_by_email_in_all_organizations,
                users_are_found_by_person_in_all_organizations,
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
