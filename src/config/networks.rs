//! Lists of networks and addresses.

use std::net::IpAddr;

use ipnet::IpNet;

use domain::key::policy::Network;
use platform::settings::{Reported, Value};

/// Reads a list of networks and addresses.
pub(super) fn networks(value: &Value<'_>) -> Result<Vec<IpNet>, Reported> {
    value.list(|item| network(item, &item.text()?))
}

fn network(value: &Value<'_>, text: &str) -> Result<IpNet, Reported> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    match network {
        Ok(network) if network.addr() != network.network() => {
            value.reject(format_args!("`{text}` has bits set beyond its prefix; did you mean {}?", network.trunc()))
        }
        Ok(network) => Ok(Network::canonical(network)),
        Err(_) => value.reject(format_args!("`{text}` is not a network such as 10.0.0.0/8, or an IP address")),
    }
}
