//! A client on a plain socket.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time-out of a read.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection of a client. Every read gives up after twenty seconds, so that no test hangs.
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// A response as it was received.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap()
    }

    /// Connects to an address where nothing may listen any more.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).map(Self::over)
    }

    /// A client on an established connection.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends bytes that the peer may no longer read.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    pub fn get(&mut self, path: &str, key: &str) -> Response {
        self.request("GET", path, key, &[], b"")
    }

    pub fn request(&mut self, method: &str, path: &str, key: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.send([head(method, path, key, headers, body.len()).as_bytes(), body].concat());
        self.response_to(method)
    }

    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    pub fn response_to(&mut self, method: &str) -> Response {
        self.try_response_to(method).unwrap()
    }

    pub fn try_response_to(&mut self, method: &str) -> io::Result<Response> {
        let (status, headers) = self.head()?;
        let mut response = Response { status, headers, body: Vec::new() };
        if method != "HEAD" && status != 204 && status != 304 {
            response.body = self.body(&response)?;
        }
        Ok(response)
    }

    /// The head of a response; interim ones (1xx) are heads of their own.
    pub fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not a status line: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok((status, headers));
            }
            let (name, value) = line.split_once(':').expect("a header has a colon");
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// Reads exactly this many bytes of a body.
    pub fn read_exact(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads some bytes of a body, at least one.
    pub fn read_some(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 65536];
        self.stream.read(&mut buffer)
    }

    /// Shuts down the sending side.
    pub fn finish(&mut self) {
        self.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Returns whether bytes or the end of the connection arrive within this time.
    pub fn hears_within(&mut self, time: Duration) -> bool {
        self.stream.get_ref().set_read_timeout(Some(time)).unwrap();
        let heard = self.stream.fill_buf().map(|_| ());
        self.stream.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
        match heard {
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            Ok(()) => true,
        }
    }

    /// Reads until the peer closes or resets the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {}
            Err(error) => panic!("the connection stays open: {error}"),
        }
        rest
    }

    /// Returns whether the peer has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([]))
            || self.stream.get_ref().take_error().is_ok_and(|error| error.is_some())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn body(&mut self, response: &Response) -> io::Result<Vec<u8>> {
        if response.header("transfer-encoding") == Some("chunked") {
            return self.chunks();
        }
        let mut body = Vec::new();
        match response.header("content-length") {
            Some(length) => {
                body.resize(length.parse().unwrap(), 0);
                self.stream.read_exact(&mut body)?;
            }
            None => drop(self.stream.read_to_end(&mut body)?),
        }
        Ok(body)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).unwrap();
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..])?;
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
}

/// The head of a request with a bearer key; no credential when the key is empty.
pub fn head(method: &str, path: &str, key: &str, headers: &[(&str, &str)], length: usize) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: gateway.test\r\n");
    if !key.is_empty() {
        head += &format!("Authorization: Bearer {key}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if length > 0 {
        head += &format!("Content-Length: {length}\r\n");
    }
    head + "\r\n"
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The `code` of a problem.
    ///
    /// # Panics
    /// When the response is not a problem of the gateway.
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        for member in ["type", "title", "status", "detail", "request_id", "code"] {
            assert!(!problem[member].is_null(), "{member}: {problem}");
        }
        assert_eq!(problem["status"], self.status);
        assert_eq!(self.header("x-request-id"), problem["request_id"].as_str());
        problem["code"].as_str().unwrap().to_owned()
    }
}

/// A secret with another last character.
pub fn mistyped(secret: &str) -> String {
    let (kept, last) = secret.split_at(secret.len() - 1);
    format!("{kept}{}", if last == "x" { 'y' } else { 'x' })
}
