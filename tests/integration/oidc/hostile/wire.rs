//! HTTP of the hostile provider: reads a request, writes a response.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::time::Duration;

use serde_json::Value;

/// A request, as far as the provider needs it.
pub(super) struct Request {
    pub(super) path: String,
    /// The parameters of the query and of the form.
    pub(super) parameters: HashMap<String, String>,
    pub(super) authorization: Option<String>,
}

impl Request {
    /// Reads a request; none when the connection ends first.
    pub(super) fn read(stream: &mut impl Read) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let target = line.split(' ').nth(1)?.to_owned();
        let (mut length, mut authorization) = (0, None);
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "authorization" => authorization = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let parameters = form_urlencoded::parse(query.as_bytes()).chain(form_urlencoded::parse(&body));
        let parameters = parameters.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        Some(Self { path: path.to_owned(), parameters, authorization })
    }
}

pub(super) fn json_response(status: u16, value: &Value) -> Vec<u8> {
    response(status, "Content-Type: application/json\r\n", value.to_string().as_bytes())
}

pub(super) fn response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} -\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Sends a byte every 100 ms, until the client closes the connection.
pub(super) fn drip(mut stream: impl Write) {
    let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
    while sent.is_ok() {
        std::thread::sleep(Duration::from_millis(100));
        sent = stream.write_all(b" ");
    }
}
