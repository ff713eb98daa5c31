//! Management of organizations, users, keys and web sessions: one function for each operation, authorized and audited.
//!
//! The functions of [`Management`] take an [`Actor`], typed operands and the time, and return typed results. The admin
//! socket and the command line call them for the operator, the dashboard for signed-in users, and the network API for
//! programs, who may do less.
//!
//! - Authorization comes first in each function, in one place, `authorization.rs`.
//! - No change without a record: its audit entry is opened before the change, and closed with the outcome.
//! - A change that was acknowledged is durable, and holds from the next request on.
//! - Run an operation to its end: when its future is dropped on the way, the change may have been made, and its record
//!   says `in_doubt`.
//! - A plain key leaves once, in the result that creates it; `Debug` never shows it.
//! - Times are values ([`Micros`]); they become RFC 3339 text when a result is serialized.
//!
//! `CONTRIBUTING.md` has the steps to add a management operation.

use std::sync::Arc;

use prometheus::{Histogram, IntGauge};

use domain::clock::{self, Micros};
use domain::problem::ProblemTypes;
use journal::audit::{self, AuditView, Journal};
use platform::metrics::StateMetrics;
use state::State;

use read_queue::ReadQueue;
use token_uses::TokenUses;

mod actor;
mod unix_user;
mod unused_keys;
mod announcement;
mod near_budgets;
mod expiring;
mod authorization;
mod orgs;
mod org_policy;
mod user;
mod users;
mod services;
mod keys;
mod owned_key;
mod key_creation;
mod keys_by_digest;
mod leaks;
mod federation_rules;
mod token_exchange;
mod rotation;
mod shown_key;
mod key_query;
mod key_sort;
mod key_status;
mod key_list;
mod key_policy;
mod key;
mod key_actor;
mod explain;
mod uses;
mod usage;
mod usage_summary;
mod quota;
mod records;
mod changes;
mod read_queue;
mod range_usage;
mod session;
mod sessions;
mod session_end;
mod session_bound;
mod token;
mod tokens;
mod token_revocation;
mod token_authentication;
mod token_uses;
mod links;
mod sign_in;
mod withdrawal;
mod patches;
mod apply;
pub mod expiry;
pub mod policy_text;
mod backup;
mod operands;
pub mod given;
mod cursor;
mod sealed_text;
mod conditions;
mod replay;
mod audited_change;
mod left_changes;
mod error;

pub use actor::{
    ADMIN, Actor, ClientInfo, Conditions, IdempotentCall, Operator, Program, SignedInUser, authenticate_session,
};
pub use announcement::ANNOUNCED;
pub use apply::{
    Action, Application, Document, Failure, FieldChange, Flaw, KeySpec, LimitSpec, MAX_RECORDS, OrgSpec, PlanStep,
    RuleSpec, UserSpec, apply_document, plan_document,
};
pub use audited_change::ACTIONS;
pub use backup::{AcceptedState, StateExport, accept_state, export_state, import_state};
pub(crate) use backup::{STATE_MEDIA_TYPE, run_beside};
pub use changes::{ChangeEntry, ChangeFilter, ChangePage, export_changes, list_changes};
pub(crate) use error::RouteError;
pub use error::{ErrorKind, ManagementError, Row};
pub use expiring::announce_ends;
pub use explain::{Explanation, LimitStatus, explain_key};
pub use federation_rules::{
    FEDERATED_KEY_LIFETIME, FederationRule, NewFederationRule, create_federation_rule, list_federation_rules,
    remove_federation_rule, show_federation_rule,
};
pub use key::{ApiKey, GoodPractice, Key, KeyLimits, LimitPatch, LimitUpdate, NewKey, PlanInForce};
pub use key_actor::{ChangeUser, KeyActor};
pub use key_creation::{GivenSecret, NewKeyRequest, SecretSource, create_key};
pub use key_list::{KeyCount, count_keys, find_keys_by_digest, list_all_keys, list_keys};
pub use key_policy::{PolicyUpdate, disable_key, enable_key};
pub use key_query::KeyQuery;
pub use key_sort::KeySort;
pub use key_status::{KeyMark, KeyStatus};
pub use keys::{KeyImport, import_key, revoke_key, show_key};
pub use keys_by_digest::{PutKey, put_key_by_digest};
pub use leaks::{Leak, LeakAction, Leaked, report_leak, revoke_own_key};
pub use left_changes::{end_left_changes, end_left_changes_once};
pub use links::{Link, LinkPreview, create_link, preview_link, sign_in_with_link};
pub use near_budgets::announce_near_budgets;
pub use operands::check_digest;
pub use org_policy::OrgPolicyUpdate;
pub use orgs::{Org, check_concurrent, create_org, list_orgs, member_orgs, plan_of_quota, show_org};
pub use patches::{KeyUpdate, OrgUpdate, UserUpdate, update_key, update_org, update_user};
pub use quota::{
    Quota, QuotaOwner, QuotaRecount, Stretch, UNTIL_RECORDED, count_units, recount_quota, reset_quota, show_quota,
};
pub use range_usage::{
    Count, KeyShare, KeyUsage, Overview, Period, RouteShare, Series, Sums, UsedBy, show_key_usage, show_overview,
};
pub use records::list_records;
pub(crate) use replay::{Replay, idempotency_place, idempotency_record, replay};
pub use rotation::{Rotation, rotate_key};
pub use services::create_service;
pub use session::Session;
pub use session_end::{end_other_sessions, end_session, end_sessions, sign_out};
pub use sessions::{SessionSettings, accessible_orgs, choose_org, list_sessions};
pub use shown_key::{KeySealer, SEALED_KEY_LIFETIME, key_sealer};
pub use sign_in::{Entitlements, ProviderSignIn, sign_in_with_provider, store_pending_sign_in, take_pending_sign_in};
pub use state::duration_text;
pub use token::{Descendants, NewToken, Token, TokenStatus};
pub use token_authentication::authenticate_token;
pub use token_exchange::{ExchangeTarget, ExchangedKey, exchange_token, find_exchange_target};
pub use token_revocation::revoke_token;
pub(crate) use token_uses::note_token_use;
pub use tokens::{ADMIN_SCOPES, TokenSettings, create_token, list_tokens, show_token};
pub use unix_user::UnixUser;
pub use unused_keys::sweep_unused_keys;
pub(crate) use usage::has_fleet;
pub use usage::{UsageRequest, UsageScope, show_usage};
pub use usage_summary::{Outcomes, UsageItem, UsageSummary};
pub use user::{Responsible, User, UserKind, UserStatus};
pub use users::{
    UserGrants, check_people_access, create_user, list_users, remove_user, resume_user, show_user, suspend_user,
};
pub use uses::{Activity, ActivityReport, UseFilter, UsePage, key_activity, list_uses, set_fleet};
pub use withdrawal::withdraw_unclaimed;

