//! Redis URLs: addresses and credentials of the servers in one text.
//!
//! ```text
//! redis://[user[:password]@]host[:port][,host[:port]…][/database]
//! redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/service[/database]
//! ```
//!
//! and both with `rediss` for TLS. Several hosts of the first form are nodes of a Cluster, those of the second are
//! sentinels.
//!
//! - No error contains a part of the URL: a password with an unencoded `/` or `@` would be parsed as another part, and
//!   shown as that. For the same reason an `@` is accepted in one place only.

use std::net::Ipv6Addr;

use super::settings::{Address, Login, Servers};
use domain::secret::Secret;

/// The schemes: name, TLS, Sentinel.
const SCHEMES: [(&str, bool, bool); 4] = [
    ("redis", false, false),
    ("rediss", true, false),
    ("redis+sentinel", false, true),
    ("rediss+sentinel", true, true),
];
/// Default port of servers.
const SERVER_PORT: u16 = 6379;
/// Default port of sentinels.
const SENTINEL_PORT: u16 = 26379;

/// A parsed URL, or several that agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// True when connections are encrypted.
    pub tls: bool,
    /// Addresses of the servers; no address twice.
    pub servers: Servers,
    /// Credentials for the servers (never for the sentinels).
    pub login: Login,
    /// Number of the database; 0 on a Cluster.
    pub database: u16,
}

/// A text that is not a Redis URL, or does not agree with others. Contains nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum InvalidUrl {
    #[error("is not a Redis url; begin it with redis://, rediss:// (TLS), redis+sentinel:// or rediss+sentinel://")]
    Scheme,
    #[error("has a space or a control character; remove it, or percent-encode it in a user or password")]
    Space,
    #[error("has a query or a fragment; remove it, or write %3F for a `?` and %23 for a `#` in a password")]
    Query,
    #[error("has an `@` elsewhere than before the first host; write %40 for an `@` and %2F for a `/` in a password")]
    At,
    #[error("has an `@` without a user, or a `:` without a password, before its hosts; give what is missing")]
    Login,
    #[error("has a `%` in its user or password that is no percent-encoding of UTF-8; write %25 for a `%`")]
    Percent,
    #[error("has a host that is neither a name nor an IP address; give host or host:port, with commas between several")]
    Host,
    #[error("has an IPv6 address without brackets, or not one within them; write it as [::1] or [::1]:6379")]
    Brackets,
    #[error("has a port that is not a number of 1 to 65535; correct it, or remove it with its `:`")]
    Port,
    #[error("names no service; write it behind the sentinels: redis+sentinel://host:26379/service")]
    NoService,
    #[error("has a service whose name is not of letters, digits and . _ - alone; give the name that the sentinels use")]
    Service,
    #[error("has a database that is not a number of 0 to 65535; correct it, or remove it")]
    Database,
    #[error("has several hosts, which makes it a Cluster, and a database; remove the database, a Cluster has only 0")]
    ClusterDatabase,
    #[error("names a host and port that are named already; remove one")]
    Repeated,
    #[error("differs from the first url in more than its hosts; give all the same scheme, login, service and database")]
    Differs,
}

impl std::str::FromStr for Url {
    type Err = InvalidUrl;

    /// # Errors
    /// [`InvalidUrl`].
    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidUrl::Scheme)?;
        let known = SCHEMES.iter().find(|(name, ..)| name.eq_ignore_ascii_case(scheme));
        let &(_, tls, sentinel) = known.ok_or(InvalidUrl::Scheme)?;
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(InvalidUrl::Space);
        }
        if rest.contains(['?', '#']) {
            return Err(InvalidUrl::Query);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.split_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        if hosts.contains('@') || path.contains('@') {
            return Err(InvalidUrl::At);
        }
        let login = login.map_or_else(|| Ok(Login::default()), parse_login)?;
        let hosts = parse_addresses(hosts, if sentinel { SENTINEL_PORT } else { SERVER_PORT })?;
        let (servers, database) = if sentinel { parse_sentinels(hosts, path)? } else { parse_nodes(hosts, path)? };
        Ok(Self { tls, servers, login, database })
    }
}

