//! A browser, and the actions of its user. Each action waits until it is possible, and fails after a time-out.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::key::Key;
use fantoccini::wd::WindowHandle;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::driver::Driver;
use crate::protocol::{self, Extended};

/// Time-out of an action, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at a page.
const PAUSE: Duration = Duration::from_millis(20);

/// A browser with a profile of its own. Dropping it ends the browser.
pub struct Browser {
    client: Client,
    runtime: Runtime,
    secrets: RefCell<BTreeSet<String>>,
    _driver: Driver,
}

/// A message in the browser's console.
#[derive(Clone, Debug)]
pub struct ConsoleEntry {
    pub level: String,
    pub text: String,
}

impl Browser {
    pub fn start() -> Self {
        let driver = Driver::start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let connecting = builder.capabilities(driver.capabilities()).connect(&driver.url);
        let client = runtime.block_on(connecting).unwrap_or_else(|error| {
            panic!("Chromium does not start: `make setup` installs it, in the version of chromedriver's: {error}")
        });
        Self { client, runtime, secrets: RefCell::default(), _driver: driver }
    }

    // --- Actions of the user ---

    pub fn go(&self, url: &str) {
        self.wait(self.client.goto(url));
    }

    /// Opens a tab, and goes on in it.
    pub fn open_tab(&self) -> WindowHandle {
        let tab = self.wait(self.client.new_window(true)).handle;
        self.switch_to(&tab);
        tab
    }

    /// Goes on in another tab.
    pub fn switch_to(&self, tab: &WindowHandle) {
        self.wait(self.client.switch_to_window(tab.clone()));
    }

    pub fn reload(&self) {
        self.wait(self.client.refresh());
    }

    /// Presses the button with this text, and waits for the next page.
    pub fn press(&self, label: &str) {
        let button = format!("//button[normalize-space(.)=\"{label}\"]");
        self.leave_by(&self.find(Locator::XPath(&button)));
    }

    /// Follows the link with this text.
    pub fn follow(&self, label: &str) {
        let link = format!("//a[normalize-space(.)=\"{label}\"]");
        self.leave_by(&self.find(Locator::XPath(&link)));
    }

    /// Clicks an element that does not lead to another page.
    pub fn click(&self, css: &str) {
        self.wait(self.find(Locator::Css(css)).click());
    }

    /// Clicks an element that leads to another page, and waits for that page.
    pub fn click_link_or_submit(&self, css: &str) {
        self.leave_by(&self.find(Locator::Css(css)));
    }

    /// Replaces the text of a field.
    pub fn fill(&self, css: &str, text: &str) {
        let field = self.find(Locator::Css(css));
        self.wait(field.clear());
        self.wait(field.send_keys(text));
    }

    /// Chooses from a list, by the submitted value.
    pub fn choose(&self, css: &str, value: &str) {
        self.wait(self.find(Locator::Css(css)).select_by_value(value));
    }

    /// Types into the focused element.
    pub fn keys(&self, text: &str) {
        self.wait(self.wait(self.client.active_element()).send_keys(text));
    }

    /// Presses a key that leads to another page, and waits for that page.
    pub fn leave_by_keys(&self, key: Key) {
        self.leave(|| self.keys(&char::from(key).to_string()));
    }

    // --- What the user sees ---

    pub fn address(&self) -> String {
        self.wait(self.client.current_url()).to_string()
    }

    pub fn heading(&self) -> String {
        self.text("h1")
    }

    /// The visible text of the first matching element.
    pub fn text(&self, css: &str) -> String {
        self.wait(self.find(Locator::Css(css)).text())
    }

    /// The visible texts of all matching elements.
    pub fn texts(&self, css: &str) -> Vec<String> {
        let elements = self.wait(self.client.find_all(Locator::Css(css)));
        elements.into_iter().map(|element| self.wait(element.text())).collect()
    }

    pub fn is_shown(&self, css: &str) -> bool {
        let elements = self.wait(self.client.find_all(Locator::Css(css)));
        elements.into_iter().any(|element| self.wait(element.is_displayed()))
    }

