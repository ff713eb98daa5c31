//! The block `limits`: default limits of keys and organizations, the limits of failed authentications and of programs,
//! and the bounds of what people create.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::gateway::PublicSettings;
use domain::plan_name::PlanName;
use domain::quota::{MAX_PER, MAX_TOKENS, Quota, QuotaError};
use platform::settings::{Reported, Section, Value};
use state::{Bounds, Defaults, GivenPlan, GivenPlans, LimitPlan, LimitPlans};

/// Requests that an organization may have in flight, as the contract promises.
const CONCURRENT: u32 = 100;

/// Failed authentications from one address: more than a person who mistypes a key, or a fleet with an old one, causes.
const BAD_KEYS: Quota = Quota { requests: 100, per: Duration::from_secs(60), burst: 100, strict: false };

/// Requests without keys: more than a person who looks at pages, or a monitor of `/health`, causes.
const PUBLIC: PublicSettings = PublicSettings {
    quota: Quota { requests: 60, per: Duration::from_secs(60), burst: 60, strict: false },
    concurrent: 100,
};

/// Calls of one management token: enough for a program that manages thousands of keys.
const MANAGEMENT: Quota = Quota { requests: 600, per: Duration::from_secs(60), burst: 600, strict: false };

/// Plans by their names.
pub(super) type Plans = BTreeMap<PlanName, LimitPlan>;

/// Limits that apply where no own limits are set.
#[derive(Clone)]
pub(super) struct Limits {
    /// Of a key.
    pub(super) quota: Quota,
    /// Requests that an organization may have in flight.
    pub(super) concurrent: u32,
    /// Requests with unknown keys from one address.
    pub(super) bad_keys: Quota,
    /// Sign-ins from one address, begun or failed.
    pub(super) sign_ins: Quota,
    /// Requests without keys.
    pub(super) public: PublicSettings,
    /// Calls of one management token.
    pub(super) management: Quota,
    /// Of what people create.
    pub(super) bounds: Bounds,
    /// The plans of the file, and the one for keys without a plan.
    pub(super) plans: LimitPlans,
}

impl Limits {
    /// The limits of an empty block.
    pub(super) const DEFAULT: Self = Self {
        quota: Quota::DEFAULT,
        concurrent: CONCURRENT,
        bad_keys: BAD_KEYS,
        sign_ins: BAD_KEYS,
        public: PUBLIC,
        management: MANAGEMENT,
        bounds: Bounds::DEFAULT,
        plans: LimitPlans::NONE,
    };
}

impl Limits {
    /// The quotas that keys may have by the file, each with its block.
    pub(super) fn quotas(&self) -> Vec<(String, Quota)> {
        let defaults = Defaults { quota: self.quota, concurrent: self.concurrent, plans: self.plans.clone() };
        let of_plan = |name| {
            let key = GivenPlan { plan: Some(name), budget: None };
            defaults.limits_of(None, GivenPlans { key, ..GivenPlans::default() }).quota
        };
        let of_plans = self.plans.names().map(|name| (format!("plans.{name}"), of_plan(name)));
        std::iter::once(("limits.key".to_owned(), self.quota)).chain(of_plans).collect()
    }
}

/// Reads the block `limits`, beside the plans of the file.
pub(super) fn limits(section: &mut Section<'_>, plans: Result<Plans, Reported>) -> Limits {
    let default = Limits::DEFAULT;
    let key = section.section("key", |section| {
        let strict = section.value_or("strict", false, |value| value.boolean());
        Ok(quota(section, Quota { strict, ..default.quota }))
    });
    let bad_keys = section.section("bad_keys", |section| Ok(quota(section, default.bad_keys)));
    // The same unless configured: both are what one address may try.
    let bad_keys = bad_keys.unwrap_or(default.bad_keys);
    let sign_ins = section.section("sign_ins", |section| Ok(quota(section, bad_keys)));
    let public = section.section("public", |section| {
        let concurrent = section.value_or("concurrent", default.public.concurrent, concurrent);
        Ok(PublicSettings { quota: quota(section, default.public.quota), concurrent })
    });
    let management = section.section("management", |section| Ok(quota(section, default.management)));
    let bounds = bounds(section);
    let plans = default_plan(section, plans);
    let concurrent = section.section("org", |org| Ok(org.value_or("concurrent", default.concurrent, concurrent)));
    // A block that cannot be read was reported; the default lets the rest of the file be checked.
    Limits {
        quota: key.unwrap_or(default.quota),
        concurrent: concurrent.unwrap_or(default.concurrent),
        bad_keys,
        sign_ins: sign_ins.unwrap_or(bad_keys),
        public: public.unwrap_or(default.public),
        management: management.unwrap_or(default.management),
        bounds,
        plans,
    }
}

