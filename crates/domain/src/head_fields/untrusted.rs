//! Request fields that upstreams commonly trust: the client's address, the requested resource, the method, or the
//! identity that another proxy sets.
//!
//! A client can send any of them, and the gateway sets none of them, so all are removed. Each group names its source.
//! `PassedFields` lets single names through, for a proxy in front that always sets them.

/// Fields with the client's address, its connection, the requested resource and the method.
///
/// - Addresses: nginx `ngx_http_realip_module` (`X-Real-IP`), Akamai and Cloudflare (`True-Client-IP`, `CF-…`), Fastly,
///   Fly.io, DigitalOcean, Netlify, Vercel, Azure Front Door, Google App Engine, Imperva, Sucuri, Rackspace
///   (`X-Cluster-Client-IP`), WebLogic (`WL-Proxy-…`); and the names that the libraries `request-ip` (Node.js) and
///   `remote_ip` (Rails) try in turn.
/// - Connection: IIS with ARR and Microsoft's ISA (`Front-End-Https`), CloudFront, WebLogic, WSGI's `X-Url-Scheme`.
/// - Resource: IIS URL Rewrite, Zend and Symfony (`X-Original-URL`, `X-Rewrite-URL`; CVE-2018-14773), nginx
///   `auth_request` (`X-Original-URI`), Akka and others (`X-Host`); CGI programs take `Proxy` for `HTTP_PROXY`
///   (httpoxy, CVE-2016-5385).
/// - Method: Google's, Microsoft's and IBM's names for it, as Express' `method-override`, Rack and ASP.NET read them.
pub(super) const SPOOFABLE: &[&str] = &[
    // Addresses.
    "ali-cdn-real-ip",
    "cdn-src-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "client-ip",
    "do-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded-for",
    "http-client-ip",
    "incap-client-ip",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-appengine-remote-addr",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded",
    "x-nf-client-connection-ip",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-real-port",
    "x-remote-addr",
    "x-remote-host",
    "x-remote-ip",
    "x-sucuri-clientip",
    "x-true-client-ip",
    "x-vercel-forwarded-for",
    "x-vercel-proxied-for",
    // Connection.
    "cloudfront-forwarded-proto",
    "cloudfront-viewer-address",
    "front-end-https",
    "wl-proxy-ssl",
    "x-arr-ssl",
    "x-real-proto",
    "x-scheme",
    "x-url-scheme",
    // Resource.
    "destination-url",
    "proxy",
    "proxy-host",
    "request-uri",
    "x-host",
    "x-http-destinationurl",
    "x-http-host-override",
    "x-override-url",
    "x-proxy-host",
    "x-proxy-url",
    "x-rewrite-uri",
    "x-rewrite-url",
    // Method.
    "http-method-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];

/// Prefixes of such names. Envoy's fields also control retries, time-outs and routes of a mesh (`X-Envoy-…`); ingress
/// controllers state the resource before their rewriting (`X-Original-URL`, `…-URI`, `…-Host`, `…-Forwarded-For`).
pub(super) const SPOOFABLE_PREFIXES: &[&str] = &["x-envoy-", "x-original-"];

/// Identities as other authenticating proxies set them: Authelia, Authentik, Grafana's `auth.proxy`, oauth2-proxy,
/// Cloudflare Access, Google IAP, AWS ALB, Azure Easy Auth and SiteMinder; and client certificates of RFC 9440, nginx,
/// Traefik and ARR. No setting lets them through: only the gateway names the caller.
pub(super) const IDENTITIES: &[&str] = &[
    "client-cert",
    "client-cert-chain",
    "remote-email",
    "remote-groups",
    "remote-name",
    "remote-user",
    "sm-user",
    "x-arr-clientcert",
    "x-authenticated-groups",
    "x-authenticated-user",
    "x-authenticated-userid",
    "x-client-cert",
    "x-remote-group",
    "x-remote-groups",
    "x-remote-user",
    "x-webauth-user",
];

/// Prefixes of such names.
pub(super) const IDENTITY_PREFIXES: &[&str] = &[
    "cf-access-",
    "ssl-client-",
    "x-amzn-mtls-",
    "x-amzn-oidc-",
    "x-auth-request-",
    "x-authentik-",
    "x-goog-authenticated-user-",
    "x-goog-iap-",
    "x-ms-client-principal",
    "x-ssl-client-",
    "x-vouch-",
];
