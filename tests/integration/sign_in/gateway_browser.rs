//! A simulated browser at a gateway: it stores cookies, sends `Sec-Fetch-Site`, and `Origin` with unsafe methods, and
//! submits forms. [`Browser`] is the same browser at identity providers.

use std::net::SocketAddr;

use url::{Position, Url};

use super::ORIGIN;
use crate::oidc::browser::Browser;
use crate::support::{Client, Gateway, Response};

/// Its user agent.
pub const AGENT: &str = "Browser/1.0 (test)";
/// Name of the session cookie.
pub const SESSION: &str = "__Host-keygate";
/// Beginning of the name of the cookie of pending sign-ins.
pub const SIGN_IN: &str = "__Host-keygate-sign-in";

/// A simulated browser.
pub struct GatewayBrowser {
    address: SocketAddr,
    cookies: Vec<(String, String)>,
    /// The same browser at identity providers.
    pub elsewhere: Browser,
}

impl GatewayBrowser {
    /// A browser without cookies.
    pub fn new(gateway: &Gateway) -> Self {
        Self::at(gateway.address)
    }

    /// A browser without cookies, at the gateway with this address.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, cookies: Vec::new(), elsewhere: Browser::new() }
    }

    /// Sends later requests to another gateway, as a load balancer may do.
    pub fn move_to(&mut self, address: SocketAddr) {
        self.address = address;
    }

    /// The value of a stored cookie.
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.cookies.iter().find(|(held, _)| held == name).map(|(_, value)| value.clone())
    }

    /// All cookies.
    pub fn cookies(&self) -> &[(String, String)] {
        &self.cookies
    }

    /// Names and values of the cookies of pending sign-ins, oldest first.
    pub fn sign_in_cookies(&self) -> Vec<(String, String)> {
        self.cookies.iter().filter(|(held, _)| held.starts_with(SIGN_IN)).cloned().collect()
    }

    /// The value of the newest cookie of pending sign-ins.
    pub fn sign_in_cookie(&self) -> Option<String> {
        self.sign_in_cookies().pop().map(|(_, value)| value)
    }

    /// The value of the session cookie.
    pub fn session(&self) -> String {
        self.cookie(SESSION).expect("it is signed in")
    }

    /// Stores a cookie.
    pub fn plant(&mut self, name: &str, value: &str) {
        self.cookies.retain(|(held, _)| held != name);
        self.cookies.push((name.to_owned(), value.to_owned()));
    }

    /// Opens an address that was typed.
    pub fn open(&mut self, path: &str) -> Response {
        self.send("GET", path, &[("Sec-Fetch-Site", "none"), ("Sec-Fetch-Mode", "navigate")], "")
    }

    /// Follows a link from another site, which sends `SameSite=Lax` cookies.
    pub fn arrive(&mut self, path: &str) -> Response {
        self.send("GET", path, &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")], "")
    }

    /// Submits a form of the gateway's own page.
    pub fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Response {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.send("POST", path, &[("Sec-Fetch-Site", "same-origin"), ("Origin", ORIGIN), kind], &form)
    }

    /// Sends a request from a script of the gateway's own page.
    pub fn fetch(&mut self, method: &str, path: &str) -> Response {
        self.send(method, path, &[("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Mode", "cors")], "")
    }

    /// Sends a request with the stored cookies and these fields.
    pub fn send(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Response {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = cookies.join("; ");
        let mut sent = vec![("User-Agent", AGENT), ("Accept", "text/html")];
        sent.extend_from_slice(fields);
        if !cookies.is_empty() {
            sent.push(("Cookie", &cookies));
        }
        let response = Client::connect(self.address).request(method, path, "", &sent, body.as_bytes());
        self.keep(&response);
        response
    }

    /// Begins a sign-in; returns the provider's address.
    pub fn begin(&mut self, provider: &str, return_to: &str) -> Url {
        let page = self.submit(&format!("/settings/sign-in/{provider}"), &[("return_to", return_to)]);
        refresh(&page).unwrap_or_else(|| panic!("the page leads to no provider: {}", text(&page)))
    }

    /// Begins a sign-in at the hostile provider, which shows no form; returns the path of the callback.
    pub fn begin_and_come_back(&mut self, provider: &str) -> String {
        let url = self.begin(provider, "");
        self.at_provider(&url)
    }

    /// Opens this address at the hostile provider; returns the path of the callback.
    pub fn at_provider(&mut self, url: &Url) -> String {
        path_here(&self.elsewhere.get(url).redirect().expect("the provider sends the browser back"))
    }

    /// Signs in by the hostile provider; returns the response to the callback.
    pub fn sign_in(&mut self, provider: &str) -> Response {
        let back = self.begin_and_come_back(provider);
        self.arrive(&back)
    }

    /// Signs in by the certified provider with this login; returns the response to the callback.
    pub fn sign_in_as(&mut self, provider: &str, name: &str) -> Response {
        let url = self.begin(provider, "");
        let back = self.elsewhere.sign_in(url.as_str(), name);
        self.arrive(&path_here(&back))
    }

    /// Stores the cookies of a response by the rules of the prefix `__Host-` (RFC 6265bis, section 5.7).
    fn keep(&mut self, response: &Response) {
        for (_, field) in response.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let cookie = cookie::Cookie::parse(field.clone()).unwrap();
            let is_good = cookie.secure() == Some(true) && cookie.domain().is_none() && cookie.path() == Some("/");
            assert!(is_good, "browsers do not store this cookie: {}", cookie.name());
            self.cookies.retain(|(held, _)| held != cookie.name());
            let is_over = cookie.value().is_empty() || cookie.max_age().is_some_and(|age| age.is_zero());
            if !is_over {
                self.cookies.push((cookie.name().to_owned(), cookie.value().to_owned()));
            }
        }
    }
}

/// Path and query of an address at the gateway.
pub fn path_here(url: &Url) -> String {
    assert_eq!(url.origin().ascii_serialization(), ORIGIN, "the address is not the gateway's: {url}");
    url[Position::BeforePath..Position::AfterQuery].to_owned()
}

/// The address that a page refreshes to.
pub fn refresh(page: &Response) -> Option<Url> {
    let text = text(page);
    let start = text.find("http-equiv=\"refresh\" content=\"0;url=")? + "http-equiv=\"refresh\" content=\"0;url=".len();
    let url = text[start..].split('"').next()?;
    Some(plain(url).parse().unwrap())
}

/// The first form in the main part of a page: its action and its values.
pub fn form(page: &Response) -> (String, Vec<(String, String)>) {
    let text = text(page);
    let main = &text[text.find("<main").expect("a page has a main part")..];
    let form = main.split("<form").nth(1).expect("there is a form").split("</form>").next().unwrap();
    let action = attribute(form, "action").unwrap_or_default();
    let inputs = form.split("<input").skip(1);
    (action, inputs.filter_map(|input| Some((attribute(input, "name")?, attribute(input, "value")?))).collect())
}

/// The body of a response as text.
pub fn text(page: &Response) -> String {
    String::from_utf8_lossy(&page.body).into_owned()
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag[..tag.find('>')?].split_once(&format!("{name}=\""))?.1;
    Some(plain(value.split('"').next()?))
}

/// Decodes the character references of HTML.
fn plain(html: &str) -> String {
    html.replace("&#34;", "\"").replace("&#60;", "<").replace("&#62;", ">").replace("&#39;", "'").replace("&#38;", "&")
}
