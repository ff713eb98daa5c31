//! Sampling: which traces are recorded from the beginning, and which requests are exported at their end.
//!
//! | request | exported |
//! |---|---|
//! | refused, or failed | always |
//! | of a caller's trace that is sampled | yes |
//! | of a caller's trace that is not sampled | no |
//! | of a trace that begins here | by the ratio |

use std::str::FromStr;

use domain::trace_context::TraceId;

/// Bits of a trace id that are random for every tracer (W3C Trace Context, level 2, section 3.2.2.3).
const RANDOM_BITS: u32 = 56;

/// Share of traces. It depends on the id of a trace alone, so that all who use the same ratio choose the same traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// A trace is chosen when its random bits are a number below this one.
    threshold: u64,
}

/// Text that is not a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a ratio; give a number from 0 to 1, such as 0.05")]
pub struct InvalidRatio;

impl Ratio {
    /// Every trace.
    pub const ALL: Self = Self { threshold: 1 << RANDOM_BITS };

    /// Returns whether a trace is chosen.
    pub fn contains(self, trace: TraceId) -> bool {
        let mask = (1_u128 << RANDOM_BITS) - 1;
        trace.bits() & mask < u128::from(self.threshold)
    }
}

impl FromStr for Ratio {
    type Err = InvalidRatio;

    fn from_str(text: &str) -> Result<Self, InvalidRatio> {
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let ratio = text.parse::<f64>().ok().filter(|ratio| is_decimal && (0.0..=1.0).contains(ratio));
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
        let threshold = |ratio: f64| (ratio * Self::ALL.threshold as f64) as u64;
        ratio.map(|ratio| Self { threshold: threshold(ratio) }).ok_or(InvalidRatio)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn share(ratio: &str) -> usize {
        let ratio: Ratio = ratio.parse().unwrap();
        (0..10_000).filter(|_| ratio.contains(TraceId::from_bits(Uuid::new_v4().as_u128()).unwrap())).count()
    }

    #[test]
    fn ratio_is_the_share_of_traces() {
        assert_eq!((share("0"), share("0.0"), share("1"), share("1.0")), (0, 0, 10_000, 10_000));
        let tenth = share("0.1");
        // Eight standard deviations.
        assert!((760..1240).contains(&tenth), "{tenth}");
    }

    #[test]
    fn text_that_is_no_share_is_refused() {
        for wrong in ["", "-0.1", "1.01", "10%", "inf", "NaN", "1e-2", "."] {
            assert_eq!(wrong.parse::<Ratio>(), Err(InvalidRatio), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn larger_ratio_contains_the_traces_of_a_smaller_one(
            bits in 1..=u128::MAX,
            (a, b) in (0_u32..=1000, 0_u32..=1000),
        ) {
            let trace = TraceId::from_bits(bits).unwrap();
            let ratio = |thousandths: u32| format!("{}", f64::from(thousandths) / 1000.0).parse::<Ratio>().unwrap();
            prop_assert!(!ratio(a.min(b)).contains(trace) || ratio(a.max(b)).contains(trace));
        }
    }
}
