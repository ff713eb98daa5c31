//! The keys `gateway` and `workers`: this process.

use std::sync::OnceLock;

use platform::settings::{Reported, Value};

/// Reads the name of this gateway.
pub(super) fn gateway(value: &Value<'_>) -> Result<String, Reported> {
    let name = value.text()?;
    if name.len() > 100 || name.chars().any(char::is_control) {
        return value.reject("is longer than 100 bytes or has control characters; choose a plain name");
    }
    Ok(name)
}

/// The host's name at the first call. Kept, because a reload would be refused if the default of `gateway` changed.
pub(super) fn host_name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim();
        if name.is_empty() { "keygate".to_owned() } else { name.to_owned() }
    });
    name.clone()
}

/// The number of cores available to this process at the first call. Kept for the same reason.
pub(super) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