/// Management of one gateway. Shared by the admin socket and the dashboard of all workers.
#[derive(Debug)]
pub struct Management {
    state: Arc<State>,
    journal: Journal,
    /// View of this gateway's journal and of the shipped records.
    view: AuditView,
    /// Limits concurrent reads of the journal, and of all keys of an organization.
    reads: ReadQueue,
    /// The name of this gateway, which is in every record of its journal.
    gateway: String,
    /// Settings of web sessions; none when they are not configured.
    sessions: Option<SessionSettings>,
    /// Types of the problems in answers to calls.
    problem_types: ProblemTypes,
    /// Seconds until a change is durable.
    duration: Histogram,
    /// Action on keys and tokens that have leaked.
    leak_action: LeakAction,
    /// Last uses of management tokens at this gateway.
    token_uses: TokenUses,
    /// 1 when the last look at what ends soon has met its bound; read by `keygate doctor`.
    announcements_limited: IntGauge,
    /// True of a trial, whose changes are not recorded.
    is_trial: bool,
}

impl Management {
    /// The time by the clock of the state: that of operations, which end, accept and remember what is of others.
    pub fn now(&self) -> Micros {
        self.state.time(clock::now())
    }

    /// Manages this state, and records changes in this journal.
    pub fn new(state: Arc<State>, journal: Journal, settings: &audit::Settings, metrics: &StateMetrics) -> Self {
        Self {
            state,
            view: AuditView::of_journal(journal.clone()),
            journal,
            reads: ReadQueue::default(),
            gateway: settings.gateway.clone(),
            sessions: None,
            problem_types: ProblemTypes::default(),
            duration: metrics.change.clone(),
            leak_action: LeakAction::default(),
            token_uses: TokenUses::default(),
            announcements_limited: metrics.announcements_limited.clone(),
            is_trial: false,
        }
    }

    /// Sets the action on keys and tokens that have leaked.
    #[must_use]
    pub fn with_leak_action(self, leak_action: LeakAction) -> Self {
        Self { leak_action, ..self }
    }

    /// Sets the types of the problems in answers to calls.
    #[must_use]
    pub fn with_problem_types(self, problem_types: ProblemTypes) -> Self {
        Self { problem_types, ..self }
    }

    /// Types of the problems in answers to calls.
    pub(crate) fn problem_types(&self) -> &ProblemTypes {
        &self.problem_types
    }

    /// Returns whether administrators add, remove and permit the people of their organizations.
    pub(crate) fn admins_manage_people(&self) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.admins_manage_people)
    }

    /// Sets the settings of web sessions.
    #[must_use]
    pub fn with_sessions(self, sessions: Option<SessionSettings>) -> Self {
        Self { sessions, ..self }
    }
}
