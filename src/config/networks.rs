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
        Ok(network) => match Network::canonical(network) {
            canonical if canonical == network => Ok(network),
            // Logs of sockets that serve both families have addresses in this form, and rules have none.
            canonical => {
                let meant =
                    if canonical.prefix_len() == 32 { canonical.addr().to_string() } else { canonical.to_string() };
                value.reject(format_args!("`{text}` is IPv4 written as IPv6; did you mean {meant}?"))
            }
        },
        Err(_) => value.reject(format_args!("`{text}` is not a network such as 10.0.0.0/8, or an IP address")),
    }
}