impl Url {
    /// Adds the hosts of another URL that agrees in everything else.
    ///
    /// # Errors
    /// [`InvalidUrl`] when the other URL differs in more than hosts, repeats a host, or would make a Cluster with a
    /// database. Nothing is added then.
    pub fn add(&mut self, other: Self) -> Result<(), InvalidUrl> {
        if (self.tls, &self.login, self.database) != (other.tls, &other.login, other.database) {
            return Err(InvalidUrl::Differs);
        }
        let servers = match (self.servers.clone(), other.servers) {
            (Servers::Sentinel { sentinels, service }, Servers::Sentinel { sentinels: more, service: same }) => {
                let sentinels = union(sentinels, more)?;
                if service == same {
                    Servers::Sentinel { sentinels, service }
                } else {
                    return Err(InvalidUrl::Differs);
                }
            }
            (Servers::Sentinel { .. }, _) | (_, Servers::Sentinel { .. }) => return Err(InvalidUrl::Differs),
            (nodes, more) => Servers::Cluster(union(nodes.into_addresses(), more.into_addresses())?),
        };
        if matches!(servers, Servers::Cluster(_)) && self.database != 0 {
            return Err(InvalidUrl::ClusterDatabase);
        }
        self.servers = servers;
        Ok(())
    }
}

impl Servers {
    fn into_addresses(self) -> Vec<Address> {
        match self {
            Self::Single(address) => vec![address],
            Self::Cluster(addresses) | Self::Sentinel { sentinels: addresses, .. } => addresses,
        }
    }
}

fn union(mut addresses: Vec<Address>, more: Vec<Address>) -> Result<Vec<Address>, InvalidUrl> {
    for address in more {
        if addresses.contains(&address) {
            return Err(InvalidUrl::Repeated);
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// Parses the path of a URL of servers: empty, or a database.
fn parse_nodes(mut hosts: Vec<Address>, path: &str) -> Result<(Servers, u16), InvalidUrl> {
    let database = parse_database(path)?;
    if hosts.len() == 1 {
        return Ok((Servers::Single(hosts.remove(0)), database));
    }
    if database == 0 { Ok((Servers::Cluster(hosts), 0)) } else { Err(InvalidUrl::ClusterDatabase) }
}

/// Parses the path of a URL of sentinels: a service, and optionally a database.
fn parse_sentinels(sentinels: Vec<Address>, path: &str) -> Result<(Servers, u16), InvalidUrl> {
    let (service, rest) = path.split_once('/').unwrap_or((path, ""));
    if service.is_empty() {
        return Err(InvalidUrl::NoService);
    }
    // The characters that Sentinel itself accepts in a name.
    if !service.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c)) {
        return Err(InvalidUrl::Service);
    }
    Ok((Servers::Sentinel { sentinels, service: service.to_owned() }, parse_database(rest)?))
}

fn parse_database(text: &str) -> Result<u16, InvalidUrl> {
    if text.is_empty() { Ok(0) } else { parse_number(text).ok_or(InvalidUrl::Database) }
}

fn parse_addresses(hosts: &str, port: u16) -> Result<Vec<Address>, InvalidUrl> {
    hosts.split(',').try_fold(Vec::new(), |found, host| union(found, vec![parse_address(host, port)?]))
}

/// Parses `host`, `host:port`, `[v6]` or `[v6]:port`.
fn parse_address(text: &str, default: u16) -> Result<Address, InvalidUrl> {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(bracketed) => {
            let (host, port) = bracketed.ok_or(InvalidUrl::Brackets)?;
            let host: Ipv6Addr = host.parse().map_err(|_| InvalidUrl::Brackets)?;
            let port = if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(InvalidUrl::Port)?) };
            (host.to_string(), port)
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(InvalidUrl::Brackets),
            Some((host, port)) => (parse_host(host)?, Some(port)),
            None => (parse_host(text)?, None),
        },
    };
    let port = port.map_or(Some(default), parse_number).filter(|port| *port != 0).ok_or(InvalidUrl::Port)?;
    Ok(Address { host, port })
}

fn parse_host(host: &str) -> Result<String, InvalidUrl> {
    let plain = !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c));
    if plain { Ok(host.to_ascii_lowercase()) } else { Err(InvalidUrl::Host) }
}

