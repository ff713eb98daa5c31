//! Check of the Redis that holds the state: version, eviction, memory, persistence, latency and clock. Replication and
//! access are judged by [`super::redis_replication`] and [`super::redis_security`].

use std::time::Duration;

use super::client::in_full;
use super::environment::Environment;
use super::finding::{Findings, rounded};
use super::redis_replication::judge_replication;
use super::redis_security::judge_access;
use platform::settings::WithUnit;
use state::Settings as State;
use state::redis::{self, ServerDescription, Servers, Settings};

/// Difference of clocks, in microseconds, that is worth a look.
const CLOCK_DIFFERENCE: u64 = 1_000_000;

/// Checks the servers.
pub(super) async fn check(environment: &Environment, findings: &mut Findings) {
    let State::Redis(settings) = &environment.config.state else { return };
    let servers = match redis::inspect(settings).await {
        Ok(servers) => servers,
        Err(error) => {
            let found = in_full(&error);
            return findings.error(
                "Redis",
                found,
                "check state.redis.url and the sentinels; nothing else was looked at",
            );
        }
    };
    judge_sentinels(&settings.servers, findings);
    for server in servers {
        let name = format!("Redis {}", server.address);
        match server.result {
            Ok(description) => judge(&name, &description, settings, findings),
            Err(error) => {
                findings.error(name, in_full(&error), "start it, or correct state.redis (url, user, password, tls)")
            }
        }
    }
}

/// Judges everything about a server.
fn judge(name: &str, server: &ServerDescription, settings: &Settings, findings: &mut Findings) {
    judge_version(name, server, findings);
    judge_memory(name, server, findings);
    judge_settings(name, server, findings);
    judge_persistence(name, server, findings);
    judge_replication(name, server, settings.durability.replicas, findings);
    judge_access(name, server, settings, findings);
    judge_latency(name, server.round_trip, settings.deadline, findings);
    judge_clock(name, server.clock_offset, server.round_trip, findings);
}

fn judge_sentinels(servers: &Servers, findings: &mut Findings) {
    if let Servers::Sentinel { sentinels, .. } = servers
        && sentinels.len() < 3
    {
        let advice = "run three or more, and list all of them: with less, the loss of one prevents a failover";
        findings.warning("sentinels", format!("{} in state.redis.url", sentinels.len()), advice);
    }
}

fn judge_version(name: &str, server: &ServerDescription, findings: &mut Findings) {
    let version = server.field("redis_version");
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    let subject = format!("{name}: version");
    match major {
        0..7 => findings.error(subject, version, "keygate needs Redis 7.0 or newer"),
        _ => findings.ok(subject, version),
    }
}

fn judge_memory(name: &str, server: &ServerDescription, findings: &mut Findings) {
    let subject = format!("{name}: maxmemory-policy");
    match server.field("maxmemory_policy") {
        "noeviction" => findings.ok(subject, "noeviction"),
        policy => {
            let advice = "run `redis-cli CONFIG SET maxmemory-policy noeviction`, and set it in redis.conf: eviction \
                deletes keys and counters";
            findings.error(subject, policy, advice);
        }
    }
    let used = server.number("used_memory");
    let max = server.number("maxmemory");
    let subject = format!("{name}: maxmemory");
    let found = format!("{} used, maxmemory {}", rounded(used), rounded(max));
    if max == 0 {
        let advice = "set maxmemory to less than the machine's memory: a write is refused then, instead of Redis being \
            killed";
        findings.note(subject, "no limit", advice);
    } else if used > max / 20 * 19 {
        findings.error(subject, found, "raise maxmemory now: a full Redis refuses all requests");
    } else if used > max / 5 * 4 {
        findings.warning(subject, found, "raise maxmemory, or move other data elsewhere");
    } else {
        findings.ok(subject, found);
    }
}

