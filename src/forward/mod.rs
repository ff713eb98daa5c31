//! From the head that was received to the head that is sent, in both directions: pure functions, first remove, then set.
//!
//! - Only a head that has been checked ([`ValidatedHead`]) can be forwarded: one that every server reads alike.
//! - Nothing of the client's identity headers survives: a field is removed when its name is a reserved one, or has any
//!   other character than letters, digits and `-`. So `X_User_Id`, `x.user-id` and their like never arrive, whatever the
//!   upstream's server makes of names.
//! - Hop-by-hop fields, and those that `Connection` names, go before the identity is set; so a client cannot have the
//!   gateway's own fields removed by naming them.
//! - The gateway's own cookies, which are credentials, go no further.
//! - Framing is made anew, from the body, in both directions.

mod validated_head;
mod client;
mod hop_by_hop;
mod field_names;
mod cookies;
mod features;
mod response;
mod trailers;

use http::header::{CONTENT_LENGTH, FORWARDED, HOST, TRANSFER_ENCODING, VIA};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};

use crate::identity::{
    Peer, Principal, X_AUTH_METHOD, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_KEY_ID, X_ORG_ID,
    X_PERMISSIONS, X_REQUEST_ID, X_USER_ID,
};

pub use client::{Client, TrustedProxies};
pub use features::{AllowedFeatures, RequestFeatures};
pub use response::{InvalidResponse, rewrite_response};
pub use trailers::rewrite_trailers;
pub use validated_head::{InvalidHead, ValidatedHead};

/// What the gateway knows of a request that its head alone does not say.
#[derive(Clone, Copy, Debug)]
pub struct ForwardContext<'a> {
    /// The other end of the connection.
    pub peer: &'a Peer,
    /// The client, by the trusted-proxy rule.
    pub client: &'a Client,
    /// Who it acts as.
    pub principal: &'a Principal,
    /// The request's id.
    pub request_id: &'a HeaderValue,
}

/// A head to send upstream.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// The head.
    pub request: Request<()>,
    /// Names of fields that were removed because some server could misread them.
    pub dropped_fields: usize,
}

/// The head to send upstream, made of the head that was received. `Host` is left to the upstream side.
pub fn rewrite_request(received: ValidatedHead, facts: ForwardContext<'_>) -> UpstreamRequest {
    let received = received.into_parts();
    let host = received_host(&received.uri, &received.headers);
    let proto = facts.client.proto(facts.peer, &received.headers);
    let via = via(received.version);
    let mut headers = received.headers;
    hop_by_hop::remove(&mut headers);
    headers.remove(CONTENT_LENGTH);
    headers.remove(HOST);
    let dropped_fields = field_names::remove_reserved(&mut headers);
    cookies::clean(&mut headers);

    let principal = &facts.principal.headers;
    headers.insert(X_USER_ID, principal.user_id.clone());
    headers.insert(X_ORG_ID, principal.org_id.clone());
    if let Some(key_id) = &principal.key_id {
        headers.insert(X_KEY_ID, key_id.clone());
    }
    headers.insert(X_PERMISSIONS, principal.permissions.clone());
    headers.insert(X_AUTH_METHOD, HeaderValue::from_static(facts.principal.method.as_str()));
    headers.insert(X_REQUEST_ID, facts.request_id.clone());
    headers.insert(VIA, via);
    headers.insert(X_FORWARDED_FOR, facts.client.forwarded_for());
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(proto));
    headers.insert(FORWARDED, facts.client.forwarded(host.as_ref(), proto));
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host);
    }
    UpstreamRequest { request: head(received.method, &received.uri, headers), dropped_fields }
}

/// Says how the body of a request is framed, where the HTTP library would say nothing or drop it: a body of unknown
/// length on any method, and no body on a method that should have one (RFC 9110, section 8.6).
pub fn frame(request: &mut Request<()>, length: Option<u64>) {
    match length {
        None => drop(request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
        Some(0) if matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) => {
            drop(request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0)));
        }
        Some(_) => {}
    }
}

