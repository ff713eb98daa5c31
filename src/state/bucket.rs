//! The token bucket: pure arithmetic over (state, quota, now).
