//! Addresses: `envoy/config/core/v3/address.proto`.

use std::net::{IpAddr, SocketAddr};

/// Address of a peer. Kinds other than sockets of IP, such as pipes, are skipped: they leave it empty.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Address {
    /// Address of a socket of IP.
    #[prost(message, optional, tag = "1")]
    pub socket_address: Option<SocketAddress>,
}

/// Address of a socket of IP.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SocketAddress {
    /// IP address as text.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Port; none when Envoy names it.
    #[prost(uint32, optional, tag = "3")]
    pub port_value: Option<u32>,
}

impl Address {
    /// IP address and port; none when one of them is absent or invalid.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        let socket = self.socket_address.as_ref()?;
        let ip: IpAddr = socket.address.parse().ok()?;
        Some(SocketAddr::new(ip, u16::try_from(socket.port_value?).ok()?))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let port_value = Some(u32::from(address.port()));
        Self { socket_address: Some(SocketAddress { address: address.ip().to_string(), port_value }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_read() {
        for text in ["203.0.113.9:4711", "[2001:db8::9]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::from(address).socket_addr(), Some(address));
        }
    }

    #[test]
    fn incomplete_addresses_are_none() {
        let address = |text: &str, port| Address {
            socket_address: Some(SocketAddress { address: text.to_owned(), port_value: port }),
        };
        assert_eq!(Address::default().socket_addr(), None);
        assert_eq!(address("", Some(1)).socket_addr(), None);
        assert_eq!(address("localhost", Some(1)).socket_addr(), None);
        assert_eq!(address("203.0.113.9:1", Some(1)).socket_addr(), None);
        assert_eq!(address("203.0.113.9", None).socket_addr(), None);
        assert_eq!(address("203.0.113.9", Some(65536)).socket_addr(), None);
    }
}
