//! Chromium's extensions of WebDriver: the DevTools protocol and logs.

use std::collections::BTreeSet;

use fantoccini::wd::WebDriverCompatibleCommand;
use form_urlencoded::parse;
use http::Method;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// A command that only Chromium has.
#[derive(Debug)]
pub struct Extended {
    path: &'static str,
    body: Value,
}

impl Extended {
    /// A command of the DevTools protocol.
    pub fn devtools(command: &str, parameters: Value) -> Self {
        Self { path: "goog/cdp/execute", body: json!({ "cmd": command, "params": parameters }) }
    }

    /// The entries of a log since it was last read.
    pub fn log(kind: &str) -> Self {
        Self { path: "se/log", body: json!({ "type": kind }) }
    }
}

impl WebDriverCompatibleCommand for Extended {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// The secrets in an event of the network log: the gateway's cookies, link tokens, and values from a provider.
pub fn secrets(event: &Value) -> BTreeSet<String> {
    let message: Value = serde_json::from_str(event["message"].as_str().unwrap()).unwrap();
    let parameters = &message["message"]["params"];
    let url = parameters["request"]["url"].as_str().unwrap_or_default();
    let headers = parameters["headers"].as_object().into_iter().flatten();
    let cookies = headers.filter(|(name, _)| matches!(name.to_lowercase().as_str(), "cookie" | "set-cookie"));
    let cookies = cookies.flat_map(|(_, value)| value.as_str().unwrap_or_default().split(['\n', ';']));
    let cookies = cookies.filter_map(|pair| pair.trim().strip_prefix("__Host-keygate")?.split_once('='));
    let cookies = cookies.map(|(_, value)| value.to_owned());
    let link = url.split_once("/link/").map(|(_, token)| token.split(['?', '#']).next().unwrap().to_owned());
    let query = url.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let named = parse(query.as_bytes()).filter(|(name, _)| matches!(&**name, "code" | "state" | "id_token_hint"));
    let named = named.map(|(_, value)| value.into_owned());
    cookies.chain(link).chain(named).filter(|secret| secret.len() > 8).collect()
}
