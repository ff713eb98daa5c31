//! The dashboard in a real browser: Chromium by WebDriver, and the keygate binary.
//!
//! Each test starts its own gateway and browser, and ends both. `make setup` installs the browser.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

#[allow(dead_code, reason = "shared with the integration tests")]
#[path = "../integration/oidc/certified_provider.rs"]
mod real;
#[allow(dead_code, unused_imports, reason = "shared by all test binaries")]
#[path = "../support/mod.rs"]
mod support;

mod driver;
mod protocol;
mod browser;
mod gateway;
mod page_checks;

mod key;
mod people;
mod permissions;
mod other_sites;
mod cors;
mod websocket;
mod without_script;
mod keyboard;
mod key_list;
mod tasks;
mod chart;
mod provider;
mod two_providers;
mod tabs;
mod all_pages;
mod pictures;
