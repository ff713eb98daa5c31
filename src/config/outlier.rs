//! The block `upstream.outlier`: ejection of endpoints that fail.

use std::time::Duration;

use platform::settings::Section;
use upstream::OutlierSettings;

/// Longest time of an ejection and of a slow start.
const HOUR: Duration = Duration::from_hours(1);

/// Advice for a file with the keys of success rates, by which 0.2.0 ejected endpoints.
const NO_SUCCESS_RATE: &str = "is no setting any more, as failures in a row eject endpoints and success rates do not; \
     remove it. Lower `server_errors` if need be, or set `upstream.health` for active checks";

/// Reads the block `outlier`.
pub(super) fn outlier(section: &mut Section<'_>) -> OutlierSettings {
    let default = OutlierSettings::default();
    let mut threshold = |name, default| section.value_or(name, default, |value| value.integer(0..=10_000));
    let server_errors = threshold("server_errors", default.server_errors);
    let gateway_errors = threshold("gateway_errors", default.gateway_errors);
    let connect_failures = threshold("connect_failures", default.connect_failures);
    let timeouts = threshold("timeouts", default.timeouts);
    let mut time = |name, default, least| section.value_or(name, default, |value| value.duration(least..=HOUR));
    let ejection = time("ejection", default.ejection, Duration::from_millis(100));
    let max_ejection = time("max_ejection", default.max_ejection.max(ejection), ejection);
    let slow_start = time("slow_start", default.slow_start, Duration::ZERO);
    for name in ["success_rate", "min_requests", "window"] {
        section.removed(name, NO_SUCCESS_RATE);
    }
    OutlierSettings { server_errors, gateway_errors, connect_failures, timeouts, ejection, max_ejection, slow_start }
}
