//! Parser of the PROXY protocol, versions 1 and 2 (the HAProxy project's specification, revision of 2020): a proxy
//! names the client in a header before the first byte of the connection itself.
//!
//! The header is read only from trusted proxies, and required of them: the clients of a proxy without it would
//! otherwise be taken for the proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// First bytes of version 2. No protocol behind the header begins with them.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// First bytes of version 1.
const TEXT_SIGNATURE: &[u8] = b"PROXY ";
/// Bytes of the longest header of version 1, its CRLF included.
const MAX_LINE: usize = 107;
/// Bytes of version 2 before its addresses.
const FIXED: usize = 16;
/// Bytes of addresses and further fields that version 2 may have: room for the certificate of a client.
const MAX_REST: usize = 16 * 1024;

// Commands of version 2, with the version in the upper half of the byte.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
// Address families and protocols of version 2.
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// A parsed PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Bytes of the header; the connection's own begin after them.
    pub length: usize,
    /// The client. `None` for `LOCAL` (health checks of the proxy) and for an unknown client: the proxy then
    /// counts as the client.
    pub client: Option<SocketAddr>,
}

/// The bytes are no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no valid PROXY header")]
pub struct MalformedHeader;

/// Parses a header from the bytes that have come so far. `None` when more must come.
///
/// # Errors
/// [`MalformedHeader`], as soon as it is certain, whatever comes after.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedHeader> {
    // The two signatures differ in their first byte.
    let compared = bytes.len().min(SIGNATURE.len());
    if bytes[..compared] == SIGNATURE[..compared] {
        return if compared < SIGNATURE.len() { Ok(None) } else { parse_binary(bytes) };
    }
    let compared = bytes.len().min(TEXT_SIGNATURE.len());
    if bytes[..compared] != TEXT_SIGNATURE[..compared] {
        return Err(MalformedHeader);
    }
    match bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n') {
        Some(end) => parse_text(&bytes[..=end]).map(Some),
        None if bytes.len() >= MAX_LINE => Err(MalformedHeader),
        None => Ok(None),
    }
}

/// Parses version 1: `PROXY TCP4 192.0.2.1 198.51.100.1 4711 443`, ended by CRLF.
fn parse_text(line: &[u8]) -> Result<ProxyHeader, MalformedHeader> {
    let words = line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok()).ok_or(MalformedHeader)?;
    let mut words = words.split(' ').skip(1);
    let family = words.next().ok_or(MalformedHeader)?;
    // The rest of the line is to be ignored.
    if family == "UNKNOWN" {
        return Ok(ProxyHeader { length: line.len(), client: None });
    }
    let mut next = || words.next().ok_or(MalformedHeader);
    let source = parse_address(family, next()?)?;
    // The destination is parsed, because the header is valid only if it is, and not used.
    parse_address(family, next()?)?;
    let port = parse_port(next()?)?;
    parse_port(next()?)?;
    if words.next().is_some() {
        return Err(MalformedHeader);
    }
    Ok(ProxyHeader { length: line.len(), client: Some(SocketAddr::new(source, port)) })
}

fn parse_address(family: &str, text: &str) -> Result<IpAddr, MalformedHeader> {
    match family {
        "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| MalformedHeader),
        "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| MalformedHeader),
        _ => Err(MalformedHeader),
    }
}

/// Parses digits without leading zeros or signs, as the specification requires.
fn parse_port(text: &str) -> Result<u16, MalformedHeader> {
    let port: u16 = text.parse().map_err(|_| MalformedHeader)?;
    if text == port.to_string() { Ok(port) } else { Err(MalformedHeader) }
}