/// Says which settings were not looked at, where the user may not read them.
fn judge_settings(name: &str, server: &ServerDescription, findings: &mut Findings) {
    if server.settings.is_none() {
        let advice = "appendfsync, save, min-replicas-to-write and protected-mode were not looked at; to have them \
            checked, add +config|get to the user's rights";
        findings.note(format!("{name}: settings"), "CONFIG GET is not permitted", advice);
    }
}

/// Judges persistence: Redis holds organizations, users and keys, not only counters.
fn judge_persistence(name: &str, server: &ServerDescription, findings: &mut Findings) {
    let subject = format!("{name}: persistence");
    let is_logged = server.field("aof_enabled") == "1";
    let saves = server.setting("save").map(|save| !save.is_empty());
    let failed = |field| !matches!(server.field(field), "" | "ok");
    if is_logged && failed("aof_last_write_status") || failed("rdb_last_bgsave_status") {
        findings.error(subject, "the last write to disk failed", "see the log of Redis: its disk is full, or failing");
        return;
    }
    match (is_logged, server.setting("appendfsync"), saves) {
        (true, Some("no"), _) => {
            let advice = "set appendfsync everysec: the system decides when keys and revocations reach the disk";
            findings.warning(subject, "append-only file, appendfsync no", advice);
        }
        (true, fsync, _) => {
            findings.ok(subject, format!("append-only file, appendfsync {}", fsync.unwrap_or("unknown")))
        }
        (false, _, Some(true)) => {
            let advice = "set appendonly yes: a restart undoes what was changed since the last snapshot, keys among it";
            findings.warning(subject, "snapshots only", advice);
        }
        (false, _, Some(false)) => {
            let advice = "set appendonly yes: a restart of Redis loses all organizations, users and keys";
            findings.error(subject, "none", advice);
        }
        (false, _, None) => {
            let advice =
                "set appendonly yes; snapshots alone undo minutes of changes, and CONFIG GET is not permitted here";
            findings.warning(subject, "no append-only file", advice);
        }
    }
}

fn judge_latency(name: &str, round_trip: Duration, deadline: Duration, findings: &mut Findings) {
    let subject = format!("{name}: round trip");
    let micros = round_trip.as_micros();
    let found = format!(
        "{}.{} ms, state.redis.deadline is {}",
        micros / 1000,
        micros % 1000 / 100,
        WithUnit::Duration(deadline)
    );
    if round_trip > deadline / 2 {
        findings.warning(
            subject,
            found,
            "place gateways near Redis, or raise state.redis.deadline: each decision waits for it",
        );
    } else {
        findings.ok(subject, found);
    }
}

