//! A browser as far as a sign-in needs one: it keeps cookies, follows redirects and fills in forms.
//!
//! It speaks HTTP in the clear. Cookies are kept by host and port (a real browser does not tell ports apart).

use std::net::ToSocketAddrs as _;

use url::{Position, Url};

use crate::support::{Client, Response};

/// Browser of one user.
#[derive(Default)]
pub struct Browser {
    cookies: Vec<Cookie>,
}

/// Response of an address.
#[derive(Debug)]
pub struct Page {
    pub url: Url,
    pub response: Response,
}

struct Cookie {
    authority: String,
    path: String,
    name: String,
    value: String,
}

impl Browser {
    /// A browser without cookies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a `GET` request, without following redirects.
    pub fn get(&mut self, url: &Url) -> Page {
        self.exchange("GET", url, "")
    }

    /// Sends a form.
    pub fn submit(&mut self, url: &Url, fields: &[(&str, &str)]) -> Page {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.exchange("POST", url, &form)
    }

    /// Follows redirects within the same host and port. Returns the last page, or the address
    /// elsewhere that it leads to.
    pub fn follow(&mut self, mut page: Page) -> Result<Page, Url> {
        for _ in 0..20 {
            let Some(next) = page.redirect() else { return Ok(page) };
            if authority(&next) != authority(&page.url) {
                return Err(next);
            }
            page = self.get(&next);
        }
        panic!("redirected for ever, last to {}", page.url);
    }

    /// Signs in at the certified provider with this account name, and consents. Returns the address that it sends the
    /// browser back to.
    pub fn sign_in(&mut self, url: &str, name: &str) -> Url {
        let page = self.get(&url.parse().unwrap());
        let mut page = match self.follow(page) {
            Ok(page) => page,
            // A user who is signed in already sees no form.
            Err(back) => return back,
        };
        for _ in 0..3 {
            let form = page.form().unwrap_or_else(|| panic!("no form at {}: {}", page.url, page.text()));
            let is_login = form.1.contains(&("prompt".into(), "login".into()));
            let mut fields: Vec<(&str, &str)> = form.1.iter().map(|(name, value)| (&**name, &**value)).collect();
            if is_login {
                fields.extend([("login", name), ("password", "any")]);
            }
            let next = self.submit(&form.0, &fields);
            page = match self.follow(next) {
                Ok(page) => page,
                Err(back) => return back,
            };
        }
        panic!("asked for ever, last at {}: {}", page.url, page.text());
    }

    fn exchange(&mut self, method: &str, url: &Url, form: &str) -> Page {
        let cookies: Vec<String> = self.cookies.iter().filter(|cookie| cookie.is_for(url)).map(Cookie::pair).collect();
        let cookies = if cookies.is_empty() { String::new() } else { format!("Cookie: {}\r\n", cookies.join("; ")) };
        let target = &url[Position::BeforePath..Position::AfterQuery];
        let origin = url.origin().ascii_serialization();
        let address = authority(url).to_socket_addrs().unwrap().next().unwrap();
        let mut client = Client::connect(address);
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nOrigin: {origin}\r\nAccept: text/html\r\n{cookies}\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
            authority(url),
            form.len(),
        ));
        let response = client.response_to(method);
        self.keep(url, &response);
        Page { url: url.clone(), response }
    }

    fn keep(&mut self, url: &Url, response: &Response) {
        for (_, field) in response.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let cookie = cookie::Cookie::parse(field.clone()).unwrap();
            let path = cookie.path().unwrap_or("/").to_owned();
            let is_same =
                |kept: &Cookie| kept.authority == authority(url) && kept.name == cookie.name() && kept.path == path;
            self.cookies.retain(|kept| !is_same(kept));
            let is_over = cookie.value().is_empty()
                || cookie.max_age().is_some_and(|age| age.is_zero())
                || cookie.expires_datetime().is_some_and(|at| at.unix_timestamp() <= 0);
            if !is_over {
                let (name, value) = (cookie.name().to_owned(), cookie.value().to_owned());
                self.cookies.push(Cookie { authority: authority(url), path, name, value });
            }
        }
    }
}

impl Page {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.response.body).into_owned()
    }

    /// The target of a redirect; none for another response.
    pub fn redirect(&self) -> Option<Url> {
        let is_redirect = (300..400).contains(&self.response.status);
        let location = self.response.header("location").filter(|_| is_redirect)?;
        Some(self.url.join(location).unwrap())
    }

    /// The first form: its action, and the values that it has already.
    pub fn form(&self) -> Option<(Url, Vec<(String, String)>)> {
        let text = self.text();
        let form = &text[text.find("<form")?..];
        let form = &form[..form.find("</form>")?];
        let action = self.url.join(&attribute(form, "action")?).unwrap();
        let inputs = form.split("<input").skip(1);
        let fields = inputs.filter_map(|input| Some((attribute(input, "name")?, attribute(input, "value")?)));
        Some((action, fields.collect()))
    }
}

impl Cookie {
    fn is_for(&self, url: &Url) -> bool {
        let below = url.path().strip_prefix(&self.path);
        let is_below = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || self.path.ends_with('/'));
        self.authority == authority(url) && is_below
    }

    fn pair(&self) -> String {
        format!("{}={}", self.name, self.value)
    }
}

fn authority(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap(), url.port_or_known_default().unwrap())
}

/// An attribute of the first tag of a text.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let tag = &tag[..tag.find('>')?];
    let start = tag.find(&format!("{name}=\""))? + name.len() + 2;
    let value = &tag[start..];
    Some(value[..value.find('"')?].replace("&amp;", "&"))
}