/// The request in origin form (RFC 9112, section 3.2.1), its path and query exactly as received, but for an empty path,
/// which is `/` there.
fn head(method: Method, uri: &Uri, headers: HeaderMap) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = method;
    let target = uri.path_and_query().filter(|target| target.as_str() != "/");
    *request.uri_mut() = target.map_or_else(|| Uri::from_static("/"), |target| Uri::from(target.clone()));
    *request.headers_mut() = headers;
    request
}

/// The host the client asked for: `:authority` or an absolute target before `Host` (RFC 9112, section 3.2.2).
fn received_host(uri: &Uri, headers: &HeaderMap) -> Option<HeaderValue> {
    match uri.authority() {
        Some(authority) => {
            let host = authority.as_str().rsplit('@').next().unwrap_or_default();
            HeaderValue::from_str(host).ok()
        }
        None => headers.get(HOST).cloned(),
    }
}

/// The protocol received (RFC 9110, section 7.6.3).
fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_2 => "2 keygate",
        Version::HTTP_10 => "1.0 keygate",
        _ => "1.1 keygate",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{AuthMethod, OrgId, PrincipalHeaders, UserId};

    fn principal() -> Principal {
        let (user_id, org_id) = (UserId::generate(), OrgId::generate());
        let key_id = "abcDEF123".parse().unwrap();
        let permissions = ["a:read".parse().unwrap(), "b:write".parse().unwrap()];
        let headers = PrincipalHeaders::new(user_id, org_id, Some(key_id), &permissions);
        Principal { key_id: Some(key_id), user_id, org_id, method: AuthMethod::ApiKey, headers }
    }

    fn forward(request: Request<()>) -> HeaderMap {
        let peer = Peer { address: "192.0.2.7:4711".parse().unwrap(), tls: false };
        let parts = request.into_parts().0;
        let client = Client::find(&peer, &parts.headers, &TrustedProxies::default());
        let principal = principal();
        let request_id = HeaderValue::from_static("id");
        let facts = ForwardContext { peer: &peer, client: &client, principal: &principal, request_id: &request_id };
        let sent = rewrite_request(ValidatedHead::validate(parts).unwrap(), facts).request;
        for (name, value) in [("x-user-id", principal.user_id.to_string()), ("x-org-id", principal.org_id.to_string())]
        {
            let values: Vec<_> = sent.headers().get_all(name).iter().collect();
            assert_eq!(values, [value.as_str()], "{name}");
        }
        sent.into_parts().0.headers
    }

    #[test]
    fn a_client_cannot_have_our_fields_removed_by_naming_them() {
        let request = Request::get("/").header("connection", "x-user-id, X-Org-Id, via, close").header("host", "h");
        let headers = forward(request.body(()).unwrap());
        assert_eq!(headers["via"], "1.1 keygate");
        assert_eq!(headers["x-permissions"], "a:read,b:write");
        assert!(!headers.contains_key("connection"));
    }

    #[test]
    fn says_where_the_request_came_from() {
        let headers = forward(Request::get("/a?b").header("host", "example.com:8080").body(()).unwrap());
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
        assert_eq!(headers["x-forwarded-host"], "example.com:8080");
        assert_eq!(headers["forwarded"], "for=192.0.2.7;host=\"example.com:8080\";proto=http");
    }

    #[test]
    fn framing_and_credentials_stay_here() {
        let request =
            Request::post("/").header("host", "h").header("content-length", "5").header("transfer-encoding", "chunked");
        let request =
            request.header("authorization", "Bearer x").header("te", "trailers").header("expect", "100-continue");
        let headers = forward(request.body(()).unwrap());
        for name in ["content-length", "transfer-encoding", "authorization", "te", "expect", "host"] {
            assert!(!headers.contains_key(name), "{name}");
        }
    }
}
