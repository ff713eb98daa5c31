//! A person's browser at a gateway: it keeps cookies by the rules, says where requests come from, and fills in forms.
//!
//! What it sends beside is what browsers send: `Sec-Fetch-Site` and, with what is not safe, `Origin`. Its [`Browser`] is the
//! same person's at identity providers.

use std::net::SocketAddr;

use openidconnect::url::{Position, Url};

use super::ORIGIN;
use crate::oidc::browser::Browser;
use crate::support::{Client, Gateway, Response};

/// What it says that it is.
pub const AGENT: &str = "Visitor/1.0 (test)";
/// The name of the session's cookie.
pub const SESSION: &str = "__Host-keygate";
/// The name of the cookie of a sign-in under way.
pub const SIGN_IN: &str = "__Host-keygate-sign-in";

/// One person's browser.
pub struct Visitor {
    address: SocketAddr,
    cookies: Vec<(String, String)>,
    /// The same browser elsewhere.
    pub elsewhere: Browser,
}

impl Visitor {
    /// A new one, without cookies.
    pub fn new(gateway: &Gateway) -> Self {
        Self::at(gateway.address)
    }

    /// The same, at the gateway with this address.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, cookies: Vec::new(), elsewhere: Browser::new() }
    }

    /// The load balancer sends it to another gateway from now on.
    pub fn move_to(&mut self, address: SocketAddr) {
        self.address = address;
    }

    /// The value of a cookie that it holds.
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.cookies.iter().find(|(held, _)| held == name).map(|(_, value)| value.clone())
    }

    /// Its session.
    pub fn session(&self) -> String {
        self.cookie(SESSION).expect("it is signed in")
    }

    /// Somebody puts a cookie into it.
    pub fn plant(&mut self, name: &str, value: &str) {
        self.cookies.retain(|(held, _)| held != name);
        self.cookies.push((name.to_owned(), value.to_owned()));
    }

    /// Somebody enters an address.
    pub fn open(&mut self, path: &str) -> Response {
        self.send("GET", path, &[("Sec-Fetch-Site", "none"), ("Sec-Fetch-Mode", "navigate")], "")
    }

    /// A page of another site leads here; `SameSite=Lax` cookies come along.
    pub fn arrive(&mut self, path: &str) -> Response {
        self.send("GET", path, &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")], "")
    }

    /// A form of a page here.
    pub fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Response {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.send("POST", path, &[("Sec-Fetch-Site", "same-origin"), ("Origin", ORIGIN), kind], &form)
    }

    /// A script of a page here.
    pub fn fetch(&mut self, method: &str, path: &str) -> Response {
        self.send(method, path, &[("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Mode", "cors")], "")
    }

    /// A request with its cookies and these fields.
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

    /// Goes from the page to sign in to the provider: its address for this sign-in.
    pub fn begin(&mut self, provider: &str, return_to: &str) -> Url {
        let page = self.submit(&format!("/settings/sign-in/{provider}"), &[("return_to", return_to)]);
        refresh(&page).unwrap_or_else(|| panic!("the page leads to no provider: {}", text(&page)))
    }

    /// Signs in at the hostile provider, which asks nothing: where that sends the browser back to.
    pub fn begin_and_come_back(&mut self, provider: &str) -> String {
        let url = self.begin(provider, "");
        self.at_provider(&url)
    }

    /// The hostile provider's page at this address: where it sends the browser back to.
    pub fn at_provider(&mut self, url: &Url) -> String {
        path_here(&self.elsewhere.get(url).redirect().expect("the provider sends the browser back"))
    }

    /// Signs in by the hostile provider: what the callback answers.
    pub fn sign_in(&mut self, provider: &str) -> Response {
        let back = self.begin_and_come_back(provider);
        self.arrive(&back)
    }

    /// Signs in by the certified provider as somebody: what the callback answers.
    pub fn sign_in_as(&mut self, provider: &str, name: &str) -> Response {
        let url = self.begin(provider, "");
        let back = self.elsewhere.sign_in(url.as_str(), name);
        self.arrive(&path_here(&back))
    }

    /// As a browser keeps cookies of the prefix `__Host-` (RFC 6265bis, section 5.7).
    fn keep(&mut self, response: &Response) {
        for (_, field) in response.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let cookie = cookie::Cookie::parse(field.clone()).unwrap();
            let is_good = cookie.secure() == Some(true) && cookie.domain().is_none() && cookie.path() == Some("/");
            assert!(is_good, "no browser keeps this: {}", cookie.name());
            self.cookies.retain(|(held, _)| held != cookie.name());
            let is_over = cookie.value().is_empty() || cookie.max_age().is_some_and(|age| age.is_zero());
            if !is_over {
                self.cookies.push((cookie.name().to_owned(), cookie.value().to_owned()));
            }
        }
    }
}

/// The path and query of an address of the gateway's.
pub fn path_here(url: &Url) -> String {
    assert_eq!(url.origin().ascii_serialization(), ORIGIN, "this leads elsewhere: {url}");
    url[Position::BeforePath..Position::AfterQuery].to_owned()
}

/// Where a page leads by itself.
pub fn refresh(page: &Response) -> Option<Url> {
    let text = text(page);
    let start = text.find("http-equiv=\"refresh\" content=\"0;url=")? + "http-equiv=\"refresh\" content=\"0;url=".len();
    let url = text[start..].split('"').next()?;
    Some(plain(url).parse().unwrap())
}

/// The first form of the main part of a page: where it goes, and the values in it.
pub fn form(page: &Response) -> (String, Vec<(String, String)>) {
    let text = text(page);
    let main = &text[text.find("<main").expect("a page has a main part")..];
    let form = main.split("<form").nth(1).expect("there is a form").split("</form>").next().unwrap();
    let action = attribute(form, "action").unwrap_or_default();
    let inputs = form.split("<input").skip(1);
    (action, inputs.filter_map(|input| Some((attribute(input, "name")?, attribute(input, "value")?))).collect())
}

/// A page's text.
pub fn text(page: &Response) -> String {
    String::from_utf8_lossy(&page.body).into_owned()
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag[..tag.find('>')?].split_once(&format!("{name}=\""))?.1;
    Some(plain(value.split('"').next()?))
}

/// HTML's text, as it is.
fn plain(html: &str) -> String {
    html.replace("&#34;", "\"").replace("&#60;", "<").replace("&#62;", ">").replace("&#39;", "'").replace("&#38;", "&")
}
