//! The block `state.redis`: the state that several gateways share.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::limits::Limits;
use super::tls;
use crate::settings::{Section, Value, WithUnit};
use crate::state::redis::{Clock, Durability, InvalidUrl, Login, OnUnavailable, Servers, Settings, Url};

/// The beginning of the names of all keys, unless another is given.
const PREFIX: &str = "keygate";
/// The longest prefix: it is part of every name.
const MAX_PREFIX: usize = 32;
/// How long a decision may take: many times what one takes, little enough for a client not to notice.
const DEADLINE: Duration = Duration::from_millis(50);
/// How long a gateway that is not heard of keeps its slots: no organization waits longer for those of a dead one.
const LEASE: Duration = Duration::from_secs(10);
/// Deadlines in a lease, at least: a gateway that was answered late must not lose slots that it holds.
const DEADLINES_PER_LEASE: u32 = 4;
/// How long ago Redis must have vouched for a key that is admitted without it.
const MAX_STALENESS: Duration = Duration::from_secs(60);
/// How long to wait for replicas.
const REPLICATION: Duration = Duration::from_secs(1);
/// More replicas than anybody waits for.
const MAX_REPLICAS: u32 = 16;

pub(super) fn redis(section: &mut Section<'_>, limits: Limits) -> Option<Settings> {
    let url = section.required("url", url);
    let own = login(section);
    let sentinel_login = section.section("sentinel", login);
    let tls = section.maybe("tls", |value| value.section(|section| Some(tls::client(section))));
    let prefix = section.optional("prefix", PREFIX.to_owned(), prefix);
    let (deadline, lease) = times(section);
    let on_unavailable = on_unavailable(section);
    let durability = section.section("durability", durability);
    let url = url?;
    check_against(section, &url);
    Some(Settings {
        login: Login { user: own.user.or(url.login.user), password: own.password.or(url.login.password) },
        servers: url.servers,
        sentinel_login: sentinel_login?,
        database: url.database,
        tls: url.tls.then(|| tls.unwrap_or_default()),
        prefix,
        quota: limits.quota,
        concurrent: limits.concurrent,
        deadline,
        lease,
        on_unavailable,
        durability: durability?,
        clock: Clock::Server,
    })
}

/// One url, or several that agree. Each may hold a password, and so is read as a secret.
fn url(value: &Value<'_>) -> Option<Url> {
    let mut all: Option<Url> = None;
    let read = value.one_or_list(|item| {
        let url = item.secret()?.expose().parse::<Url>();
        let added = url.and_then(|url| match &mut all {
            Some(first) => first.add(url),
            None => {
                all = Some(url);
                Ok(())
            }
        });
        added.map_or_else(|fault: InvalidUrl| item.reject(fault), Some)
    })?;
    if read.is_empty() { value.reject("is empty; give at least one url") } else { all }
}

/// What other keys say must go with the url.
fn check_against(section: &Section<'_>, url: &Url) {
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

fn login(section: &mut Section<'_>) -> Login {
    Login { user: section.maybe("user", Value::text), password: section.maybe("password", Value::secret) }
}

/// On a Cluster, what is in braces decides where a key is; a colon ends the prefix.
fn prefix(value: &Value<'_>) -> Option<String> {
    let prefix = value.text()?;
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    if prefix.len() > MAX_PREFIX || !prefix.bytes().all(plain) {
        return value
            .reject(format_args!("`{prefix}` is not a prefix: 1 to {MAX_PREFIX} of letters, digits and . _ -"));
    }
    Some(prefix)
}

/// The deadline and the lease.
fn times(section: &mut Section<'_>) -> (Duration, Duration) {
    let (least, most) = (Duration::from_millis(1), Duration::from_secs(10));
    let deadline = section.optional("deadline", DEADLINE, |value| value.duration(least..=most));
    let lease = section.optional("lease", LEASE, |value| value.duration(seconds(1..=600)));
    if lease < deadline * DEADLINES_PER_LEASE {
        let (name, other, advice) = if section.contains("lease") {
            ("lease", WithUnit::Duration(deadline), "less than 4 times `deadline`")
        } else {
            ("deadline", WithUnit::Duration(lease), "more than a quarter of `lease`")
        };
        section.report(name, format_args!("is {advice} ({other}); make the lease longer, or the deadline shorter"));
    }
    (deadline, lease)
}

fn on_unavailable(section: &mut Section<'_>) -> OnUnavailable {
    let policies = [("deny", false), ("known_keys", true)];
    let known_keys = section.maybe("on_unavailable", |value| value.choice(&policies));
    let max_staleness = section.optional("max_staleness", MAX_STALENESS, |value| value.duration(seconds(1..=3600)));
    let denies = known_keys == Some(false) || !section.contains("on_unavailable");
    if denies && section.contains("max_staleness") {
        section.report("max_staleness", "is of no use unless `on_unavailable` is known_keys; write that, or remove it");
    }
    if known_keys == Some(true) { OnUnavailable::KnownKeys { max_staleness } } else { OnUnavailable::Deny }
}

fn durability(section: &mut Section<'_>) -> Durability {
    let (least, most) = (Duration::from_millis(1), Duration::from_secs(60));
    Durability {
        replicas: section.optional("replicas", 0, |value| value.integer(0..=MAX_REPLICAS)),
        timeout: section.optional("timeout", REPLICATION, |value| value.duration(least..=most)),
    }
}

fn seconds(range: RangeInclusive<u64>) -> RangeInclusive<Duration> {
    Duration::from_secs(*range.start())..=Duration::from_secs(*range.end())
}