/// Parses a number without a sign.
fn parse_number(text: &str) -> Option<u16> {
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Parses `user`, `user:password` or `:password`, percent-encoded. The password begins at the first colon.
fn parse_login(text: &str) -> Result<Login, InvalidUrl> {
    let (user, password) = match text.split_once(':') {
        Some((_, "")) => return Err(InvalidUrl::Login),
        Some((user, password)) => (user, Some(Secret::new(percent_decode(password)?))),
        None if text.is_empty() => return Err(InvalidUrl::Login),
        None => (text, None),
    };
    let user = if user.is_empty() { None } else { Some(percent_decode(user)?) };
    Ok(Login { user, password })
}

/// Percent-decodes (RFC 3986 section 2.1). The buffer has its full capacity from the start: growing would leave a copy
/// of a secret behind in freed memory.
fn percent_decode(text: &str) -> Result<String, InvalidUrl> {
    let digit = |at: Option<u8>| at.and_then(|c| char::from(c).to_digit(16)).and_then(|digit| u8::try_from(digit).ok());
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let high = digit(bytes.next());
                let low = digit(bytes.next());
                high.zip(low).map(|(high, low)| high << 4 | low).ok_or(InvalidUrl::Percent)?
            }
            plain => plain,
        });
    }
    String::from_utf8(plain).map_err(|_| InvalidUrl::Percent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Url, InvalidUrl> {
        text.parse()
    }

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    fn login(user: Option<&str>, password: Option<&str>) -> Login {
        Login { user: user.map(str::to_owned), password: password.map(|text| Secret::new(text.to_owned())) }
    }

    #[test]
    fn schemes_have_their_tls_and_default_ports() {
        let url = parse("redis://cache").unwrap();
        let none = login(None, None);
        assert_eq!(
            url,
            Url { tls: false, servers: Servers::Single(at("cache", 6379)), login: none.clone(), database: 0 }
        );
        assert_eq!(parse("rediss://cache:6380/3").unwrap().servers, Servers::Single(at("cache", 6380)));
        assert_eq!(parse("rediss://cache:6380/3").map(|url| (url.tls, url.database)), Ok((true, 3)));
        let url = parse("REDISS+sentinel://[::1],Guard_2:7/main.1-x/65535").unwrap();
        let sentinels = vec![at("::1", 26379), at("guard_2", 7)];
        let servers = Servers::Sentinel { sentinels, service: "main.1-x".into() };
        assert_eq!(url, Url { tls: true, servers, login: none, database: 65535 });
        let cluster = Servers::Cluster(vec![at("127.0.0.1", 7000), at("::1", 7001), at("c", 6379)]);
        assert_eq!(parse("redis://127.0.0.1:7000,[0:0::1]:7001,c/0").unwrap().servers, cluster);
        assert_eq!(parse("redis://c/").unwrap().servers, Servers::Single(at("c", 6379)));
    }

    #[test]
    fn logins_are_percent_decoded() {
        let of = |userinfo: &str| parse(&format!("redis://{userinfo}@h")).map(|url| url.login);
        assert_eq!(of("ada"), Ok(login(Some("ada"), None)));
        assert_eq!(of(":hunter2"), Ok(login(None, Some("hunter2"))));
        assert_eq!(of("a%64a:p:w%40%2F%c3%A9,["), Ok(login(Some("ada"), Some("p:w@/é,["))));
        for bad in ["%", "%4", "%zz", "%+1", ":%ff", "a:%4é"] {
            assert_eq!(of(bad), Err(InvalidUrl::Percent), "{bad}");
        }
        for bad in ["", ":", "ada:"] {
            assert_eq!(of(bad), Err(InvalidUrl::Login), "{bad}");
        }
    }

    #[test]
    fn invalid_urls_have_their_error() {
        use InvalidUrl as No;
        let cases: &[(No, &[&str])] = &[
            (No::Scheme, &["", "h", "h:6379", "http://h", "redis+cluster://h", "unix:///run/redis", "://h"]),
            (No::Space, &["redis://h ", "redis://a b@h", "redis://h\u{0}", "redis://h/\u{a0}1"]),
            (No::Query, &["redis://h?db=1", "redis://h/1#x", "redis://:a?b@h"]),
            (No::At, &["redis://:a@b@h", "redis://u:1/b@h", "redis+sentinel://u:1/b@h"]),
            (
                No::Host,
                &["redis://", "redis:///1", "redis://a,", "redis://a,,b", "redis://a%20", "redis://:1", "redis://é"],
            ),
            (No::Brackets, &["redis://::1", "redis://[::1", "redis://[h]", "redis://[]:1", "redis://a:1:2"]),
            (No::Port, &["redis://h:", "redis://h:0", "redis://h:65536", "redis://h:+1", "redis://[::1]6379"]),
            (No::NoService, &["redis+sentinel://h", "redis+sentinel://h/", "redis+sentinel://h//1"]),
            (No::Service, &["redis+sentinel://h/a%20b", "redis+sentinel://h/a,b"]),
            (
                No::Database,
                &["redis://h/x", "redis://h/1/", "redis://h/-1", "redis://h/65536", "redis+sentinel://h/s/1/"],
            ),
            (No::ClusterDatabase, &["redis://a,b/1"]),
            (No::Repeated, &["redis://a,A", "redis://[::1]:6379,[0::1]", "redis+sentinel://a:26379,a/s"]),
        ];
        for (fault, texts) in cases {
            for text in *texts {
                assert_eq!(parse(text).unwrap_err(), *fault, "{text}");
            }
        }
    }

    #[test]
    fn urls_that_agree_are_merged() {
        let joined = |texts: &[&str]| {
            let mut urls = texts.iter().map(|text| parse(text).unwrap());
            let mut first = urls.next().unwrap();
            urls.try_for_each(|url| first.add(url)).map(|()| first.servers)
        };
        let nodes = Servers::Cluster(vec![at("a", 6379), at("b", 6379), at("c", 1)]);
        assert_eq!(joined(&["redis://a", "redis://b", "redis://c:1"]), Ok(nodes.clone()));
        assert_eq!(joined(&["redis://:x@a,b", "redis://:x@c:1/0"]), Ok(nodes));
        let sentinels = vec![at("a", 26379), at("b", 26379)];
        let guarded = Servers::Sentinel { sentinels, service: "s".into() };
        assert_eq!(joined(&["redis+sentinel://a/s/2", "redis+sentinel://b/s/2"]), Ok(guarded));
        assert_eq!(joined(&["redis://a", "redis://a:6379"]), Err(InvalidUrl::Repeated));
        assert_eq!(joined(&["redis://a/1", "redis://b/1"]), Err(InvalidUrl::ClusterDatabase));
        for (one, other) in [
            ("redis://a", "rediss://b"),
            ("redis://a", "redis+sentinel://b/s"),
            ("redis+sentinel://a/s", "redis+sentinel://b/t"),
            ("redis+sentinel://a/s", "redis+sentinel://b/s/1"),
            ("redis://u@a", "redis://b"),
            ("redis://:x@a", "redis://:y@b"),
        ] {
            assert_eq!(joined(&[one, other]), Err(InvalidUrl::Differs), "{one} {other}");
        }
    }

    /// Every byte percent-encoded, or only those that must be.
    fn encoded(text: &str, all: bool) -> String {
        let plain = |c: &u8| !all && (c.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(c));
        text.bytes().map(|c| if plain(&c) { char::from(c).into() } else { format!("%{c:02X}") }).collect()
    }

    fn some_address() -> impl Strategy<Value = Address> {
        let host = prop_oneof![
            "[a-z0-9][a-z0-9._-]{0,20}",
            any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
            any::<Ipv6Addr>().prop_map(|ip| ip.to_string()),
        ];
        (host, 1..=u16::MAX).prop_map(|(host, port)| Address { host, port })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn url_parts_survive_formatting_and_parsing(
            hosts in prop::collection::hash_set(some_address(), 1..5),
            user in prop::option::of(".{1,12}"),
            password in prop::option::of(".{1,12}"),
            service in prop::option::of("[A-Za-z0-9._-]{1,12}"),
            database: u16,
            (tls, all) in any::<(bool, bool)>(),
        ) {
            let hosts: Vec<Address> = hosts.into_iter().collect();
            let database = if hosts.len() > 1 && service.is_none() { 0 } else { database };
            let listed: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            let userinfo = match (&user, &password) {
                (None, None) => String::new(),
                (Some(user), None) => format!("{}@", encoded(user, all)),
                (user, Some(password)) => {
                    format!("{}:{}@", encoded(user.as_deref().unwrap_or_default(), all), encoded(password, all))
                }
            };
            let scheme = service.as_ref().map_or("", |_| "+sentinel");
            let tls_letter = if tls { "s" } else { "" };
            let path = service.as_ref().map_or(String::new(), |service| format!("/{service}"));
            let text = format!("redis{tls_letter}{scheme}://{userinfo}{}{path}/{database}", listed.join(","));
            let servers = match service {
                Some(service) => Servers::Sentinel { sentinels: hosts, service },
                None if hosts.len() == 1 => Servers::Single(hosts[0].clone()),
                None => Servers::Cluster(hosts),
            };
            let login = login(user.as_deref(), password.as_deref());
            prop_assert_eq!(text.parse(), Ok(Url { tls, servers, login, database }));
        }

        #[test]
        fn password_is_never_in_an_error(
            scheme in prop::sample::select(vec!["redis", "rediss", "redis+sentinel", "REDIS", "http", ""]),
            (user, before, after) in (".{0,6}", "[ -~]{0,6}|.{0,3}", "[ -~]{0,6}|.{0,3}"),
            rest in "[a-z0-9:,/@]{0,12}|.{0,6}",
        ) {
            let text = format!("{scheme}://{user}:{before}hunter2{after}@{rest}");
            prop_assert!(!format!("{:?}", parse(&text)).contains("hunter2"), "{text}");
        }

        #[test]
        fn garbage_does_not_panic(text in "(redis(s|[+]sentinel)?://)?([ -~]{0,30}|.{0,20})") {
            drop(parse(&text));
        }
    }
}
