//! The PROXY protocol, versions 1 and 2 (the HAProxy project's specification, revision of 2020): who the client is, in
//! the words of the proxy that stands between, before the first byte of the connection itself.
//!
//! It is read only from peers that are trusted to say it, and from those it is demanded: a proxy that says nothing would
//! otherwise have its clients taken for itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What version 2 begins with. Its twelve bytes begin no protocol that stands behind.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header of version 1, its CRLF included.
const MAX_LINE: usize = 107;
/// Bytes of version 2 before its addresses.
const FIXED: usize = 16;
/// Bytes of addresses and further fields that version 2 may have; the specification's own room for all of them.
const MAX_REST: usize = 2048;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Its bytes; the connection's own begin after them.
    pub length: usize,
    /// The client, when the proxy speaks for one. When it does not (a health check of its own), the proxy is the client.
    pub client: Option<SocketAddr>,
}

/// It is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no valid PROXY header")]
pub struct MalformedHeader;

/// Reads a header from what has come so far; nothing when more must come.
///
/// # Errors
/// [`MalformedHeader`], as soon as that is certain.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedHeader> {
    let signed = bytes.len().min(SIGNATURE.len());
    if bytes[..signed] == SIGNATURE[..signed] {
        return if signed < SIGNATURE.len() { Ok(None) } else { binary(bytes) };
    }
    let begun = bytes.len().min(b"PROXY ".len());
    if bytes[..begun] != b"PROXY "[..begun] {
        return Err(MalformedHeader);
    }
    match bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n') {
        Some(end) => text(&bytes[..=end]).map(Some),
        None if bytes.len() >= MAX_LINE => Err(MalformedHeader),
        None => Ok(None),
    }
}

/// Version 1: `PROXY TCP4 192.0.2.1 198.51.100.1 4711 443`, ended by CRLF.
fn text(line: &[u8]) -> Result<ProxyHeader, MalformedHeader> {
    let words = line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok()).ok_or(MalformedHeader)?;
    let mut words = words.split(' ').skip(1);
    let family = words.next().ok_or(MalformedHeader)?;
    if family == "UNKNOWN" {
        return Ok(ProxyHeader { length: line.len(), client: None });
    }
    let mut next = || words.next().ok_or(MalformedHeader);
    let (source, destination) = (address(family, next()?)?, address(family, next()?)?);
    let (port, other_port) = (port(next()?)?, port(next()?)?);
    if words.next().is_some() {
        return Err(MalformedHeader);
    }
    // Read, because it must be right, and of no use here.
    let _destination = SocketAddr::new(destination, other_port);
    Ok(ProxyHeader { length: line.len(), client: Some(SocketAddr::new(source, port)) })
}

fn address(family: &str, text: &str) -> Result<IpAddr, MalformedHeader> {
    match family {
        "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| MalformedHeader),
        "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| MalformedHeader),
        _ => Err(MalformedHeader),
    }
}

/// Digits without leading zeros or signs, as the specification has them.
fn port(text: &str) -> Result<u16, MalformedHeader> {
    let port: u16 = text.parse().map_err(|_| MalformedHeader)?;
    if text == port.to_string() { Ok(port) } else { Err(MalformedHeader) }
}

/// Version 2.
fn binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedHeader> {
    let Some(fixed) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
    let (command, family) = (fixed[12], fixed[13]);
    let rest = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if rest > MAX_REST || !matches!(command, 0x20 | 0x21) {
        return Err(MalformedHeader);
    }
    let Some(addresses) = bytes.get(FIXED..FIXED + rest) else { return Ok(None) };
    let client = match (command, family) {
        // LOCAL: whatever follows is to be ignored.
        (0x20, _) => None,
        (_, 0x11) => Some(source(addresses, |ip: [u8; 4]| ip.into())?),
        (_, 0x21) => Some(source(addresses, |ip: [u8; 16]| ip.into())?),
        // UNSPEC: the proxy does not know.
        (_, 0x00) => None,
        // Datagrams and Unix sockets are no clients of ours.
        _ => return Err(MalformedHeader),
    };
    Ok(Some(ProxyHeader { length: FIXED + rest, client }))
}

/// The first of two addresses, which stand before both ports; what follows them are fields of no use here.
fn source<const N: usize>(bytes: &[u8], ip: impl Fn([u8; N]) -> IpAddr) -> Result<SocketAddr, MalformedHeader> {
    let whole = bytes.len() >= 2 * N + 4;
    let (address, port) = (bytes.first_chunk::<N>(), bytes.get(2 * N..2 * N + 2));
    match (address, port) {
        (Some(address), Some([high, low])) if whole => {
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
        let first = (0..=bytes.len()).map(|length| parse(&bytes[..length])).find(|read| !matches!(read, Ok(None)));
        assert_eq!(first.unwrap_or(Ok(None)), whole, "{bytes:?}");
        whole
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    #[test]
    fn reads_both_versions() {
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
        ] {
            let read = piecewise(&header).unwrap().unwrap();
            assert_eq!(read.client, client.map(|client| client.parse().unwrap()), "{header:?}");
        }
        assert_eq!(parse(b"PROXY UNKNOWN\r\nGET").unwrap().unwrap().length, 15);
        assert_eq!(parse(b"PROXY TCP4 192.0.2.1").unwrap(), None);
    }

    #[test]
    fn refuses_everything_else() {
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
            v2(0x21, 0x12, &[0; 12]),
            v2(0x21, 0x31, &[0; 216]),
            v2(0x20, 0x00, &[0; 3000]),
        ] {
            assert_eq!(piecewise(&header), Err(MalformedHeader), "{header:?}");
        }
    }
}
