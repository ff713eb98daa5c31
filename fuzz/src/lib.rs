//! Properties that hold for any bytes. Each function is the body of the fuzz target of its name, and panics when its
//! property does not hold.

mod requests;
mod journal;
mod sessions;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::LazyLock;

use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::{KeyDigest, parse};
use domain::secret::Secret;
use edge::transport::proxy_protocol;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use keygate::admission::bearer;
use keygate::config::Config;
use query_store::cursor::{Endpoint, Keyring, Scope};

pub use journal::journal;
pub use requests::{credential, head, sanitizer};
pub use sessions::{cookie, return_path};

/// A token that is read is one that was sent; one of our own format is made of its letters alone.
pub fn bearer(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for field in bytes.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(field) {
            headers.append(AUTHORIZATION, value);
        }
    }
    if let Ok(token) = bearer::parse_token(&headers) {
        assert_eq!(headers.get_all(AUTHORIZATION).iter().count(), 1, "of two credentials none is read");
        assert!(!token.is_empty() && token.len() <= 512 && token.iter().all(u8::is_ascii_graphic));
        let field = headers[AUTHORIZATION].as_bytes();
        assert!(field.len() >= token.len() && field.windows(token.len()).any(|window| window == token));
        if let Some(id) = parse(token) {
            assert!(token.starts_with(format!("sk_live_{}_", id.as_str()).as_bytes()));
        }
        let _digest = KeyDigest::of(token);
    }
    // The parser stands alone, too.
    assert!(parse(bytes).is_none_or(|_| bytes.is_ascii()));
}

/// The result for a prefix holds for the whole: more bytes neither change a header nor mend one.
pub fn proxy_header(bytes: &[u8]) {
    let whole = proxy_protocol::parse(bytes);
    for length in 0..bytes.len() {
        match proxy_protocol::parse(&bytes[..length]) {
            Ok(None) => {}
            decided => return assert_eq!(decided, whole),
        }
    }
    if let Ok(Some(header)) = whole {
        assert!(header.length <= bytes.len());
        assert!(header.client.is_none_or(|client: SocketAddr| client.to_string().parse() == Ok(client)));
    }
}

/// No token opens but those that were sealed, and those only as they were sealed.
pub fn cursor(bytes: &[u8]) {
    static KEYRING: LazyLock<Keyring> = LazyLock::new(|| {
        let secret = Secret::new("0123456789abcdef0123456789abcdef".to_owned());
        Keyring::new([(1, &secret)]).expect("one secret of the least length")
    });
    let scope = Scope { endpoint: Endpoint::Queries, org: OrgId::generate() };
    if let Ok(token) = std::str::from_utf8(bytes) {
        assert!(KEYRING.open(scope, token, Micros(0)).is_err(), "a token that was not sealed for this organization");
    }
}

/// Whatever a file says, it is read or refused with a place for every problem.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // Nothing on the disk is to be read, however it is named.
    if ["file", "env", "certificate", "key", "ca", "chain"].iter().any(|word| text.contains(word)) {
        return;
    }
    if let Err(problems) = Config::parse(Path::new("/nonexistent/keygate.yaml"), text) {
        let said = problems.to_string();
        assert!(said.starts_with("/nonexistent/keygate.yaml"), "{said}");
    }
}
