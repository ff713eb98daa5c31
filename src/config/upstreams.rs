//! The upstreams: the only one in the block `upstream`, or several in the block `upstreams`, each under its name.
//! There may be none, if other proxies forward.

use super::upstream::{Around, Upstream, upstream};
use platform::settings::{Reported, Section, Value};
use upstream::DEFAULT_NAME;

/// Most upstreams. Each has its own pools, checks and metrics.
const MAX_UPSTREAMS: usize = 64;
/// Longest name of an upstream, which is a label in metrics and logs.
const MAX_NAME: usize = 40;

/// Upstreams, as far as they could be read.
pub(super) struct Upstreams {
    /// Names in the order of the file, also of upstreams with errors; none when the block cannot be read.
    pub(super) names: Vec<String>,
    pub(super) read: Result<Vec<Upstream>, Reported>,
}

/// Reads the block `upstream` or `upstreams`. Where no listener forwards, there may be none.
pub(super) fn upstreams(file: &mut Section<'_>, around: Around<'_>, is_needed: bool) -> Upstreams {
    let mut names = Vec::new();
    if !is_needed && !file.contains("upstream") && !file.contains("upstreams") {
        return Upstreams { names, read: Ok(Vec::new()) };
    }
    match file.optional("upstreams", |value| several(value, around, &mut names)) {
        Ok(None) => {
            let only = file.section("upstream", |section| upstream(section, DEFAULT_NAME, around));
            Upstreams { names: vec![DEFAULT_NAME.to_owned()], read: only.map(|only| vec![only]) }
        }
        read => {
            let has_both = file.optional("upstream", |_| Ok(())) == Ok(Some(()));
            let read = read.map(Option::unwrap_or_default);
            let read = if has_both { Err(report_both(file)) } else { read };
            Upstreams { names, read }
        }
    }
}

fn report_both(file: &Section<'_>) -> Reported {
    file.report("upstreams", "set either `upstream` or `upstreams`, not both")
}

fn several(value: &Value<'_>, around: Around<'_>, names: &mut Vec<String>) -> Result<Vec<Upstream>, Reported> {
    let upstreams = value.named(|name, value| {
        names.push(name.to_owned());
        check_name(name, value)?;
        value.section(|section| upstream(section, name, around))
    });
    match names.len() {
        // Without a block at all, the error is that of the block.
        0 if value.is_block() => value.reject("is empty; give at least one upstream"),
        0..=MAX_UPSTREAMS => upstreams,
        _ => value.reject(format_args!("has more than {MAX_UPSTREAMS} upstreams")),
    }
}

fn check_name(name: &str, value: &Value<'_>) -> Result<(), Reported> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(plain) {
        return Err(value.report_key(format_args!(
            "is not the name of an upstream: up to {MAX_NAME} of letters, digits and . _ -"
        )));
    }
    Ok(())
}