fn judge_clock(name: &str, offset: i64, round_trip: Duration, findings: &mut Findings) {
    let subject = format!("{name}: clock");
    let uncertainty = u64::try_from(round_trip.as_micros() / 2).unwrap_or(u64::MAX);
    let found = format!("{:+} ms from this machine's", offset / 1000);
    let difference = offset.unsigned_abs().saturating_sub(uncertainty);
    if difference > redis::MAX_CLOCK_DIFFERENCE {
        let advice = "synchronize both by NTP: more than a minute; a gateway on this machine disables no unused keys, \
                      and its audit records have another time";
        findings.error(subject, found, advice);
    } else if difference > CLOCK_DIFFERENCE {
        let advice = "synchronize both by NTP: decisions and management follow the clock of Redis, records of uses \
                      that of the gateway";
        findings.warning(subject, found, advice);
    } else {
        findings.ok(subject, found);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::finding::Severity::{self, Error, Note, Warning};
    use super::*;

    /// A description with these fields and settings.
    pub(crate) fn server(info: &[(&str, &str)], settings: Option<&[(&str, &str)]>) -> ServerDescription {
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        ServerDescription { info: map(info), settings: settings.map(map), ..ServerDescription::default() }
    }

    /// Severity of the first finding of a judgement.
    pub(crate) fn worst(judge: impl FnOnce(&mut Findings)) -> Severity {
        let mut findings = Findings::new("redis");
        judge(&mut findings);
        findings.into_list().into_iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    #[test]
    fn less_than_three_sentinels_are_a_warning() {
        let judged = |count: u16| {
            let at = |port| redis::Address { host: "a".into(), port };
            let servers = Servers::Sentinel { sentinels: (0..count).map(at).collect(), service: "keygate".into() };
            worst(|findings| judge_sentinels(&servers, findings))
        };
        assert_eq!([1, 2, 3].map(judged), [Warning, Warning, Severity::Ok]);
    }

    #[test]
    fn memory_and_version_are_judged() {
        let policy = |policy, used, max| {
            let server = server(&[("maxmemory_policy", policy), ("used_memory", used), ("maxmemory", max)], None);
            worst(|findings| judge_memory("r", &server, findings))
        };
        assert_eq!(policy("noeviction", "10", "100"), Severity::Ok);
        assert_eq!(policy("noeviction", "10", "0"), Note);
        assert_eq!(policy("noeviction", "81", "100"), Warning);
        assert_eq!(policy("noeviction", "96", "100"), Error);
        assert_eq!(policy("allkeys-lru", "10", "100"), Error);
        assert_eq!(policy("", "10", "100"), Error);
        for (version, expected) in [("6.2.14", Error), ("7.0.0", Severity::Ok), ("8.2.1", Severity::Ok), ("", Error)] {
            let server = server(&[("redis_version", version)], None);
            assert_eq!(worst(|findings| judge_version("r", &server, findings)), expected, "{version}");
        }
    }

    #[test]
    fn settings_that_may_not_be_read_are_a_note() {
        assert_eq!(worst(|findings| judge_settings("r", &server(&[], None), findings)), Note);
        assert_eq!(worst(|findings| judge_settings("r", &server(&[], Some(&[])), findings)), Severity::Ok);
    }

    #[test]
    fn persistence_is_judged() {
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let cases: &[(Pairs<'_>, Option<Pairs<'_>>, Severity)] = &[
            (&[("aof_enabled", "1")], Some(&[("appendfsync", "everysec")]), Severity::Ok),
            (&[("aof_enabled", "1")], Some(&[("appendfsync", "no")]), Warning),
            (&[("aof_enabled", "1")], None, Severity::Ok),
            (&[("aof_enabled", "1"), ("aof_last_write_status", "err")], None, Error),
            (&[("aof_enabled", "0")], Some(&[("save", "3600 1")]), Warning),
            (&[("aof_enabled", "0"), ("rdb_last_bgsave_status", "err")], Some(&[("save", "3600 1")]), Error),
            (&[("aof_enabled", "0")], Some(&[("save", "")]), Error),
            (&[("aof_enabled", "0")], None, Warning),
        ];
        for (info, settings, expected) in cases {
            let server = server(info, *settings);
            assert_eq!(worst(|findings| judge_persistence("r", &server, findings)), *expected, "{info:?} {settings:?}");
        }
    }

    #[test]
    fn latency_and_clock_are_judged() {
        let millis = Duration::from_millis;
        for (round_trip, expected) in [(1, Severity::Ok), (25, Severity::Ok), (26, Warning)] {
            assert_eq!(worst(|f| judge_latency("r", millis(round_trip), millis(50), f)), expected, "{round_trip}");
        }
        let cases = [(0, 0, Severity::Ok), (-1_000_000, 0, Severity::Ok), (-1_000_001, 0, Warning)];
        for (offset, round_trip, expected) in cases.into_iter().chain([
            (1_400_000, 1000, Severity::Ok),
            (1_600_000, 1000, Warning),
            (-60_000_001, 0, Error),
        ]) {
            assert_eq!(worst(|f| judge_clock("r", offset, millis(round_trip), f)), expected, "{offset}");
        }
    }
}
