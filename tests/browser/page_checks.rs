//! Checks of a page, at each width and in each colour scheme.
//!
//! - It has the expected status.
//! - The console is empty: no error, and no violation of the Content Security Policy.
//! - Nothing is wider than the window.
//! - No time is shown as machines write it.
//! - axe-core finds no violation.

use std::fs;

use serde_json::Value;

use crate::browser::Browser;

const AXE: &str = "tests/oidc-provider/node_modules/axe-core/axe.min.js";
/// Widths of the window in CSS pixels.
pub const WIDTHS: [u64; 3] = [1280, 768, 390];
pub const SCHEMES: [&str; 2] = ["light", "dark"];

/// Checks pages, and collects the failures.
pub struct PageChecks<'a> {
    browser: &'a Browser,
    axe: String,
    wrong: Vec<String>,
    seen: usize,
}

impl<'a> PageChecks<'a> {
    pub fn new(browser: &'a Browser) -> Self {
        let axe = fs::read_to_string(AXE).unwrap_or_else(|error| panic!("{AXE} ({error}): `make setup` installs it"));
        browser.console_entries();
        Self { browser, axe, wrong: Vec::new(), seen: 0 }
    }

    /// Opens an address and checks the page.
    pub fn open(&mut self, name: &str, url: &str, status: u64) {
        self.browser.go(url);
        self.check(name, status);
    }

    /// Checks the current page.
    pub fn check(&mut self, name: &str, status: u64) {
        self.seen += 1;
        let came = self.browser.status();
        if came != status {
            self.note(name, format!("status {came} instead of {status}, with {:?}", self.browser.heading()));
        }
        self.listen(name, status);
        self.browser.script(&self.axe);
        for width in WIDTHS {
            for scheme in SCHEMES {
                self.browser.view(width, scheme);
                self.examine(&format!("{name} at {width}, {scheme}"), width);
            }
        }
        self.listen(name, status);
    }

    /// Fails with all collected failures, or if the number of checked pages is not the expected one.
    pub fn end(self, expected: usize) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        assert_eq!(self.seen, expected, "number of checked pages");
    }

    /// Collects messages in the console. For an error page, the browser's own message about its status is expected.
    fn listen(&mut self, name: &str, status: u64) {
        let of_itself = format!(
            "{} - Failed to load resource: the server responded with a status of {status}",
            self.browser.address()
        );
        for entry in self.browser.console_entries() {
            if status < 400 || !entry.text.starts_with(&of_itself) {
                self.note(name, format!("console: {} {}", entry.level, entry.text));
            }
        }
    }

    fn examine(&mut self, name: &str, width: u64) {
        // A phone zooms out when content is too wide, and reports that as the width of its window.
        let wide = self.browser.script("return document.documentElement.scrollWidth").as_u64().unwrap();
        if wide > width {
            self.note(name, format!("it is {wide} pixels wide"));
        }
        let raw = self.browser.script(r"return document.body.innerText.match(/\S*\d-\d\dT\d\d:\S*/)?.[0]");
        if let Some(raw) = raw.as_str() {
            self.note(name, format!("it shows a raw time: {raw}"));
        }
        let found = self.browser.script_until_done(
            "const closed = [...document.querySelectorAll('details:not([open])')];
             const open = (is) => closed.forEach((details) => details.open = is);
             open(true);
             axe.run(document, { resultTypes: ['violations'] })
               .then((found) => ({ passed: found.passes.length, violations: found.violations }))
               .catch((error) => ({ violations: [String(error)] }))
               .then((found) => { open(false); done(found); });",
        );
        let passed = found["passed"].as_u64().unwrap_or(0);
        if passed < 10 {
            self.note(name, format!("axe has looked at next to nothing: {passed} rules"));
        }
        for violation in found["violations"].as_array().unwrap() {
            let node = |node: &Value| format!("{} {}", node["target"], node["failureSummary"]);
            let nodes: Vec<String> = violation["nodes"].as_array().into_iter().flatten().map(node).collect();
            self.note(name, format!("{}: {}", violation["id"], nodes.join("; ")));
        }
    }

    fn note(&mut self, name: &str, wrong: String) {
        self.wrong.push(format!("{name}: {wrong}"));
    }
}
