//! Address of the client behind proxies: the trusted-proxy rule, and the lines of the fields that name the client.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use http::header::{FORWARDED, VIA};
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

use domain::field_lines::{FieldLines, LineBuffer};
use domain::identity::{Peer, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use domain::value_text::push_address;

/// Bytes of a host whose `Forwarded` is kept for the next request: a domain name has at most 253, a port five.
const MAX_KEPT_HOST: usize = 259;
/// Bytes of the text of an address.
const MAX_ADDRESS: usize = 45;

/// Networks of proxies whose `X-Forwarded-For` is trusted. Empty by default: then the peer is the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(pub Vec<IpNet>);

/// Client of a request.
///
/// - `X-Forwarded-For` is read only when the peer is trusted, from the right, and only as far as every hop is
///   trusted: the first address that is not trusted is the client. Entries left of it come from the client
///   itself and are ignored.
/// - An entry that is not an address ends the walk at the last valid one.
/// - The lines of its fields are made once. Clones share them.
#[derive(Clone, Debug)]
pub struct Client {
    /// Address of the client.
    pub ip: IpAddr,
    /// Trusted hops from the client to the peer, in this order; the peer itself is the last.
    hops: Vec<IpAddr>,
    /// Those of the last request.
    origin: Rc<RefCell<Option<OriginLines>>>,
}

/// Clients of one connection. Without a trusted proxy they are all the same; with one, often the one
/// of the request before.
#[derive(Debug)]
pub struct ConnectionClients(RefCell<Client>);

/// Lines of the fields that say where a request came from, and what they were made of beside the client.
#[derive(Debug)]
struct OriginLines {
    host: Option<HeaderValue>,
    proto: &'static str,
    via: &'static str,
    lines: FieldLines,
}

impl TrustedProxies {
    /// Returns whether an address is that of a trusted proxy.
    pub fn trusts(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&ip))
    }
}

impl ConnectionClients {
    /// Clients of a connection from this peer.
    pub fn new(peer: &Peer) -> Self {
        Self(RefCell::new(Client::new(peer.address.ip().to_canonical(), Vec::new())))
    }

    /// Finds the client of a request that came over this connection.
    pub fn find(&self, peer: &Peer, headers: &HeaderMap, trusted: &TrustedProxies) -> Client {
        let Walk { ip, hops, .. } = walk(peer, headers, trusted);
        self.keep(ip, hops)
    }

    /// Finds the client of a request that another proxy describes over this connection; none when an address that
    /// decides about it cannot be read: the address of a proxy is not that of its client.
    pub fn find_described(&self, peer: &Peer, headers: &HeaderMap, trusted: &TrustedProxies) -> Option<Client> {
        let Walk { ip, hops, is_cut } = walk(peer, headers, trusted);
        (!is_cut).then(|| self.keep(ip, hops))
    }

    /// The client, with the lines of the last one where it is the same.
    fn keep(&self, ip: IpAddr, hops: Vec<IpAddr>) -> Client {
        let mut last = self.0.borrow_mut();
        if (last.ip, &last.hops) != (ip, &hops) {
            *last = Client::new(ip, hops);
        }
        last.clone()
    }
}

impl Client {
    /// Finds the client of a request that came over a connection from this peer.
    pub fn find(peer: &Peer, headers: &HeaderMap, trusted: &TrustedProxies) -> Self {
        let Walk { ip, hops, .. } = walk(peer, headers, trusted);
        Self::new(ip, hops)
    }

    /// Finds the client of a request that another proxy describes, and that came from this peer; none when an address
    /// that decides about it cannot be read.
    pub fn find_described(peer: &Peer, headers: &HeaderMap, trusted: &TrustedProxies) -> Option<Self> {
        let Walk { ip, hops, is_cut } = walk(peer, headers, trusted);
        (!is_cut).then(|| Self::new(ip, hops))
    }

    fn new(ip: IpAddr, hops: Vec<IpAddr>) -> Self {
        Self { ip, hops, origin: Rc::default() }
    }

