//! Request heads: what is read strictly, and what is made of it.

use std::net::SocketAddr;
use std::sync::LazyLock;

use domain::field_lines::FieldLines;
use domain::head_fields::{CredentialFields, FieldSet};
use domain::head_memory::HeadMemory;
use domain::identity::{AuthMethod, OrgId, Peer, Principal, PrincipalHeaders, UserId};
use edge::forward::{
    AllowedFeatures, Client, ForwardContext, HostPolicy, PassedFields, TrustedProxies, UpstreamRequest, ValidatedHead,
    rewrite_request,
};
use edge::transport::head::{BodyFraming, HeadLimits, HeadScanner};
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use keygate::admission::key_field;

const LIMITS: HeadLimits = HeadLimits { head: 64 * 1024, fields: 128, target: 16 * 1024 };
/// Fields that may carry a key, beside `Authorization`.
static CREDENTIALS: LazyLock<CredentialFields> = LazyLock::new(|| {
    CredentialFields::new(["X-API-Key", "apikey"].map(|name| name.parse().expect("a field for keys")).to_vec())
});
/// Length of the request's body: known and not 0, so that the head gets no framing fields before the HTTP library sets
/// them.
pub(super) const BODY_LENGTH: Option<u64> = Some(1);
/// As many as the strict parser is given room for.
const MAX_FIELDS: usize = 256;

/// A head that is read strictly is read the same by the HTTP library's parser, in one piece or in many, and has the
/// framing that its fields say. A field that may carry a key is noted in every spelling, and nothing else is.
pub fn head(bytes: &[u8]) {
    let whole = HeadScanner::default().scan(bytes, &LIMITS, &CREDENTIALS);
    let mut scanner = HeadScanner::default();
    let middle = bytes.len() / 2;
    let pieces = match scanner.scan(&bytes[..middle], &LIMITS, &CREDENTIALS) {
        Ok(None) => scanner.scan(bytes, &LIMITS, &CREDENTIALS),
        decided => decided,
    };
    assert_eq!(whole, pieces, "in two pieces it is another head");
    let Ok(Some(head)) = whole else { return };
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let length = parsed.parse(bytes).expect("a strict head is a head");
    assert_eq!(length, httparse::Status::Complete(head.length), "another server sees another end");
    let named = |name: &str| {
        parsed.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value).collect()
    };
    let (lengths, codings): (Vec<&[u8]>, Vec<&[u8]>) = (named("content-length"), named("transfer-encoding"));
    let has_key_field = parsed.headers.iter().any(|field| matches!(&*folded(field.name), "x-api-key" | "apikey"));
    assert_eq!(head.fields.contains(FieldSet::CREDENTIAL), has_key_field);
    match head.framing {
        BodyFraming::Chunked => assert!(lengths.is_empty() && codings.len() == 1),
        BodyFraming::Length(length) => {
            assert!(codings.is_empty() && lengths.len() <= 1);
            let said =
                lengths.first().map_or(Ok(0), |said| std::str::from_utf8(said).unwrap_or_default().trim().parse());
            assert_eq!(said, Ok(length));
        }
    }
}

/// A key in a field of its own is read only where it is the only credential, and as it was sent.
pub fn credential(bytes: &[u8]) {
    let Some(head) = received(bytes) else { return };
    let is_listed = |name: &HeaderName| matches!(&*folded(name.as_str()), "x-api-key" | "apikey");
    let listed: Vec<_> = head.headers.iter().filter(|(name, _)| is_listed(name)).map(|(_, value)| value).collect();
    let fields = FieldSet::of_request(&head.headers, &CREDENTIALS);
    assert_eq!(fields.contains(FieldSet::CREDENTIAL), !listed.is_empty());
    if listed.is_empty() {
        return;
    }
    for pass_authorization in [false, true] {
        if let Ok(key) = key_field::parse_key(&head.headers, &CREDENTIALS, pass_authorization) {
            assert!(listed.len() == 1 && (pass_authorization || !head.headers.contains_key(AUTHORIZATION)));
            assert!(!key.is_empty() && key.len() <= 512 && key.iter().all(u8::is_ascii_graphic));
            assert_eq!(listed[0].as_bytes().trim_ascii(), key);
        }
    }
}

/// The sanitizer's output, serialized, is exactly one request, with exactly our identity.
pub fn sanitizer(bytes: &[u8]) {
    let Some(head) = received(bytes) else { return };
    let (target, method) = (head.uri.clone(), head.method.clone());
    let peer = Peer { address: SocketAddr::from(([192, 0, 2, 1], 4711)), tls: None, certificate: None };
    let trusted = TrustedProxies(vec!["192.0.2.0/24".parse().expect("a network")]);
    let client = Client::find(&peer, &head.headers, &trusted);
    let principal = principal();
    let request_id = HeaderValue::from_static("0190-id");
    let Ok(received) = ValidatedHead::validate(head, &CREDENTIALS) else { return };
    let allowed = AllowedFeatures::default();
    let passed = &PassedFields::default();
    let context = ForwardContext {
        strip_prefix: None,
        peer: &peer,
        client: &client,
        principal: Some(&principal),
        request_id: &request_id,
        credentials: &CREDENTIALS,
        pass_authorization: false,
        allowed,
        passed,
        host: &HostPolicy::Endpoint,
        trace: None,
        memory: &HeadMemory::default(),
    };
    let UpstreamRequest { request, added, .. } = rewrite_request(received, BODY_LENGTH, context);
    let text = serialized(&request, &added);

    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let length = parsed.parse(&text).expect("what is sent is a request");
    assert_eq!(length, httparse::Status::Complete(text.len()), "what is sent is one request, and nothing after it");
    assert_eq!(
        HeadScanner::default().scan(&text, &LIMITS, &CREDENTIALS).map(|head| head.map(|head| head.length)),
        Ok(Some(text.len()))
    );
    assert_eq!(parsed.method, Some(method.as_str()));
    assert_eq!(parsed.path, target.path_and_query().map(|target| target.as_str()), "the bytes of the path changed");
    identity(&parsed, &principal);
}