/// Parses version 2: signature, command, family, length (2 bytes), addresses and further fields.
fn parse_binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedHeader> {
    let Some(fixed) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
    let command = fixed[12];
    let rest = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    // Before the rest has come: a malformed header is refused as soon as possible.
    if rest > MAX_REST || !matches!(command, LOCAL | PROXY) {
        return Err(MalformedHeader);
    }
    let Some(addresses) = bytes.get(FIXED..FIXED + rest) else { return Ok(None) };
    let client = match (command, fixed[13]) {
        // The proxy's own connection: addresses are to be ignored.
        (LOCAL, _) => None,
        (_, TCP_OVER_IPV4) => Some(parse_source(addresses, |ip: [u8; 4]| ip.into())?),
        (_, TCP_OVER_IPV6) => Some(parse_source(addresses, |ip: [u8; 16]| ip.into())?),
        // The proxy does not know the client, or it is no TCP client: of a Unix socket, of datagrams (section 2.2).
        _ => None,
    };
    Ok(Some(ProxyHeader { length: FIXED + rest, client }))
}

/// Parses the source: the first of two addresses, which stand before both ports. Fields after the ports are not used.
fn parse_source<const N: usize>(bytes: &[u8], ip: impl Fn([u8; N]) -> IpAddr) -> Result<SocketAddr, MalformedHeader> {
    let is_complete = bytes.len() >= 2 * N + 4;
    match (bytes.first_chunk::<N>(), bytes.get(2 * N..2 * N + 2)) {
        (Some(address), Some([high, low])) if is_complete => {
            Ok(SocketAddr::new(ip(*address), u16::from_be_bytes([*high, *low])))
        }
        _ => Err(MalformedHeader),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piecewise(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedHeader> {
        let whole = parse(bytes);
        let first = (0..=bytes.len()).map(|length| parse(&bytes[..length])).find(|result| !matches!(result, Ok(None)));
        assert_eq!(first.unwrap_or(Ok(None)), whole, "{bytes:?}");
        whole
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    #[test]
    fn headers_of_both_versions_are_parsed() {
        for (header, client) in [
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\nGET".to_vec(), Some("192.0.2.1:4711")),
            (b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n".to_vec(), Some("[2001:db8::1]:1")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN whatever it says\r\n".to_vec(), None),
            (v2(0x21, 0x11, &[192, 0, 2, 1, 198, 51, 100, 1, 0, 80, 1, 187]), Some("192.0.2.1:80")),
            (v2(0x21, 0x11, &[192, 0, 2, 1, 198, 51, 100, 1, 0, 80, 1, 187, 4, 0, 1, 0]), Some("192.0.2.1:80")),
            (v2(0x21, 0x21, &[[0; 31].as_slice(), &[1, 0, 7, 0, 8]].concat()), Some("[::]:7")),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, &[1, 2, 3]), None),
            (v2(0x21, 0x00, &[]), None),
            (v2(0x21, 0x12, &[0; 12]), None),
            (v2(0x21, 0x31, &[0; 216]), None),
            (
                v2(0x21, 0x11, &[&[192, 0, 2, 1, 198, 51, 100, 1, 0, 80, 1, 187][..], &[0; 4000]].concat()),
                Some("192.0.2.1:80"),
            ),
        ] {
            let parsed = piecewise(&header).unwrap().unwrap();
            assert_eq!(parsed.client, client.map(|client| client.parse().unwrap()), "{header:?}");
        }
        assert_eq!(parse(b"PROXY UNKNOWN\r\nGET").unwrap().unwrap().length, 15);
        assert_eq!(parse(b"PROXY TCP4 192.0.2.1").unwrap(), None);
    }

    #[test]
    fn malformed_headers_are_refused() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        for header in [
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 198.51.100.1 04711 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 198.51.100.1 70000 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 198.51.100.1 4711\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443 5\r\n".to_vec(),
            b"PROXY TCP4  192.0.2.1 198.51.100.1 4711 443\r\n".to_vec(),
            b"PROXY TCP4 ::1 ::1 4711 443\r\n".to_vec(),
            b"PROXY UDP4 192.0.2.1 198.51.100.1 4711 443\r\n".to_vec(),
            b"PROXY \r\n".to_vec(),
            long.into_bytes(),
            v2(0x21, 0x11, &[192, 0, 2, 1]),
            v2(0x31, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x20, 0x00, &[0; 20_000]),
        ] {
            assert_eq!(piecewise(&header), Err(MalformedHeader), "{header:?}");
        }
    }
}