    /// Appends the lines of `X-Forwarded-For`, `X-Forwarded-Proto`, `Forwarded` (RFC 7239), `X-Forwarded-Host` and
    /// `Via`.
    pub(super) fn push_origin(
        &self,
        lines: &mut LineBuffer,
        host: Option<&HeaderValue>,
        proto: &'static str,
        via: &'static str,
    ) {
        let mut last = self.origin.borrow_mut();
        match &*last {
            Some(last) if last.is_of(host, proto, via) => lines.append(&last.lines),
            _ => {
                let new = FieldLines::of(|lines| self.write_origin(lines, host, proto, via));
                lines.append(&new);
                *last = OriginLines::kept(host, proto, via, new);
            }
        }
    }

    fn write_origin(&self, lines: &mut LineBuffer, host: Option<&HeaderValue>, proto: &str, via: &str) {
        lines.push(&X_FORWARDED_FOR, &forwarded_for(self.ip, &self.hops));
        lines.push(&X_FORWARDED_PROTO, proto.as_bytes());
        lines.push(&FORWARDED, &forwarded(self.ip, host, proto));
        if let Some(host) = host {
            lines.push(&X_FORWARDED_HOST, host.as_bytes());
        }
        lines.push(&VIA, via.as_bytes());
    }

    /// Scheme of the request: by the word of a trusted peer, else by the connection.
    pub fn proto(&self, peer: &Peer, headers: &HeaderMap) -> Proto {
        let of_connection = if peer.tls.is_some() { "https" } else { "http" };
        match self.forwarded_proto(headers) {
            None => Proto { name: of_connection, is_unknown: false },
            Some(Ok(name)) => Proto { name, is_unknown: false },
            Some(Err(UnknownProto)) => Proto { name: of_connection, is_unknown: true },
        }
    }

    /// Scheme by the word of a trusted peer; none where there is no such peer, or it says nothing.
    fn forwarded_proto(&self, headers: &HeaderMap) -> Option<Result<&'static str, UnknownProto>> {
        // Without a hop there is no trusted peer, whose word would count.
        let values = (!self.hops.is_empty()).then(|| headers.get_all(X_FORWARDED_PROTO))?;
        let mut words = values.into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(proto_of);
        let first = words.next()?;
        Some(if words.all(|word| word == first) { first } else { Err(UnknownProto) })
    }
}

/// Scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proto {
    /// `https` or `http`.
    pub name: &'static str,
    /// True if a trusted peer names another one, or several that differ: then it is that of the connection.
    pub is_unknown: bool,
}

/// A word that names neither HTTP nor HTTPS.
#[derive(Clone, Copy, PartialEq, Eq)]
struct UnknownProto;

/// The scheme that a word of `X-Forwarded-Proto` means: some proxies name that of a WebSocket.
fn proto_of(word: &[u8]) -> Result<&'static str, UnknownProto> {
    let is_one_of = |names: [&str; 2]| names.iter().any(|name| word.trim_ascii().eq_ignore_ascii_case(name.as_bytes()));
    if is_one_of(["https", "wss"]) {
        Ok("https")
    } else if is_one_of(["http", "ws"]) {
        Ok("http")
    } else {
        Err(UnknownProto)
    }
}

impl OriginLines {
    /// The lines as they are kept; none when the host is longer than any that exists. A copy of the host: the received
    /// one is a part of the whole head, which would be kept with it.
    fn kept(host: Option<&HeaderValue>, proto: &'static str, via: &'static str, lines: FieldLines) -> Option<Self> {
        let host = match host {
            None => None,
            Some(host) if host.len() > MAX_KEPT_HOST => return None,
            Some(host) => Some(HeaderValue::from_bytes(host.as_bytes()).ok()?),
        };
        Some(Self { host, proto, via, lines })
    }

    fn is_of(&self, host: Option<&HeaderValue>, proto: &str, via: &str) -> bool {
        self.host.as_ref() == host && self.proto == proto && self.via == via
    }
}

