//! Address of the client behind proxies: the trusted-proxy rule.

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

use crate::identity::{Peer, X_FORWARDED_FOR, X_FORWARDED_PROTO};

/// Networks of proxies whose `X-Forwarded-For` is trusted. Empty by default: then the peer is the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(pub Vec<IpNet>);

/// Client of a request.
///
/// - `X-Forwarded-For` is read only when the peer is trusted, from the right, and only as far as every hop is trusted:
///   the first address that is not trusted is the client. Entries left of it come from the client itself and are ignored.
/// - An entry that is not an address ends the walk at the last valid one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Address of the client.
    pub ip: IpAddr,
    /// Trusted hops from the client to the peer, in this order; the peer itself is the last.
    hops: Vec<IpAddr>,
}

impl TrustedProxies {
    fn trusts(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&ip))
    }
}

impl Client {
    /// Finds the client of a request that came over this connection.
    pub fn find(peer: &Peer, headers: &HeaderMap, trusted: &TrustedProxies) -> Self {
        let mut client = Self { ip: peer.address.ip().to_canonical(), hops: Vec::new() };
        if !trusted.trusts(client.ip) {
            return client;
        }
        for entry in entries(headers) {
            let Some(ip) = entry else { break };
            client.hops.push(client.ip);
            client.ip = ip;
            if !trusted.trusts(ip) {
                break;
            }
        }
        client.hops.reverse();
        client
    }

    /// Value of `X-Forwarded-For`: the client, then the trusted hops.
    pub fn forwarded_for(&self) -> HeaderValue {
        if self.hops.is_empty() {
            return text(self.ip.to_string());
        }
        let addresses: Vec<String> =
            std::iter::once(self.ip).chain(self.hops.iter().copied()).map(|ip| ip.to_string()).collect();
        text(addresses.join(", "))
    }

    /// Value of `Forwarded` (RFC 7239).
    pub fn forwarded(&self, host: Option<&HeaderValue>, proto: &str) -> HeaderValue {
        let node = match self.ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("\"[{ip}]\""),
        };
        let host = host.and_then(|host| host.to_str().ok()).filter(|host| !host.contains(['"', '\\']));
        text(match host {
            Some(host) => format!("for={node};host=\"{host}\";proto={proto}"),
            None => format!("for={node};proto={proto}"),
        })
    }

    /// Scheme of the request, `https` or `http`: by the word of a trusted peer, else by the connection.
    pub fn proto(&self, peer: &Peer, headers: &HeaderMap) -> &'static str {
        let forwarded = headers.get(X_FORWARDED_PROTO).filter(|_| !self.hops.is_empty());
        match forwarded.map(HeaderValue::as_bytes) {
            Some(b"https") => "https",
            Some(b"http") => "http",
            _ if peer.tls => "https",
            _ => "http",
        }
    }
}

/// Entries of all `X-Forwarded-For` fields, from the right; `None` for one that is not an address.
fn entries(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let fields: Vec<&HeaderValue> = headers.get_all(X_FORWARDED_FOR).into_iter().collect();
    fields.into_iter().rev().flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b',')).map(address)
}

/// Parses an address, with or without a port, with or without brackets.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry).ok()?.trim();
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
    let ip = bare.parse::<IpAddr>().ok();
    let ip = ip.or_else(|| entry.parse::<std::net::SocketAddr>().ok().map(|address| address.ip()));
    ip.map(|ip| ip.to_canonical())
}

fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).expect("addresses and received header text are valid in a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(peer: &str, fields: &[&str], trusted: &[&str]) -> Client {
        let peer = Peer { address: format!("{peer}:1").parse().unwrap(), tls: false };
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(X_FORWARDED_FOR, field.parse().unwrap());
        }
        let trusted = TrustedProxies(trusted.iter().map(|network| network.parse().unwrap()).collect());
        Client::find(&peer, &headers, &trusted)
    }

    #[test]
    fn client_is_the_peer_without_trust() {
        let client = find("192.0.2.1", &["203.0.113.9"], &[]);
        assert_eq!(client.ip, "192.0.2.1".parse::<IpAddr>().unwrap());
        assert_eq!(client.forwarded_for(), "192.0.2.1");
    }

    #[test]
    fn client_is_found_from_the_right() {
        let client = find("10.0.0.1", &["6.6.6.6, 203.0.113.9", "10.0.0.2:80"], &["10.0.0.0/8"]);
        assert_eq!(client.ip, "203.0.113.9".parse::<IpAddr>().unwrap());
        assert_eq!(client.forwarded_for(), "203.0.113.9, 10.0.0.2, 10.0.0.1");
    }

    #[test]
    fn invalid_entry_ends_the_walk() {
        let client = find("10.0.0.1", &["203.0.113.9, unknown, 10.0.0.2"], &["10.0.0.0/8"]);
        assert_eq!(client.ip, "10.0.0.2".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn ipv6_address_is_quoted() {
        let client = find("[2001:db8::1]", &[], &[]);
        assert_eq!(client.forwarded(None, "http"), "for=\"[2001:db8::1]\";proto=http");
    }
}
