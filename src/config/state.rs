//! The block `state`: the state that serves, embedded or on Redis, which several gateways share.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::limits::Limits;
use platform::settings::{Reported, Section, Value, WithUnit};
use platform::tls::ClientSettings;
use state::redis::{self, Clock, Durability, InvalidUrl, Login, OnUnavailable, Servers, Url};
use state::{Settings, embedded};

/// Default prefix of the names of all Redis keys.
const PREFIX: &str = "keygate";
/// Length of the longest prefix. It is part of every name, and so costs memory for every record.
const MAX_PREFIX: usize = 32;
/// Time that a decision may take: many times what one takes, too little for a client to notice.
const DEADLINE: Duration = Duration::from_millis(50);
/// Time after its last heartbeat at which a gateway's slots are released: short, because an organization waits that
/// long for the slots of a dead gateway.
const LEASE: Duration = Duration::from_secs(10);
/// Deadlines in a lease, at least: a gateway whose heartbeat was answered late must not lose slots that it holds.
const DEADLINES_PER_LEASE: u32 = 4;
/// Longest `max_loss`: an operator has to look at what is missing after a longer one.
const MAX_LOSS: Duration = Duration::from_secs(3600);
/// Time since Redis last confirmed a key, up to which `known_keys` admits it without Redis.
const MAX_STALENESS: Duration = Duration::from_secs(60);
/// Time to wait for replicas.
const REPLICATION: Duration = Duration::from_secs(1);
/// Largest number of replicas to wait for; more than any deployment has.
const MAX_REPLICAS: u32 = 16;

/// Reads the block `state`. Default limits stand in for `limits` with errors, so that errors of the state show as well.
pub(super) fn state(section: &mut Section<'_>, limits: Result<Limits, Reported>) -> Result<Settings, Reported> {
    let limits = limits.unwrap_or(Limits::DEFAULT);
    let embedded = section.optional("embedded", |value| value.section(|section| embedded(section, &limits)));
    let redis = section.optional("redis", |value| value.section(|section| redis(section, &limits)));
    match (redis?, embedded?) {
        (Some(redis), None) => Ok(Settings::Redis(Box::new(redis))),
        (None, Some(embedded)) => Ok(Settings::Embedded(embedded)),
        (Some(_), Some(_)) => Err(section.report(
            "embedded",
            "set either `embedded` or `redis`, not both; to move: `keygate state export` with one of them, \
             `keygate state import` with the other",
        )),
        (None, None) => Err(section.report("embedded", "is missing, and so is `redis`; give the one that is to serve")),
    }
}

fn embedded(section: &mut Section<'_>, limits: &Limits) -> Result<embedded::Settings, Reported> {
    let path = section.required("path", Value::path_of_file)?;
    Ok(embedded::Settings { path, quota: limits.quota, concurrent: limits.concurrent, plans: limits.plans.clone() })
}

/// Reads the block `state.redis`.
fn redis(section: &mut Section<'_>, limits: &Limits) -> Result<redis::Settings, Reported> {
    let url = section.required("url", url);
    let own = login(section);
    let sentinel_login = section.section("sentinel", login);
    let tls = section.optional("tls", |value| value.section(|section| Ok(ClientSettings::read(section))));
    let prefix = section.value_or("prefix", PREFIX.to_owned(), prefix);
    let (deadline, lease) = times(section);
    let max_loss = section.value_or("max_loss", lease, |value| value.duration(Duration::ZERO..=MAX_LOSS));
    let on_unavailable = on_unavailable(section);
    let durability = section.section("durability", |section| Ok(durability(section)));
    let url = url?;
    check_against_url(section, &url);
    let own = own?;
    let tls = tls?;
    Ok(redis::Settings {
        login: Login { user: own.user.or(url.login.user), password: own.password.or(url.login.password) },
        servers: url.servers,
        sentinel_login: sentinel_login?,
        database: url.database,
        tls: url.tls.then(|| tls.unwrap_or_default()),
        prefix,
        quota: limits.quota,
        concurrent: limits.concurrent,
        plans: limits.plans.clone(),
        deadline,
        lease,
        max_loss,
        on_unavailable,
        durability: durability?,
        clock: Clock::Server,
    })
}

