//! Numbers and addresses as text of header values, written without `core::fmt`, which costs some hundred
//! instructions for each of them.
//!
//! - The text is the one that `Display` writes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Digits of lower-case hexadecimal numbers.
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes a number in decimal digits.
pub fn push_number(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes an address: IPv4 with dots, IPv6 as RFC 5952 has it.
pub fn push_address(text: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => push_ipv4(text, address),
        IpAddr::V6(address) => push_ipv6(text, address),
    }
}

fn push_ipv4(text: &mut Vec<u8>, address: Ipv4Addr) {
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push(b'.');
        }
        push_number(text, octet.into());
    }
}

fn push_ipv6(text: &mut Vec<u8>, address: Ipv6Addr) {
    // RFC 5952, section 5: the IPv4 address within is written with dots.
    if let Some(mapped) = address.to_ipv4_mapped() {
        text.extend_from_slice(b"::ffff:");
        return push_ipv4(text, mapped);
    }
    let segments = address.segments();
    let zeros = longest_zeros(&segments);
    push_segments(text, &segments[..zeros.start]);
    if !zeros.is_empty() {
        text.extend_from_slice(b"::");
    }
    push_segments(text, &segments[zeros.end..]);
}

/// The first of the longest runs of segments that are zero. A single one is written as `0` (RFC 5952, section 4.2.2).
fn longest_zeros(segments: &[u16; 8]) -> std::ops::Range<usize> {
    let mut longest = 8..8;
    let mut start = 0;
    for (index, segment) in segments.iter().enumerate() {
        if *segment != 0 {
            start = index + 1;
        } else if index + 1 - start > longest.len().max(1) {
            longest = start..index + 1;
        }
    }
    longest
}

fn push_segments(text: &mut Vec<u8>, segments: &[u16]) {
    for (index, segment) in segments.iter().enumerate() {
        if index > 0 {
            text.push(b':');
        }
        push_hex(text, *segment);
    }
}

/// Writes a number in hexadecimal digits, without leading zeros.
fn push_hex(text: &mut Vec<u8>, number: u16) {
    let first = [12, 8, 4].into_iter().find(|shift| number >> shift != 0).unwrap_or(0);
    for shift in (0..=first).rev().step_by(4) {
        text.push(HEX[usize::from(number >> shift & 0xf)]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(address: IpAddr) -> String {
        let mut text = Vec::new();
        push_address(&mut text, address);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn address_is_written_as_display_writes_it() {
        for address in
            ["0.0.0.0", "192.0.2.255", "::", "::1", "1::", "2001:db8::1:0:0:1", "::ffff:192.0.2.1", "1:0:2:0:3:0:4:0"]
        {
            assert_eq!(text(address.parse().unwrap()), address);
        }
    }

    proptest! {
        #[test]
        fn any_address_is_written_as_display_writes_it(
            bits: u128,
            segments in proptest::array::uniform8(prop_oneof![Just(0_u16), 0..300_u16, any::<u16>()]),
            octets: [u8; 4],
        ) {
            for address in [Ipv6Addr::from_bits(bits).into(), Ipv6Addr::from(segments).into(), octets.into()] {
                let address: IpAddr = address;
                prop_assert_eq!(text(address), address.to_string());
            }
        }
    }
}
