//! Networks that a key may be used from: CIDR blocks (RFC 4632; RFC 4291, section 2.3) in canonical form.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

/// A network, such as `10.0.0.0/8` or `2001:db8::/32`. An address alone is the network that has only this one.
///
/// - IPv4-mapped IPv6 addresses (RFC 4291, section 2.5.5.2) are IPv4 addresses, here and in [`Network::contains`]: so
///   `::ffff:10.0.0.0/104` is `10.0.0.0/8`, and no other IPv6 network has an IPv4 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network(IpNet);

/// Error: the text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNetwork {
    /// The text is not an address with a prefix length.
    #[error("{0:?} is not a network: expected an address or ADDRESS/PREFIX, as in 10.0.0.0/8 or 2001:db8::/32")]
    Syntax(String),
    /// The address has bits behind the prefix: a typing error in one of the two.
    #[error("{found} has bits of the address behind the prefix: write {network} for the network, or the address alone")]
    HostBits {
        /// The text.
        found: String,
        /// The network that the address is in.
        network: Network,
    },
}

impl Network {
    /// Returns true when an address is in the network.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Returns true when every address of this network is in one of the others.
    pub(crate) fn is_in_one_of(self, others: &[Self]) -> bool {
        others.iter().any(|other| other.0.contains(&self.0))
    }

    /// The IPv4 network that one of mapped addresses (`::ffff:10.0.0.0/104`) stands for: addresses are compared as
    /// those of IPv4 where they are that.
    pub fn canonical(network: IpNet) -> IpNet {
        let IpNet::V6(v6) = network else { return network };
        let mapped = v6.network().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
        let v4 = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
        v4.map_or(network, IpNet::V4)
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        let network = network.ok_or_else(|| InvalidNetwork::Syntax(text.to_owned()))?;
        if network.addr() == network.network() {
            Ok(Self(Self::canonical(network)))
        } else {
            let network = Self(Self::canonical(network.trunc()));
            Err(InvalidNetwork::HostBits { found: text.to_owned(), network })
        }
    }
}

impl TryFrom<String> for Network {
    type Error = InvalidNetwork;

    fn try_from(text: String) -> Result<Self, InvalidNetwork> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn mapped_addresses_are_ipv4_addresses() {
        assert_eq!(network("::ffff:10.0.0.0/104").to_string(), "10.0.0.0/8");
        assert_eq!(network("::ffff:10.1.2.3").to_string(), "10.1.2.3/32");
        assert!(contains("10.0.0.0/8", "::ffff:10.255.0.1") && contains("::ffff:0:0/96", "1.2.3.4"));
        assert!(contains("0.0.0.0/0", "::ffff:1.2.3.4") && !contains("0.0.0.0/0", "::1"));
        assert!(!contains("::/0", "1.2.3.4") && !contains("::/0", "::ffff:1.2.3.4") && contains("::/0", "::1"));
    }

    #[test]
    fn prefix_and_address_have_to_agree() {
        let error = "10.1.0.0/8".parse::<Network>().unwrap_err();
        assert!(error.to_string().contains("write 10.0.0.0/8"), "{error}");
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "example.com", "10.0.0.0/8 "] {
            assert!(matches!(text.parse::<Network>(), Err(InvalidNetwork::Syntax(_))), "{text}");
        }
    }
}
