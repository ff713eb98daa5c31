//! First door: the head of a client's request becomes the head that goes to the upstream.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

use super::client::Client;
use super::features::{AllowedFeatures, RequestFeatures};
use super::passed_fields::PassedFields;
use super::validated_head::ValidatedHead;
use super::{cookies, field_names, hop_by_hop, target};
use domain::field_lines::{FieldLines, LineBuffer};
use domain::head_fields::{CredentialFields, FieldSet};
use domain::head_memory::HeadMemory;
use domain::identity::{
    IDENTITY_FIELDS, ORIGIN_FIELDS, Peer, Principal, PrincipalHeaders, X_AUTH_METHOD, X_KEY_ID, X_ORG_ID,
    X_PERMISSIONS, X_REQUEST_ID, X_USER_ID,
};
use platform::telemetry::ObservedRequest;

/// `X-Auth-Method` of requests to public routes.
const NO_AUTH_METHOD: HeaderValue = HeaderValue::from_static("none");

/// Facts about a request that its head alone does not contain.
#[derive(Clone, Copy, Debug)]
pub struct ForwardContext<'a> {
    /// Other end of the connection.
    pub peer: &'a Peer,
    /// Client, by the trusted-proxy rule.
    pub client: &'a Client,
    /// Authenticated caller; none on a public route.
    pub principal: Option<&'a Principal>,
    /// Id of the request.
    pub request_id: &'a HeaderValue,
    /// Beginning of the path that the upstream does not see. The path begins with it, up to the end of a segment.
    pub strip_prefix: Option<&'a str>,
    /// Fields, beside `Authorization`, that may have carried the key.
    pub credentials: &'a CredentialFields,
    /// True if `Authorization` is the upstream's: it goes through as it came.
    pub pass_authorization: bool,
    /// Features that the route allows.
    pub allowed: AllowedFeatures<'a>,
    /// Spoofable fields that the configuration lets through.
    pub passed: &'a PassedFields,
    /// `Host` that the upstream gets.
    pub host: &'a HostPolicy,
    /// The request, in the context of whose trace the upstream is called. Without a trace, the client's goes through.
    pub trace: Option<&'a ObservedRequest>,
    /// Memory of the lines that are added.
    pub memory: &'a HeadMemory,
}

/// `Host` that an upstream gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostPolicy {
    /// The name or address, and port, of the endpoint.
    #[default]
    Endpoint,
    /// The client's, which was validated; that of the endpoint where an HTTP/1.0 client sends none.
    Client,
    /// This one.
    Name(HeaderValue),
}

impl HostPolicy {
    /// The name that is the same for all requests; none where each has its own.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Endpoint | Self::Client => None,
            Self::Name(name) => name.to_str().ok(),
        }
    }
}

/// Head to send upstream.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// Its head, without the fields in `added`. Without a `Host`, or with an empty one, the upstream side sets that of
    /// the endpoint.
    pub request: Request<()>,
    /// The fields that say who the caller is, and where the request came from. The head has none of them.
    pub added: FieldLines,
    /// Features that the client asked for and the route allows. The response is rewritten by them.
    pub features: RequestFeatures,
    /// Names of fields that were removed because some server could misread them.
    pub dropped_fields: usize,
    /// True if a trusted proxy names a scheme that is not known: that of the connection counts.
    pub has_unknown_proto: bool,
}

