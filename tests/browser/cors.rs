//! Pages of other origins that call the API with a key: one that is listed reads every answer, another one reads none.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::support::{Gateway, Upstream};

/// A site with an empty page.
pub(crate) fn site() -> Upstream {
    Upstream::answering(|_, stream| {
        let page = "<!doctype html><title>App</title><link rel=\"icon\" href=\"data:,\">";
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
        stream.write_all(format!("{head}{page}").as_bytes()).ok();
    })
}

/// An upstream with a page of a list.
fn list() -> Upstream {
    Upstream::answering(|_, stream| {
        let page = r#"{"items":[{"id":1},{"id":2},{"id":3}],"nextCursor":null}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        stream.write_all(format!("{head}content-length: {}\r\n\r\n{page}", page.len()).as_bytes()).ok();
    })
}

/// Parts of an answer that a script of the current page reads: status, body, and two of its fields; or the error.
fn read(browser: &Browser, url: &str, options: &Value) -> Value {
    browser.script_until_done(&format!(
        "fetch({url:?}, {options}).then(async (answer) => done({{ status: answer.status, body: await answer.text(), \
         retry: answer.headers.get('Retry-After'), limit: answer.headers.get('RateLimit') }}), \
         (error) => done({{ error: String(error) }}));"
    ))
}

#[test]
fn page_of_a_listed_origin_reads_answers_and_refusals_and_another_one_reads_nothing() {
    let app = site();
    let other = site();
    let store = list();
    let origin = |site: &Upstream| format!("http://{}", site.address);
    let cors = format!("cors: {{ origins: ['{}'] }}\nlimits: {{ key: {{ requests: 2, per: 1h }} }}\n", origin(&app));
    let gateway = Gateway::with(&[store.address], &cors);
    let key = gateway.key().text;
    let browser = Browser::start();
    let url = format!("http://{}/api/queries?limit=3", gateway.address);
    let with_key = json!({ "headers": { "Authorization": format!("Bearer {key}") } });

    browser.go(&origin(&app));
    let list = read(&browser, &url, &with_key);
    assert_eq!(list["status"], 200, "{list}");
    let body: Value = serde_json::from_str(list["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["items"].as_array().unwrap().len(), 3, "{list}");
    assert!(list["limit"].as_str().unwrap().starts_with("\"key\";r=1"), "{list}");
    assert_eq!(read(&browser, &url, &with_key)["status"], 200);
    let limited = read(&browser, &url, &with_key);
    let problem: Value = serde_json::from_str(limited["body"].as_str().unwrap()).unwrap();
    assert_eq!((&limited["status"], &problem["code"]), (&json!(429), &json!("rate_limited")), "{limited}");
    assert!(limited["retry"].as_str().unwrap().parse::<u64>().unwrap() > 1000, "{limited}");
    let unknown = read(&browser, &url, &json!({ "headers": { "Authorization": "Bearer other" } }));
    assert_eq!(unknown["status"], 401, "{unknown}");
    // A request that needs no preflight, and one with cookies, which are never allowed.
    assert_eq!(read(&browser, &url, &json!({}))["status"], 401);
    assert!(read(&browser, &url, &json!({ "credentials": "include" }))["error"].is_string());

    browser.go(&origin(&other));
    for options in [with_key, json!({})] {
        let refused = read(&browser, &url, &options);
        assert!(refused["error"].is_string() && refused["body"].is_null(), "{refused}");
    }
    assert_eq!(store.count(), 2, "preflights and refusals do not reach the upstream");
}