    /// The HTML of the page, as the browser serializes it.
    pub fn source(&self) -> String {
        self.wait(self.client.source())
    }

    /// The HTTP status of the page.
    pub fn status(&self) -> u64 {
        self.script("return performance.getEntriesByType('navigation')[0].responseStatus").as_u64().unwrap()
    }

    // --- Inspection ---

    pub fn script(&self, script: &str) -> Value {
        self.wait(self.client.execute(script, vec![]))
    }

    /// Runs a script that calls `done` with its result.
    pub fn script_until_done(&self, script: &str) -> Value {
        let script = format!("const done = arguments[arguments.length - 1];\n{script}");
        self.wait(self.client.execute_async(&script, vec![]))
    }

    /// Fetches a path by a script of the current page; returns status and body.
    pub fn fetch(&self, path: &str, options: &Value) -> (u64, String) {
        let answer = self.script_until_done(&format!(
            "fetch({path:?}, {options}).then(async (answer) => done([answer.status, await answer.text()]), \
             (error) => done([0, String(error)]));"
        ));
        (answer[0].as_u64().unwrap(), answer[1].as_str().unwrap().to_owned())
    }

    /// Submits a form by a script of the current page; returns status and body.
    pub fn send_form(&self, path: &str, form: &str) -> (u64, String) {
        let kind = json!({ "Content-Type": "application/x-www-form-urlencoded" });
        self.fetch(path, &json!({ "method": "POST", "headers": kind, "body": form }))
    }

    pub fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.wait(self.client.issue_cmd(Extended::devtools(command, parameters)))
    }

    /// Sets the width of the window in CSS pixels, and the colour scheme, `light` or `dark`.
    pub fn view(&self, width: u64, scheme: &str) {
        let size = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.devtools("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({ "name": "prefers-color-scheme", "value": scheme });
        // The contrast of colours in a transition cannot be measured.
        let still = json!({ "name": "prefers-reduced-motion", "value": "reduce" });
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": [scheme, still] }));
    }

    /// The messages in the console since the last call.
    pub fn console_entries(&self) -> Vec<ConsoleEntry> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let entry = |entry: &Value| ConsoleEntry { level: text(&entry["level"]), text: text(&entry["message"]) };
        self.log("browser").iter().map(entry).collect()
    }

    /// Every cookie, link token, code and ID token in its network traffic so far.
    pub fn secrets(&self) -> BTreeSet<String> {
        let new = self.log("performance");
        self.secrets.borrow_mut().extend(new.iter().flat_map(protocol::secrets));
        self.secrets.borrow().clone()
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        self.wait(self.client.issue_cmd(Extended::log(kind))).as_array().unwrap().clone()
    }

    fn leave_by(&self, element: &Element) {
        self.leave(|| self.wait(element.click()));
    }

    /// Performs an action, and waits until another page has replaced the current one.
    fn leave(&self, doing: impl FnOnce()) {
        let old = self.find(Locator::Css("html"));
        doing();
        let deadline = Instant::now() + PATIENCE;
        while self.runtime.block_on(old.tag_name()).is_ok() {
            assert!(Instant::now() < deadline, "no other page replaced {}", self.address());
            // Each look is a request to chromedriver, which takes the processor from the page that is loading.
            std::thread::sleep(PAUSE);
        }
        self.find(Locator::Css("body"));
    }

    fn find(&self, locator: Locator<'_>) -> Element {
        let waiting = self.client.wait().at_most(PATIENCE).every(PAUSE);
        self.runtime.block_on(waiting.for_element(locator)).unwrap_or_else(|error| {
            panic!(
                "no element at {} matches {locator:?}: {error}; its title is {:?}",
                self.address(),
                self.wait(self.client.title())
            )
        })
    }

    fn wait<T>(&self, doing: impl Future<Output = Result<T, CmdError>>) -> T {
        self.runtime.block_on(doing).unwrap_or_else(|error| panic!("the browser failed: {error}"))
    }
}
