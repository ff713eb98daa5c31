//! What must hold for every page, however it is looked at.
//!
//! - It comes with the status that it should.
//! - The console says nothing: no error, and nothing that the Content Security Policy forbids.
//! - Nothing is wider than the window.
//! - axe-core finds no violation: wide and narrow, light and dark.

use std::fs;

use serde_json::Value;

use crate::browser::Browser;

const AXE: &str = "tests/oidc-provider/node_modules/axe-core/axe.min.js";
/// What people look through, in CSS pixels.
pub const WIDTHS: [u64; 2] = [1280, 390];
pub const SCHEMES: [&str; 2] = ["light", "dark"];

/// Looks at pages, and remembers what is wrong with them.
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

    /// Goes to an address and looks at what is there.
    pub fn open(&mut self, name: &str, url: &str, status: u64) {
        self.browser.go(url);
        self.check(name, status);
    }

    /// Looks at the page that is shown.
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

    /// Fails with all that was wrong.
    pub fn end(self, expected: usize) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        assert_eq!(self.seen, expected, "pages that were looked at");
    }

    /// That the page is an error is in the console, too.
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
        // A phone would zoom out, and call that the width of its window.
        let wide = self.browser.script("return document.documentElement.scrollWidth").as_u64().unwrap();
        if wide > width {
            self.note(name, format!("it is {wide} pixels wide"));
        }
        let found = self.browser.script_until_done(
            "const closed = [...document.querySelectorAll('details:not([open])')];
             const open = (is) => closed.forEach((details) => details.open = is);
             open(true);
             axe.run(document).catch((error) => ({ violations: [String(error)] }))
               .then((found) => { open(false); done(found); });",
        );
        let passed = found["passes"].as_array().map_or(0, Vec::len);
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
