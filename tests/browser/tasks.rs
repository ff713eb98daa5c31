//! The ten tasks for which admins of an organization come to the dashboard: each with its clicks and its seconds, with
//! the script and without.
//!
//! `cargo test --test browser -- tasks --nocapture` prints them.

use std::cell::Cell;
use std::time::Instant;

use serde_json::json;

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway, MEMBER, paste};

/// Clicks of a task at most, counted from the page on which the task before has ended.
const MOST_CLICKS: u32 = 6;

/// An admin at work: counts clicks.
struct Admin<'a> {
    browser: &'a Browser,
    clicks: Cell<u32>,
}

impl Admin<'_> {
    fn follow(&self, label: &str) {
        self.clicks.set(self.clicks.get() + 1);
        self.browser.follow(label);
    }

    fn press(&self, label: &str) {
        self.clicks.set(self.clicks.get() + 1);
        self.browser.press(label);
    }

    fn open(&self, css: &str) {
        self.clicks.set(self.clicks.get() + 1);
        self.browser.click_link_or_submit(css);
    }

    fn tick(&self, css: &str) {
        self.clicks.set(self.clicks.get() + 1);
        self.browser.click(css);
    }

    #[allow(clippy::print_stdout, reason = "the clicks and seconds of each task")]
    fn task(&self, name: &str, work: impl FnOnce()) {
        let (begun, before) = (Instant::now(), self.clicks.get());
        work();
        let clicks = self.clicks.get() - before;
        println!("{name}: {clicks} clicks, {:.1} s", begun.elapsed().as_secs_f64());
        assert!(clicks <= MOST_CLICKS, "{name}: {clicks} clicks");
    }
}

#[test]
fn ten_tasks_of_an_admin_take_few_clicks() {
    ten_tasks(true);
}

#[test]
fn ten_tasks_of_an_admin_need_no_script() {
    ten_tasks(false);
}

fn ten_tasks(has_script: bool) {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    if !has_script {
        browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    }
    gateway.sign_in(&browser, ADMIN);
    let made: Vec<(String, String)> =
        ["Nightly report", "Old CI", "Older CI", "Oldest CI"].map(|name| gateway.make_key(&browser, name)).into();
    let (key, id) = &made[0];
    assert_eq!(gateway.list_with(key).status, 200);
    let reader = gateway.demo_key();
    let post = format!("curl -s -i -H 'Authorization: Bearer {reader}' -d '{{}}' {}/api/queries", gateway.origin);
    (0..3).for_each(|_| assert_eq!(paste(&post).status, 403));
    let reader_id = &reader["sk_live_".len()..][..9];
    gateway.keygate(&["key", "set", &made[1].1, "--expires", "3d"]);
    browser.go(&gateway.page(""));
    assert_eq!(browser.heading(), "Overview", "the first page of an admin");

    let admin = Admin { browser: &browser, clicks: Cell::new(0) };
    admin.task("see what expires", || {
        assert!(browser.texts("[aria-labelledby=attention] .links li").iter().any(|key| key.contains("Old CI")));
    });
    admin.task("which key eats the limit", || {
        let busiest = browser.texts("[aria-labelledby=busiest-keys] tbody tr");
        assert!(busiest[0].contains(" 3 "), "{busiest:?}");
    });
    admin.task("why does my key fail", || {
        admin.open(&format!("[aria-labelledby=busiest-keys] a[href$='{reader_id}']"));
        let causes = browser.texts(".why li");
        assert!(causes.len() == 1 && causes[0].contains("Forbidden 3 times, last"), "{causes:?}");
    });
    admin.task("who used this key yesterday", || {
        admin.follow("API Keys");
        admin.follow("Nightly report");
        admin.follow("7 days");
        let used_by = browser.text("[aria-labelledby=used-by]");
        assert!(used_by.contains("127.0.0.1") && used_by.contains("curl/"), "{used_by}");
    });
    admin.task("rename", || {
        admin.follow("Change");
        browser.fill("#name", "Morning report");
        admin.press("Save");
        assert_eq!(browser.heading(), "Morning report");
    });
    admin.task("tag", || {
        admin.follow("Change");
        browser.fill("#tags", "team=billing");
        admin.press("Save");
        assert!(browser.text("[aria-labelledby=facts]").contains("team=billing"));
    });
    admin.task("find by tag", || {
        admin.follow("API Keys");
        browser.fill("#q", "team=billing");
        admin.press("Filter");
        assert_eq!(browser.texts(".keys .name"), ["Morning report"]);
    });
    admin.task("revoke three", || {
        admin.follow("Clear");
        made[1..].iter().for_each(|(_, id)| admin.tick(&format!("[name=key][value='{id}']")));
        admin.open("[name=action][value=revoke]");
        admin.open("main button");
        assert!(browser.text(".notice").contains("The selected keys are revoked"), "{}", browser.text("main"));
        assert!(made[1..].iter().all(|(key, _)| gateway.list_with(key).status == 401));
    });
    admin.task("suspend a person", || {
        admin.follow("Users");
        let suspend = format!("Suspend {MEMBER}");
        admin.follow(&suspend);
        admin.press("Suspend this user");
        assert!(browser.text(".notice").contains("The user is suspended"));
    });
    admin.task("what did one admin change last week, as CSV", || {
        admin.follow("Audit");
        browser.fill("#by", ADMIN);
        browser
            .script("document.querySelector('#from').value = new Date(Date.now() - 6048e5).toISOString().slice(0, 10)");
        admin.press("Filter");
        let csv = browser.script("return document.querySelector('a[href*=\".csv\"]').getAttribute('href')");
        let (status, csv) = browser.fetch(csv.as_str().unwrap(), &json!({}));
        assert_eq!(status, 200);
        for change in ["key.create", "key.set", "key.revoke", "user.suspend"] {
            assert!(csv.contains(change), "{change}: {csv}");
        }
        assert!(csv.contains(id.as_str()));
    });
    gateway.end(&browser);
}
