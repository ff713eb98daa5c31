//! The proxy without hyper: the gateway's strict scanner of heads and `httparse` on plain sockets, in both directions.
//!
//! A prototype to compare hyper's codec with. It forwards bodies with a length, and refuses others; it knows no
//! `Expect`, no upgrade, no interim response and no time-out.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use domain::head_fields::CredentialFields;
use edge::transport::head::{BodyFraming, HeadLimits, HeadScanner};
use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::admission::Admission;

const BUFFER: usize = 16 << 10;
const LIMITS: HeadLimits = HeadLimits { head: BUFFER, fields: 64, target: 8 << 10 };
/// Fields that are not forwarded.
const REMOVED: [&str; 4] = ["connection", "authorization", "x-user-id", "x-org-id"];

thread_local! {
    /// Idle connections to the upstream.
    static IDLE: RefCell<Vec<TcpStream>> = const { RefCell::new(Vec::new()) };
}

/// A socket with what has been read from it, and a buffer for what is written to it next.
struct Buffers {
    read: Vec<u8>,
    filled: usize,
    out: Vec<u8>,
}

/// Serves one connection of a client.
pub(super) async fn serve(mut client: TcpStream, upstream: SocketAddr, admission: &Admission) {
    let mut own = Buffers { read: vec![0; BUFFER], filled: 0, out: Vec::with_capacity(BUFFER) };
    // A client that goes away is none of our concern.
    while let Ok(true) = exchange(&mut client, upstream, admission, &mut own).await {}
}

/// Forwards one request and its response; returns whether the connection is kept.
async fn exchange(
    client: &mut TcpStream,
    upstream: SocketAddr,
    admission: &Admission,
    own: &mut Buffers,
) -> io::Result<bool> {
    let (head, body) = read_head(client, own).await?;
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    request.parse(&own.read[..head]).map_err(|_| ErrorKind::InvalidData)?;
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let authorization = value(request.headers, "authorization");
    let keep = value(request.headers, "connection").is_none_or(|value| !value.eq_ignore_ascii_case(b"close"));
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| ErrorKind::InvalidData)?;
    let path = target.split('?').next().unwrap_or_default();
    let mut permit = match admission.admit(authorization, &method, path).await {
        Ok(permit) => permit,
        Err(status) => {
            let response = format!("HTTP/1.1 {status} Refused\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            client.write_all(response.as_bytes()).await?;
            return Ok(false);
        }
    };
    own.out.clear();
    for piece in [method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        own.out.extend_from_slice(piece.as_bytes());
    }
    write_fields(&mut own.out, request.headers);
    write_field(&mut own.out, "x-user-id", permit.key.user_value.as_bytes());
    write_field(&mut own.out, "x-org-id", permit.key.org_value.as_bytes());
    own.out.extend_from_slice(b"\r\n");
    let here = body.min(own.filled - head);
    own.out.extend_from_slice(&own.read[head..head + here]);
    own.read.copy_within(head + here..own.filled, 0);
    own.filled -= head + here;

    let mut server = connection(upstream).await?;
    server.write_all(&own.out).await?;
    copy(client, &mut server, body - here).await?;
    permit.status = respond(client, &mut server, own).await?;
    IDLE.with_borrow_mut(|idle| idle.push(server));
    Ok(keep)
}

/// Reads until there is a whole head; returns its length and that of the body.
async fn read_head(client: &mut TcpStream, own: &mut Buffers) -> io::Result<(usize, usize)> {
    let mut scanner = HeadScanner::default();
    loop {
        if own.filled > 0
            && let Some(head) = scanner
                .scan(&own.read[..own.filled], &LIMITS, &CredentialFields::NONE)
                .map_err(|_| ErrorKind::InvalidData)?
        {
            let BodyFraming::Length(body) = head.framing else { return Err(ErrorKind::Unsupported.into()) };
            return Ok((head.length, usize::try_from(body).map_err(|_| ErrorKind::InvalidData)?));
        }
        match client.read(&mut own.read[own.filled..]).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => own.filled += read,
        }
    }
}

/// Forwards the response; returns its status.
async fn respond(client: &mut TcpStream, server: &mut TcpStream, own: &mut Buffers) -> io::Result<u16> {
    let mut buffer = [0; 4096];
    let mut filled = 0;
    loop {
        match server.read(&mut buffer[filled..]).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(&buffer[..filled]).map_err(|_| ErrorKind::InvalidData)?;
        let httparse::Status::Complete(head) = parsed else { continue };
        let length = value(response.headers, "content-length").ok_or(ErrorKind::Unsupported)?;
        let length = domain::http_syntax::parse_content_length(length).ok_or(ErrorKind::InvalidData)?;
        let length = usize::try_from(length).map_err(|_| ErrorKind::InvalidData)?;
        let status = response.code.unwrap_or_default();
        own.out.clear();
        own.out.extend_from_slice(b"HTTP/1.1 ");
        own.out.extend_from_slice(&[
            b'0' + (status / 100) as u8,
            b'0' + (status / 10 % 10) as u8,
            b'0' + (status % 10) as u8,
        ]);
        own.out.extend_from_slice(b" ");
        own.out.extend_from_slice(response.reason.unwrap_or_default().as_bytes());
        own.out.extend_from_slice(b"\r\n");
        write_fields(&mut own.out, response.headers);
        own.out.extend_from_slice(b"\r\n");
        own.out.extend_from_slice(&buffer[head..filled]);
        client.write_all(&own.out).await?;
        let left = (head + length).checked_sub(filled).ok_or(ErrorKind::InvalidData)?;
        copy(server, client, left).await?;
        return Ok(status);
    }
}

/// Copies bytes of a body.
async fn copy(from: &mut TcpStream, to: &mut TcpStream, mut left: usize) -> io::Result<()> {
    if left == 0 {
        return Ok(());
    }
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let most = left.min(buffer.len());
        match from.read(&mut buffer[..most]).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => {
                to.write_all(&buffer[..read]).await?;
                left -= read;
            }
        }
    }
    Ok(())
}

/// A connection to the upstream, idle before or new.
async fn connection(upstream: SocketAddr) -> io::Result<TcpStream> {
    if let Some(idle) = IDLE.with_borrow_mut(Vec::pop) {
        return Ok(idle);
    }
    let stream = TcpStream::connect(upstream).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn value<'a>(fields: &[httparse::Header<'a>], name: &str) -> Option<&'a [u8]> {
    fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

fn write_fields(out: &mut Vec<u8>, fields: &[httparse::Header<'_>]) {
    for field in fields.iter().filter(|field| !REMOVED.iter().any(|name| field.name.eq_ignore_ascii_case(name))) {
        write_field(out, field.name, field.value);
    }
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