/// Calls `act` with the context of some request.
pub(super) fn with_context<T>(act: impl FnOnce(ForwardContext<'_>) -> T) -> T {
    let peer = Peer { address: SocketAddr::from(([192, 0, 2, 1], 4711)), tls: None, certificate: None };
    let client = Client::find(&peer, &HeaderMap::new(), &TrustedProxies::default());
    let (principal, request_id) = (principal(), HeaderValue::from_static("0190-id"));
    let allowed = AllowedFeatures::default();
    let passed = &PassedFields::default();
    act(ForwardContext {
        strip_prefix: None,
        peer: &peer,
        client: &client,
        principal: Some(&principal),
        request_id: &request_id,
        credentials: &CREDENTIALS,
        pass_authorization: false,
        allowed,
        passed,
        host: &HostPolicy::Endpoint,
        trace: None,
        memory: &HeadMemory::default(),
    })
}

/// Each of our fields is there once, in no other spelling, and nothing that frames or belongs to a connection.
fn identity(parsed: &httparse::Request<'_, '_>, principal: &Principal) {
    let values = |wanted: &str| -> Vec<&[u8]> {
        parsed.headers.iter().filter(|field| folded(field.name) == wanted).map(|field| field.value).collect()
    };
    let headers = &principal.headers;
    for (name, value) in [("x-user-id", headers.user_id()), ("x-org-id", headers.org_id())] {
        assert_eq!(values(name), [value.as_bytes()], "{name}");
    }
    assert_eq!(values("x-key-id"), [principal.key_id.expect("a key was used").as_str().as_bytes()]);
    assert_eq!(values("x-permissions"), [headers.permissions().as_bytes()]);
    assert_eq!(values("x-auth-method"), [b"api-key"]);
    assert_eq!(values("x-request-id"), [b"0190-id"]);
    for once in ["via", "forwarded", "x-forwarded-for", "x-forwarded-proto"] {
        assert_eq!(values(once).len(), 1, "{once}");
    }
    assert!(values("x-forwarded-host").len() <= 1 && values("cookie").len() <= 1);
    for never in [
        "apikey",
        "authorization",
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-api-key",
        "x-http-method-override",
        "x-original-url",
        "x-real-ip",
    ] {
        assert!(values(never).is_empty(), "{never}");
    }
    let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    assert!(parsed.headers.iter().all(|field| plain(field.name)), "a name that some server could misread");
}

/// A name as a server could read it that folds all separators into one.
fn folded(name: &str) -> String {
    name.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// A head as the HTTP library could hand it on: version, method, target, and fields, a line each.
fn received(bytes: &[u8]) -> Option<Parts> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let [version, first @ ..] = lines.next()? else { return None };
    let mut words = first.splitn(2, |byte| *byte == b' ');
    let mut request = Request::new(());
    *request.version_mut() = match version % 3 {
        0 => Version::HTTP_10,
        1 => Version::HTTP_11,
        _ => Version::HTTP_2,
    };
    *request.method_mut() = Method::from_bytes(words.next()?).ok()?;
    *request.uri_mut() = Uri::try_from(words.next()?).ok()?;
    *request.headers_mut() = fields(lines);
    Some(request.into_parts().0)
}

fn fields<'a>(lines: impl Iterator<Item = &'a [u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.take(100) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().and_then(|name| HeaderName::from_bytes(name).ok());
        let value = parts.next().and_then(|value| HeaderValue::from_bytes(value.trim_ascii()).ok());
        if let (Some(name), Some(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn principal() -> Principal {
    let (user_id, org_id) = (UserId::generate(), OrgId::generate());
    let key_id = "abcDEF123".parse().expect("a key's id");
    let permissions = ["a:read".parse().expect("a permission"), "b:write".parse().expect("a permission")];
    let headers = PrincipalHeaders::new(user_id, org_id, &permissions);
    Principal { key_id: Some(key_id), user_id, org_id, method: AuthMethod::ApiKey, headers }
}

/// As the upstream gets it, but for the host and the framing, which are made where it is sent.
fn serialized(request: &Request<()>, added: &FieldLines) -> Vec<u8> {
    let mut text = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers().iter().filter(|(name, _)| **name != HOST) {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(added.as_bytes());
    text.extend_from_slice(b"\r\n");
    text
}
