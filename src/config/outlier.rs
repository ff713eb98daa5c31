//! The block `upstream.outlier`: ejection of endpoints that fail.

use std::time::Duration;

use platform::settings::Section;
use upstream::OutlierSettings;

/// Longest time of an ejection, of a slow start and of a window.
const HOUR: Duration = Duration::from_hours(1);

/// Reads the block `outlier`.
pub(super) fn outlier(section: &mut Section<'_>) -> OutlierSettings {
    let default = OutlierSettings::default();
    let mut threshold = |name, default| section.value_or(name, default, |value| value.integer(0..=10_000));
    let server_errors = threshold("server_errors", default.server_errors);
    let gateway_errors = threshold("gateway_errors", default.gateway_errors);
    let connect_failures = threshold("connect_failures", default.connect_failures);
    let timeouts = threshold("timeouts", default.timeouts);
    let success_rate = section.value_or("success_rate", default.success_rate, |value| value.integer(0..=100));
    let min_requests = section.value_or("min_requests", default.min_requests, |value| value.integer(1..=1_000_000));
    let mut time = |name, default, least| section.value_or(name, default, |value| value.duration(least..=HOUR));
    let window = time("window", default.window, Duration::from_secs(1));
    let ejection = time("ejection", default.ejection, Duration::from_millis(100));
    let max_ejection = time("max_ejection", default.max_ejection.max(ejection), ejection);
    let slow_start = time("slow_start", default.slow_start, Duration::ZERO);
    OutlierSettings {
        server_errors,
        gateway_errors,
        connect_failures,
        timeouts,
        success_rate,
        min_requests,
        window,
        ejection,
        max_ejection,
        slow_start,
    }
}