/// Reads one url, or several that agree. A url may hold a password, so it is read as a secret.
fn url(value: &Value<'_>) -> Result<Url, Reported> {
    let mut merged: Option<Url> = None;
    value.one_or_list(|item| {
        let url = item.secret()?.expose().parse::<Url>();
        let added = url.and_then(|url| match &mut merged {
            Some(first) => first.add(url),
            None => {
                merged = Some(url);
                Ok(())
            }
        });
        added.map_err(|error: InvalidUrl| item.report(error))
    })?;
    merged.ok_or_else(|| value.report("is empty; give at least one url"))
}

/// Reports keys that contradict the url.
fn check_against_url(section: &Section<'_>, url: &Url) {
    for (name, given) in [("user", url.login.user.is_some()), ("password", url.login.password.is_some())] {
        if given && section.contains(name) {
            section.report(name, "is given twice, here and in `url`; remove one");
        }
    }
    if section.contains("tls") && !url.tls {
        section.report(
            "tls",
            "is given, and `url` is of a scheme without TLS; write rediss:// there, or remove the block",
        );
    }
    if section.contains("sentinel") && !matches!(url.servers, Servers::Sentinel { .. }) {
        section.report(
            "sentinel",
            "is given, and `url` names no sentinels; write redis+sentinel:// there, or remove the block",
        );
    }
}

fn login(section: &mut Section<'_>) -> Result<Login, Reported> {
    let user = section.optional("user", Value::text);
    let password = section.optional("password", Value::secret);
    Ok(Login { user: user?, password: password? })
}

/// Reads a prefix. Braces would decide the hash slot on a Cluster, and a colon ends the prefix, so it has neither.
fn prefix(value: &Value<'_>) -> Result<String, Reported> {
    let prefix = value.text()?;
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    if prefix.len() > MAX_PREFIX || !prefix.bytes().all(plain) {
        return value
            .reject(format_args!("`{prefix}` is not a prefix: 1 to {MAX_PREFIX} of letters, digits and . _ -"));
    }
    Ok(prefix)
}

/// Reads the deadline and the lease, and checks one against the other.
fn times(section: &mut Section<'_>) -> (Duration, Duration) {
    let least = Duration::from_millis(1);
    let most = Duration::from_secs(10);
    let deadline = section.value_or("deadline", DEADLINE, |value| value.duration(least..=most));
    let lease = section.value_or("lease", LEASE, |value| value.duration(seconds(1..=600)));
    if lease < deadline * DEADLINES_PER_LEASE {
        // Reported at the key that the file gives, with the value of the other.
        let (name, other, advice) = if section.contains("lease") {
            ("lease", WithUnit::Duration(deadline), "less than 4 times `deadline`")
        } else {
            ("deadline", WithUnit::Duration(lease), "more than a quarter of `lease`")
        };
        section.report(name, format_args!("is {advice} ({other}); make the lease longer, or the deadline shorter"));
    }
    (deadline, lease)
}

/// Value of `on_unavailable`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Deny,
    KnownKeys,
}

fn on_unavailable(section: &mut Section<'_>) -> OnUnavailable {
    let policies = [("deny", Policy::Deny), ("known_keys", Policy::KnownKeys)];
    let policy = section.optional("on_unavailable", |value| value.choice(&policies));
    let max_staleness = section.value_or("max_staleness", MAX_STALENESS, |value| value.duration(seconds(1..=3600)));
    section.removed("share", "is no setting: every gateway has its exact share; remove this line");
    // A policy with an error may have been meant as known_keys, so only a missing or a valid one contradicts.
    if matches!(policy, Ok(None | Some(Policy::Deny))) && section.contains("max_staleness") {
        section
            .report("max_staleness", "has no effect unless `on_unavailable` is known_keys; write that, or remove it");
    }
    match policy {
        Ok(Some(Policy::KnownKeys)) => OnUnavailable::KnownKeys { max_staleness },
        Ok(None | Some(Policy::Deny)) | Err(Reported { .. }) => OnUnavailable::Deny,
    }
}

fn durability(section: &mut Section<'_>) -> Durability {
    let least = Duration::from_millis(1);
    let most = Duration::from_secs(60);
    Durability {
        replicas: section.value_or("replicas", 0, |value| value.integer(0..=MAX_REPLICAS)),
        timeout: section.value_or("timeout", REPLICATION, |value| value.duration(least..=most)),
    }
}

fn seconds(range: RangeInclusive<u64>) -> RangeInclusive<Duration> {
    Duration::from_secs(*range.start())..=Duration::from_secs(*range.end())
}