/// Reads a number of requests in flight.
pub(super) fn concurrent(value: &Value<'_>) -> Result<u32, Reported> {
    value.integer(1..=1_000_000)
}

/// Reads `limits.plan`, the plan for keys without one. Plans with errors were reported, and are not missed here.
fn default_plan(section: &mut Section<'_>, plans: Result<Plans, Reported>) -> LimitPlans {
    let name = |value: &Value<'_>| -> Result<Option<PlanName>, Reported> {
        let Ok(plans) = &plans else { return value.text().map(|_| None) };
        let names: Vec<&PlanName> = plans.keys().collect();
        let texts: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        if texts.is_empty() {
            return value.reject("names a plan, and the file has no `plans`; add that block, or remove this line");
        }
        value.name_of("a plan of `plans`", &texts).map(|place| Some(names[place].clone()))
    };
    let name = section.optional("plan", name).unwrap_or_default().flatten();
    LimitPlans::new(plans.unwrap_or_default(), name)
}

fn bounds(section: &mut Section<'_>) -> Bounds {
    let default = Bounds::DEFAULT;
    let key_creation = section.section("key_creation", |section| Ok(quota(section, default.key_creation)));
    let keys_per_user = section.value_or("keys_per_user", default.keys_per_user, |value| value.integer(1..=100_000));
    let sessions_per_person =
        section.value_or("sessions_per_person", default.sessions_per_person, |value| value.integer(1..=1000));
    let keep_revoked = section.value_or("keep_revoked", default.keep_revoked, |value| {
        value.duration(Duration::from_secs(3600)..=Duration::from_secs(100 * 366 * 24 * 3600))
    });
    let unused_keys = section.value_or("unused_keys", default.unused_keys, unused_keys);
    let key_creation = key_creation.unwrap_or(default.key_creation);
    Bounds { key_creation, keys_per_user, sessions_per_person, keep_revoked, unused_keys }
}

/// Reads `never`, or a time of a week at least: a shorter one would disable what runs once a week.
fn unused_keys(value: &Value<'_>) -> Result<Option<Duration>, Reported> {
    if value.text()? == "never" {
        return Ok(None);
    }
    value.duration(Duration::from_secs(7 * 24 * 3600)..=Duration::from_secs(100 * 366 * 24 * 3600)).map(Some)
}

/// Reads a quota; keys that are left out have their defaults.
pub(super) fn quota(section: &mut Section<'_>, default: Quota) -> Quota {
    let tokens = 1..=MAX_TOKENS;
    let requests = section.value_or("requests", default.requests, |value| value.integer(tokens.clone()));
    let per = section.value_or("per", default.per, |value| {
        let per = value.duration(Duration::from_secs(1)..=MAX_PER)?;
        if per.subsec_nanos() == 0 { Ok(per) } else { value.reject("is not whole seconds; round it") }
    });
    // A burst follows the requests that are given; the default burst belongs to the default requests.
    let burst = if default.strict {
        Quota::strict_burst(requests)
    } else if requests == default.requests {
        default.burst
    } else {
        requests
    };
    let burst = section.value_or("burst", burst, |value| value.integer(tokens));
    let quota = Quota { requests, per, burst, ..default };
    if let Err(error) = quota.validate() {
        report_invalid(section, error);
    }
    quota
}

/// Reports a quota on the key that was written: a burst that follows the requests was not.
fn report_invalid(section: &Section<'_>, error: QuotaError) {
    let written = ["burst", "requests", "per"].into_iter().find(|key| section.contains(key)).unwrap_or("burst");
    section.report(written, error);
}