/// Rewrites a head for the upstream. `body_length` is the exact length of the request's body in bytes, if it is known.
pub fn rewrite_request(head: ValidatedHead, body_length: Option<u64>, context: ForwardContext<'_>) -> UpstreamRequest {
    let fields = head.fields();
    let head = head.into_parts();
    let features = RequestFeatures::from_head(&head, body_length == Some(0), context.allowed);
    let proto = context.client.proto(context.peer, &head.headers);
    let via = via(head.version);
    let mut headers = head.headers;
    // Its place in the table is kept for the endpoint's.
    let host = headers.get_mut(HOST).map(|host| std::mem::replace(host, HeaderValue::from_static("")));
    let host = requested_host(&head.uri).or(host);
    let dropped_fields = remove_fields(&mut headers, fields, &context);
    let is_removed = |name| !headers.contains_key(name);
    debug_assert!(IDENTITY_FIELDS.iter().chain(&ORIGIN_FIELDS).all(is_removed), "what the gateway sets was removed");
    let added = context.memory.lines(|lines| {
        push_identity(lines, context.principal, context.request_id);
        context.client.push_origin(lines, host.as_ref(), proto.name, via);
    });
    let sent_host = match context.host {
        HostPolicy::Endpoint => None,
        HostPolicy::Client => host.as_ref(),
        HostPolicy::Name(name) => Some(name),
    };
    if let Some(host) = sent_host {
        headers.insert(HOST, host.clone());
    }
    if let Some(trace) = context.trace {
        trace.write_state(&mut headers);
    }
    set_framing(&mut headers, &head.method, body_length);
    features.write_headers(&mut headers);
    UpstreamRequest {
        request: build(head.method, target::rewrite(head.uri, context.strip_prefix), headers),
        added,
        features,
        dropped_fields,
        has_unknown_proto: proto.is_unknown,
    }
}

/// Removes what must not be forwarded, of the fields that the head has. Returns how many names some
/// server could misread.
fn remove_fields(headers: &mut HeaderMap, fields: FieldSet, context: &ForwardContext<'_>) -> usize {
    hop_by_hop::remove_noted(headers, fields);
    if fields.contains(FieldSet::CONTENT_LENGTH) {
        headers.remove(CONTENT_LENGTH);
    }
    if fields.contains(FieldSet::CREDENTIAL) {
        context.credentials.remove_from(headers);
    }
    if fields.contains(FieldSet::AUTHORIZATION) && !context.pass_authorization {
        headers.remove(AUTHORIZATION);
    }
    let has_untrusted = fields.contains(FieldSet::UNTRUSTED.with(FieldSet::ODD_NAME));
    let dropped = if has_untrusted {
        field_names::remove_untrusted(headers, context.passed.names(), context.pass_authorization)
    } else {
        0
    };
    if fields.contains(FieldSet::COOKIE) {
        cookies::clean_request(headers);
    }
    dropped
}

/// Appends the lines of the identity that the upstream trusts.
fn push_identity(lines: &mut LineBuffer, principal: Option<&Principal>, request_id: &HeaderValue) {
    lines.push(&X_REQUEST_ID, request_id.as_bytes());
    let Some(principal) = principal else { return lines.push(&X_AUTH_METHOD, NO_AUTH_METHOD.as_bytes()) };
    lines.push(&X_AUTH_METHOD, principal.method.as_str().as_bytes());
    lines.append(principal.headers.lines());
    if let Some(key) = &principal.key_id {
        lines.push(&X_KEY_ID, key.as_str().as_bytes());
    }
}

/// The [`IDENTITY_FIELDS`], each with the value that [`rewrite_request`] sets, or none where the caller has none.
pub fn identity_fields(
    principal: Option<&Principal>,
    request_id: &HeaderValue,
) -> [(HeaderName, Option<HeaderValue>); 6] {
    let headers = principal.map(|principal| &principal.headers);
    let key = principal.and_then(|principal| principal.key_id.as_ref());
    [
        (X_REQUEST_ID, Some(request_id.clone())),
        (X_AUTH_METHOD, Some(principal.map_or(NO_AUTH_METHOD, |principal| principal.method.header()))),
        (X_USER_ID, headers.map(PrincipalHeaders::user_id)),
        (X_ORG_ID, headers.map(PrincipalHeaders::org_id)),
        (X_KEY_ID, key.map(|key| HeaderValue::from_str(key.as_str()).expect("a key id is letters and digits"))),
        (X_PERMISSIONS, headers.map(PrincipalHeaders::permissions)),
    ]
}