/// Address of the client, and the trusted hops from there to the peer.
struct Walk {
    ip: IpAddr,
    hops: Vec<IpAddr>,
    /// True if an entry that is not an address ended the walk: the client is the last hop, for want of a better.
    is_cut: bool,
}

/// Walks from the peer to the client.
fn walk(peer: &Peer, headers: &HeaderMap, trusted: &TrustedProxies) -> Walk {
    let mut walk = Walk { ip: peer.address.ip().to_canonical(), hops: Vec::new(), is_cut: false };
    if !trusted.trusts(walk.ip) {
        return walk;
    }
    for entry in entries(headers) {
        let Some(ip) = entry else {
            walk.is_cut = true;
            break;
        };
        walk.hops.push(walk.ip);
        walk.ip = ip;
        if !trusted.trusts(ip) {
            break;
        }
    }
    walk.hops.reverse();
    walk
}

/// Text of `X-Forwarded-For`: the client, then the trusted hops.
fn forwarded_for(client: IpAddr, hops: &[IpAddr]) -> Vec<u8> {
    let mut text = Vec::with_capacity(MAX_ADDRESS);
    push_address(&mut text, client);
    for hop in hops {
        text.extend_from_slice(b", ");
        push_address(&mut text, *hop);
    }
    text
}

/// Text of `Forwarded`.
fn forwarded(client: IpAddr, host: Option<&HeaderValue>, proto: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(2 * MAX_ADDRESS + host.map_or(0, HeaderValue::len));
    text.extend_from_slice(b"for=");
    match client {
        IpAddr::V4(_) => push_address(&mut text, client),
        IpAddr::V6(_) => {
            text.extend_from_slice(b"\"[");
            push_address(&mut text, client);
            text.extend_from_slice(b"]\"");
        }
    }
    if let Some(host) = host.and_then(|host| host.to_str().ok()).filter(|host| !host.contains(['"', '\\'])) {
        text.extend_from_slice(b";host=\"");
        text.extend_from_slice(host.as_bytes());
        text.push(b'"');
    }
    text.extend_from_slice(b";proto=");
    text.extend_from_slice(proto.as_bytes());
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    fn find(peer: &str, fields: &[&str], trusted: &[&str]) -> Client {
        let peer = Peer { address: format!("{peer}:1").parse().unwrap(), tls: None, certificate: None };
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(X_FORWARDED_FOR, field.parse().unwrap());
        }
        let trusted = TrustedProxies(trusted.iter().map(|network| network.parse().unwrap()).collect());
        Client::find(&peer, &headers, &trusted)
    }

    fn origin(client: &Client, host: Option<&HeaderValue>, proto: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        FieldLines::of(|lines| client.push_origin(lines, host, proto, "1.1 keygate")).write_to(&mut headers);
        headers
    }

    #[test]
    fn client_is_the_peer_without_trust() {
        let client = find("192.0.2.1", &["203.0.113.9"], &[]);
        assert_eq!(client.ip, "192.0.2.1".parse::<IpAddr>().unwrap());
        assert_eq!(origin(&client, None, "http")[X_FORWARDED_FOR], "192.0.2.1");
    }

    #[test]
    fn client_is_found_from_the_right() {
        let client = find("10.0.0.1", &["6.6.6.6, 203.0.113.9", "10.0.0.2:80"], &["10.0.0.0/8"]);
        assert_eq!(client.ip, "203.0.113.9".parse::<IpAddr>().unwrap());
        assert_eq!(origin(&client, None, "http")[X_FORWARDED_FOR], "203.0.113.9, 10.0.0.2, 10.0.0.1");
    }

    #[test]
    fn invalid_entry_ends_the_walk() {
        let client = find("10.0.0.1", &["203.0.113.9, unknown, 10.0.0.2"], &["10.0.0.0/8"]);
        assert_eq!(client.ip, "10.0.0.2".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn described_client_has_an_address_that_can_be_read() {
        let peer = Peer { address: "10.0.0.1:1".parse().unwrap(), tls: None, certificate: None };
        let trusted = TrustedProxies(vec!["10.0.0.0/8".parse().unwrap()]);
        let described = |chain: &str| {
            let headers = HeaderMap::from_iter([(X_FORWARDED_FOR, chain.parse().unwrap())]);
            let clients = ConnectionClients::new(&peer);
            let found =
                [Client::find_described(&peer, &headers, &trusted), clients.find_described(&peer, &headers, &trusted)];
            let [client, kept] = found.map(|client| client.map(|client| client.ip.to_string()));
            assert_eq!(client, kept, "{chain}");
            client
        };
        for chain in ["unknown", "", "unix:", "203.0.113.9,", "203.0.113.9, unknown, 10.0.0.2", "a, 10.0.0.2:80"] {
            assert_eq!(described(chain), None, "{chain:?}");
        }
        for (chain, client) in [("unknown, 203.0.113.9", "203.0.113.9"), ("10.0.0.3, 10.0.0.2", "10.0.0.3")] {
            assert_eq!(described(chain).as_deref(), Some(client), "{chain:?}");
        }
    }

    #[test]
    fn scheme_is_the_one_on_which_the_words_of_a_trusted_proxy_agree() {
        let peer = Peer { address: "10.0.0.1:1".parse().unwrap(), tls: None, certificate: None };
        let proto = |trusted: &[&str], words: &[&str]| {
            let client = find("10.0.0.1", &["203.0.113.9"], trusted);
            let headers = words.iter().map(|word| (X_FORWARDED_PROTO, word.parse().unwrap())).collect();
            let Proto { name, is_unknown } = client.proto(&peer, &headers);
            (name, is_unknown)
        };
        let trusted = |words: &[&str]| proto(&["10.0.0.0/8"], words);
        for words in [&["https"][..], &["wss"], &["HTTPS"], &["https, wss"], &["https", "WSS"], &[" https"]] {
            assert_eq!(trusted(words), ("https", false), "{words:?}");
        }
        for words in [&["http"][..], &["ws"], &["http, HTTP"], &[]] {
            assert_eq!(trusted(words), ("http", false), "{words:?}");
        }
        for words in [&["https, http"][..], &["https", "http"], &["h2"], &[""], &["https,"]] {
            assert_eq!(trusted(words), ("http", true), "{words:?}");
        }
        assert_eq!(proto(&[], &["https"]), ("http", false), "the word of a client");
    }

    #[test]
    fn values_are_those_of_the_request_also_when_an_earlier_one_had_others() {
        let peer = Peer { address: "10.0.0.1:1".parse().unwrap(), tls: None, certificate: None };
        let trusted = TrustedProxies(vec!["10.0.0.0/8".parse().unwrap()]);
        let clients = ConnectionClients::new(&peer);
        let long = "h".repeat(MAX_KEPT_HOST + 1);
        for host in ["a.example", "a.example", "b.example", &long, &long, "a\"b", ""] {
            for chain in ["", "203.0.113.9", "203.0.113.9", "203.0.113.9, 10.0.0.2", "2001:db8::1"] {
                for proto in ["http", "https", "http"] {
                    let headers = HeaderMap::from_iter([(X_FORWARDED_FOR, chain.parse().unwrap())]);
                    let host = Some(host).filter(|host| !host.is_empty()).map(|host| host.parse().unwrap());
                    let kept = clients.find(&peer, &headers, &trusted);
                    let new = Client::find(&peer, &headers, &trusted);
                    let lines = |client: &Client| (client.ip, origin(client, host.as_ref(), proto));
                    assert_eq!(lines(&kept), lines(&new), "{chain} {host:?} {proto}");
                    assert_eq!(lines(&kept), lines(&new), "{chain} {host:?} {proto}, again");
                }
            }
        }
    }

    #[test]
    fn ipv6_address_is_quoted() {
        let client = find("[2001:db8::1]", &[], &[]);
        assert_eq!(origin(&client, None, "http")[FORWARDED], "for=\"[2001:db8::1]\";proto=http");
    }
}
