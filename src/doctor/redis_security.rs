//! Judgement of the access to a Redis server: who can connect to it can admit and revoke every key.

use std::net::IpAddr;

use super::finding::Findings;
use state::redis::{Address, ServerDescription, Servers, Settings};

/// Protection of the connections, as both sides have it.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// All servers are on this machine.
    is_local: bool,
    has_tls: bool,
    /// keygate logs in.
    has_password: bool,
    /// `protected-mode no`: the server accepts connections of other hosts without a password.
    is_unprotected: bool,
}

/// Judges encryption and authentication.
pub(super) fn judge_access(name: &str, server: &ServerDescription, settings: &Settings, findings: &mut Findings) {
    let access = Access {
        is_local: addresses(&settings.servers).iter().all(is_local),
        has_tls: settings.tls.is_some(),
        has_password: settings.login.password.is_some(),
        is_unprotected: server.setting("protected-mode") == Some("no"),
    };
    judge(name, access, findings);
}

fn addresses(servers: &Servers) -> &[Address] {
    match servers {
        Servers::Single(address) => std::slice::from_ref(address),
        Servers::Sentinel { sentinels, .. } => sentinels,
        Servers::Cluster(nodes) => nodes,
    }
}

fn is_local(address: &Address) -> bool {
    address.host == "localhost" || address.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn judge(name: &str, access: Access, findings: &mut Findings) {
    let subject = format!("{name}: encryption");
    match access {
        Access { has_tls: true, .. } => findings.ok(subject, "TLS"),
        Access { is_local: true, .. } => findings.ok(subject, "none, on this machine"),
        _ => {
            let advice = "use rediss:// with state.redis.tls: who can read or change this traffic can admit any key";
            findings.warning(subject, "none, over the network", advice);
        }
    }
    let subject = format!("{name}: authentication");
    let advice = "create an ACL user with the rights that config/keygate.yaml lists, and give state.redis.user and \
        password; bind Redis to the addresses that gateways use";
    match access {
        Access { has_password: true, .. } => findings.ok(subject, "with a password"),
        Access { is_unprotected: true, .. } => {
            findings.error(
                subject,
                "none, and protected-mode is off: every host that reaches it has all rights",
                advice,
            );
        }
        Access { is_local: true, .. } => {
            findings.note(subject, "none: every process of this machine has all rights", advice);
        }
        _ => findings.warning(subject, "none, over the network", advice),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{self, Error, Note, Warning};
    use super::super::redis::tests::worst;
    use super::*;

    #[test]
    fn access_is_judged() {
        let cases = [
            // local, TLS, password, unprotected
            ((true, false, true, false), Severity::Ok),
            ((true, false, false, false), Note),
            ((true, false, false, true), Error),
            ((false, true, true, true), Severity::Ok),
            ((false, false, true, false), Warning),
            ((false, true, false, false), Warning),
            ((false, true, false, true), Error),
        ];
        for ((is_local, has_tls, has_password, is_unprotected), expected) in cases {
            let access = Access { is_local, has_tls, has_password, is_unprotected };
            assert_eq!(worst(|findings| judge("r", access, findings)), expected, "{access:?}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_local() {
        let at = |host: &str| Address { host: host.into(), port: 6379 };
        assert!(["localhost", "127.0.0.2", "::1"].map(at).iter().all(is_local));
        assert!(!["redis", "10.0.0.1", "localhost.example"].map(at).iter().any(is_local));
    }
}