/// Sets the framing where the HTTP library would set none or drop it: for a body of unknown length on any method, and
/// for no body on a method that should have one (RFC 9110, section 8.6).
fn set_framing(headers: &mut HeaderMap, method: &Method, body_length: Option<u64>) {
    match body_length {
        None => drop(headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
        Some(0) if matches!(*method, Method::POST | Method::PUT | Method::PATCH) => {
            drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(0)));
        }
        Some(_) => {}
    }
}

fn build(method: Method, target: Uri, headers: HeaderMap) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = target;
    *request.headers_mut() = headers;
    request
}

/// Host in the target, which counts more than `Host` (RFC 9112, section 3.2.2).
fn requested_host(uri: &Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?;
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    HeaderValue::from_str(host).ok()
}

/// `Via` for the protocol of the received request (RFC 9110, section 7.6.3).
fn via(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2 keygate",
        Version::HTTP_10 => "1.0 keygate",
        _ => "1.1 keygate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::TrustedProxies;
    use domain::identity::{AuthMethod, OrgId, UserId};

    fn principal() -> Principal {
        let user_id = UserId::generate();
        let org_id = OrgId::generate();
        let key_id = "abcDEF123".parse().unwrap();
        let permissions = ["a:read".parse().unwrap(), "b:write".parse().unwrap()];
        let headers = PrincipalHeaders::new(user_id, org_id, &permissions);
        Principal { key_id: Some(key_id), user_id, org_id, method: AuthMethod::ApiKey, headers }
    }

    fn forward(request: Request<()>, length: u64) -> HeaderMap {
        let peer = Peer { address: "192.0.2.7:4711".parse().unwrap(), tls: None, certificate: None };
        let parts = request.into_parts().0;
        let client = Client::find(&peer, &parts.headers, &TrustedProxies::default());
        let principal = principal();
        let request_id = HeaderValue::from_static("id");
        let context = ForwardContext {
            peer: &peer,
            client: &client,
            principal: Some(&principal),
            request_id: &request_id,
            strip_prefix: None,
            credentials: &CredentialFields::NONE,
            pass_authorization: false,
            allowed: AllowedFeatures::default(),
            passed: &PassedFields::default(),
            host: &HostPolicy::Endpoint,
            trace: None,
            memory: &HeadMemory::default(),
        };
        let head = ValidatedHead::validate(parts, &CredentialFields::NONE).unwrap();
        let UpstreamRequest { request: mut sent, added, .. } = rewrite_request(head, Some(length), context);
        added.write_to(sent.headers_mut());
        for (name, value) in [("x-user-id", principal.user_id.to_string()), ("x-org-id", principal.org_id.to_string())]
        {
            let values: Vec<_> = sent.headers().get_all(name).iter().collect();
            assert_eq!(values, [value.as_str()], "{name}");
        }
        sent.into_parts().0.headers
    }

    #[test]
    fn gateway_fields_survive_being_named_by_connection() {
        let request = Request::get("/").header("connection", "x-user-id, X-Org-Id, via, close").header("host", "h");
        let headers = forward(request.body(()).unwrap(), 0);
        assert_eq!(headers["via"], "1.1 keygate");
        assert_eq!(headers["x-permissions"], "a:read,b:write");
        assert!(!headers.contains_key("connection"));
    }

    #[test]
    fn origin_of_the_request_is_forwarded() {
        let headers = forward(Request::get("/a?b").header("host", "example.com:8080").body(()).unwrap(), 0);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
        assert_eq!(headers["x-forwarded-host"], "example.com:8080");
        assert_eq!(headers["forwarded"], "for=192.0.2.7;host=\"example.com:8080\";proto=http");
    }

    #[test]
    fn framing_and_credentials_are_not_forwarded() {
        let request =
            Request::post("/").header("host", "h").header("content-length", "5").header("transfer-encoding", "chunked");
        let request =
            request.header("authorization", "Bearer x").header("te", "trailers").header("expect", "100-continue");
        let headers = forward(request.body(()).unwrap(), 5);
        for name in ["content-length", "transfer-encoding", "authorization", "te", "expect"] {
            assert!(!headers.contains_key(name), "{name}");
        }
    }
}
