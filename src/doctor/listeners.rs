//! Check of the listeners: an admin listener that strangers reach, and a dashboard on the API's host.

use std::net::{IpAddr, UdpSocket};

use super::decisions;
use super::environment::Environment;
use super::finding::Findings;
use crate::config::{Config, ListenerRole};

/// Checks the listeners of the configuration.
pub(super) fn check(environment: &Environment, findings: &mut Findings) {
    let config = &environment.config;
    judge_admin(config.admin.address.ip(), main_address(), findings);
    judge_dashboard(&facts(config), findings);
    judge_plain_listeners(config, findings);
    decisions::judge(&config.listen, findings);
}

/// The address of this machine on its way to the internet; none without one. Sends nothing: a UDP socket that is
/// connected only gets its route.
fn main_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn judge_admin(address: IpAddr, main_address: Option<IpAddr>, findings: &mut Findings) {
    let subject = "admin.address";
    let advice = "bind it to a private address, or let a firewall or a NetworkPolicy admit Prometheus and probes only";
    let exposed = if address.is_unspecified() { main_address } else { Some(address) };
    match exposed {
        _ if address.is_loopback() => findings.ok(subject, format!("{address}: this machine only")),
        Some(exposed) if is_public(exposed) => {
            findings.warning(subject, format!("{address}: metrics and readiness are open to the internet"), advice);
        }
        _ => findings.note(subject, format!("{address}: open to the network of this machine"), advice),
    }
}

/// Returns whether an address is routed on the internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            // 100.64.0.0/10 is for carriers and clouds (RFC 6598).
            let is_shared = address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 0x40;
            !(address.is_private() || address.is_loopback() || address.is_link_local() || is_shared)
        }
        IpAddr::V6(address) => !(address.is_unique_local() || address.is_loopback() || address.is_unicast_link_local()),
    }
}

/// Facts about the dashboard.
struct DashboardFacts<'a> {
    /// Its origin; none without a dashboard.
    origin: Option<&'a str>,
    /// Origin of the API, where it is another.
    api_origin: Option<&'a str>,
    /// A listener serves both.
    shares_listener: bool,
}

fn facts(config: &Config) -> DashboardFacts<'_> {
    DashboardFacts {
        origin: config.session.as_ref().map(|session| &*session.origin),
        api_origin: config
            .session
            .as_ref()
            .filter(|session| session.has_api_origin())
            .and_then(|s| s.api_origin.as_deref()),
        shares_listener: config.listen.iter().any(|listener| listener.role == ListenerRole::All),
    }
}

fn judge_dashboard(facts: &DashboardFacts<'_>, findings: &mut Findings) {
    let Some(origin) = facts.origin else { return };
    let subject = "origin of the dashboard";
    let advice = "give the dashboard a listener with `serves: dashboard` and a host of its own, and set session.api \
                  (see docs/dashboard.md): scripts of the upstream's pages can act as the signed-in user otherwise";
    match facts.api_origin {
        _ if facts.shares_listener => findings.warning(subject, format!("{origin} is also the API's host"), advice),
        Some(api) if host(api) == host(origin) => {
            findings.warning(subject, format!("{origin} and {api} differ by the port only, and share cookies"), advice);
        }
        _ => findings.ok(subject, format!("{origin}, with a listener of its own")),
    }
}

/// Host of an origin, without scheme and port.
pub(super) fn host(origin: &str) -> &str {
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(host, _)| host),
    }
}

/// Judges listeners of clients without TLS, over which keys travel readably.
fn judge_plain_listeners(config: &Config, findings: &mut Findings) {
    for listener in config.listen.iter().filter(|listener| listener.tls.is_none() && listener.decisions.is_none()) {
        let address = listener.address;
        if !address.ip().is_loopback() && listener.proxy_protocol.is_empty() && config.trusted_proxies.is_empty() {
            let advice = "add `tls`, or terminate TLS in a proxy before it, and list that in trusted_proxies: keys \
                          travel readably";
            findings.warning(format!("listener {address}"), "plain HTTP, and no proxy is trusted", advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{self, Note, Ok, Warning};
    use super::*;

    fn severity(judge: impl FnOnce(&mut Findings)) -> Severity {
        let mut findings = Findings::new("listeners");
        judge(&mut findings);
        findings.into_list()[0].severity
    }

    #[test]
    fn admin_listener_is_judged_by_its_address() {
        let cases = [
            ("127.0.0.1", Some("203.0.113.7"), Ok),
            ("::1", None, Ok),
            ("10.1.2.3", Some("203.0.113.7"), Note),
            ("203.0.113.7", None, Warning),
            ("0.0.0.0", Some("203.0.113.7"), Warning),
            ("0.0.0.0", Some("10.1.2.3"), Note),
            ("0.0.0.0", Some("100.100.1.1"), Note),
            ("::", None, Note),
            ("2001:db8::1", None, Warning),
            ("fd00::1", None, Note),
            ("::ffff:203.0.113.7", None, Warning),
        ];
        for (address, main, expected) in cases {
            let main = main.map(|main| main.parse().unwrap());
            assert_eq!(
                severity(|findings| judge_admin(address.parse().unwrap(), main, findings)),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn plain_listener_is_judged_by_its_address_and_the_proxies_before_it() {
        let judged = |listener: &str, blocks: &str| {
            let text = format!(
                "listen: [{{ {listener} }}]\n\
                 admin: {{ socket: admin.sock, address: 127.0.0.1:1 }}\n\
                 upstream: {{ endpoints: ['http://127.0.0.1:8081'] }}\n\
                 state: {{ embedded: {{ path: state.db }} }}\n\
                 audit: {{ path: audit }}\n{blocks}"
            );
            let mut findings = Findings::new("listeners");
            let config = Config::parse(std::path::Path::new("keygate.yaml"), &text).unwrap();
            judge_plain_listeners(&config, &mut findings);
            findings.problems().into_iter().map(|(severity, _)| severity).collect::<Vec<_>>()
        };
        assert_eq!(judged("address: 0.0.0.0:8080", ""), [Warning]);
        assert_eq!(judged("address: 127.0.0.1:8080", ""), []);
        assert_eq!(judged("address: 0.0.0.0:8080", "trusted_proxies: [10.0.0.0/8]\n"), []);
        assert_eq!(judged("address: 0.0.0.0:8080, proxy_protocol: [10.0.0.0/8]", ""), []);
    }

    #[test]
    fn dashboard_is_judged_by_its_host() {
        let judged = |api_origin, shares_listener| {
            let facts = DashboardFacts { origin: Some("https://keys.example.com"), api_origin, shares_listener };
            severity(|findings| judge_dashboard(&facts, findings))
        };
        assert_eq!(judged(None, true), Warning);
        assert_eq!(judged(Some("https://api.example.com"), true), Warning);
        assert_eq!(judged(Some("https://api.example.com"), false), Ok);
        assert_eq!(judged(Some("https://keys.example.com:8443"), false), Warning);
    }

    #[test]
    fn host_of_an_origin_has_no_port() {
        for (origin, expected) in [
            ("https://a.example", "a.example"),
            ("http://a:1", "a"),
            ("https://[::1]:8443", "::1"),
            ("http://[::1]", "::1"),
        ] {
            assert_eq!(host(origin), expected);
        }
    }
}
