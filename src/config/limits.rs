//! The blocks `limits` and `state`: what everybody may do, and where it is counted.

use std::path::PathBuf;
use std::time::Duration;

use crate::quota::{MAX_PER, MAX_TOKENS, Quota};
use crate::settings::Section;
use crate::state::embedded;

/// Requests an organization may have in flight, as promised.
const CONCURRENT: u32 = 100;

/// The block `limits`.
pub(super) struct Limits {
    quota: Quota,
    concurrent: u32,
}

impl Limits {
    /// The state's settings: these limits, and its file.
    pub(super) fn state(&self, path: PathBuf) -> embedded::Settings {
        embedded::Settings { path, quota: self.quota, concurrent: self.concurrent }
    }
}

pub(super) fn limits(section: &mut Section<'_>) -> Limits {
    let quota = section.section("key", quota).unwrap_or(Quota::DEFAULT);
    let concurrent =
        section.section("org", |org| org.optional("concurrent", CONCURRENT, |value| value.integer(1..=1_000_000)));
    Limits { quota, concurrent: concurrent.unwrap_or(CONCURRENT) }
}

fn quota(section: &mut Section<'_>) -> Quota {
    let default = Quota::DEFAULT;
    let tokens = 1..=MAX_TOKENS;
    let requests = section.optional("requests", default.requests, |value| value.integer(tokens.clone()));
    let per = section.optional("per", default.per, |value| {
        let per = value.duration(Duration::from_secs(1)..=MAX_PER)?;
        if per.subsec_nanos() == 0 { Some(per) } else { value.reject("is not whole seconds; round it") }
    });
    let burst = section.optional("burst", requests, |value| value.integer(tokens));
    let quota = Quota { requests, per, burst };
    if let Err(e) = quota.checked() {
        section.report("burst", format_args!("{e}; make burst or per smaller"));
    }
    quota
}

pub(super) fn state(section: &mut Section<'_>) -> Option<PathBuf> {
    section.refuse("redis", "is not supported yet by this version; use `embedded: { path: … }`");
    if section.contains("redis") && !section.contains("embedded") {
        section.maybe("embedded", |_| Some(()));
        return None;
    }
    section.section("embedded", |embedded| embedded.required("path", |value| value.path()))?
}
