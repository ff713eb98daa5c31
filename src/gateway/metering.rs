//! Metering of a request whose cost its response says, in its head, its trailers or its body.

use std::sync::Once;

use http::HeaderMap;
use prometheus::IntCounter;

use super::metered_body::MeteredBody;
use crate::admission::{CostSource, Route};
use state::Permit;

/// The cost of one request, as far as its response has said it.
pub(super) struct Metering {
    source: CostSource,
    body: Option<MeteredBody>,
    /// Units that the request has reserved: its cost, unless the response says another one.
    reserved: u64,
    told: Told,
    over: IntCounter,
}

/// Values of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Cost(u64),
    /// It came twice, or with something else than a number.
    Unclear,
}

impl Metering {
    /// The metering of a request that has reserved units of a budget on a route whose responses say their cost.
    pub(super) fn of(route: &Route, permit: &Permit) -> Option<Box<Self>> {
        let (metered, reservation) = route.cost_from.as_ref().zip(permit.reservation())?;
        let (source, over) = (metered.source.clone(), metered.over.clone());
        Some(Box::new(Self { source, body: None, reserved: reservation.units, told: Told::Nothing, over }))
    }

    /// Reads the head of the response, whose body is to come.
    pub(super) fn read_head(&mut self, fields: &HeaderMap) {
        self.read(fields);
        self.body = self.source.member.as_ref().and_then(|member| MeteredBody::of(fields, member));
    }

    /// Reads a piece of the body.
    pub(super) fn read_body(&mut self, data: &[u8]) {
        if let Some(body) = &mut self.body {
            body.read(data);
        }
    }

    /// Reads the field of a head, or of trailers.
    pub(super) fn read(&mut self, fields: &HeaderMap) {
        self.read_fields(fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    }

    /// The same of fields that another proxy describes.
    pub(super) fn read_fields<'f>(&mut self, fields: impl Iterator<Item = (&'f str, &'f [u8])>) {
        let Some(field) = &self.source.field else { return };
        for (_, value) in fields.filter(|(name, _)| field == *name) {
            let cost = str::from_utf8(value).ok().and_then(|text| units(text, self.source.places));
            self.told = match (self.told, cost) {
                (Told::Nothing, Some(cost)) => Told::Cost(cost),
                _ => Told::Unclear,
            };
        }
    }

    /// Units that the request has cost. A response that says nothing clear has cost its reservation, and so has one
    /// without a field whose body was not sent as a whole.
    pub(super) fn cost(&self, is_complete: bool) -> u64 {
        static WARNING: Once = Once::new();
        let of_body = || {
            let number = self.body.as_ref().filter(|_| is_complete)?.finish()?;
            units(&number, self.source.places)
        };
        let cost = match self.told {
            Told::Cost(cost) => Some(cost),
            Told::Nothing => of_body(),
            Told::Unclear => None,
        };
        let Some(cost) = cost else { return self.reserved };
        if cost > self.reserved {
            self.over.inc();
            let reserved = self.reserved;
            WARNING.call_once(|| {
                tracing::warn!(
                    cost,
                    reserved,
                    "a response costs more than its request reserved, and exceeds its budget; raise `cost.at_most` of \
                     the route (keygate_cost_over_total counts further ones)"
                );
            });
        }
        cost
    }
}

/// Units of a number of which so many decimal places are whole units, such as `1.35e-05`. It is rounded, and costs a
/// unit at least unless it is 0: costs are sums of binary fractions, so that rounding up would charge for their errors.
fn units(text: &str, places: u8) -> Option<u64> {
    let is_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if places == 0 {
        return text.parse().ok().filter(|_| is_digits(text));
    }
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, fraction].concat();
    let digits: u128 = digits.parse().ok().filter(|_| is_digits(&digits))?;
    let shift = i64::from(exponent.parse::<i16>().ok()?) + i64::from(places) - i64::try_from(fraction.len()).ok()?;
    let power = 10_u128.checked_pow(shift.unsigned_abs().try_into().ok()?);
    let units = if shift >= 0 {
        digits.checked_mul(power?)?
    } else {
        power.map_or(0, |power| digits / power + u128::from(digits % power * 2 >= power))
    };
    u64::try_from(units.max(digits.min(1))).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn metered(responses: &[&[&str]]) -> u64 {
        let over = IntCounter::new("over", "over").unwrap();
        let name = HeaderName::from_static("x-cost");
        let source = CostSource { field: Some(name.clone()), member: None, places: 0 };
        let mut metering = Metering { source, body: None, reserved: 8000, told: Told::Nothing, over };
        for values in responses {
            let mut fields = HeaderMap::new();
            for value in *values {
                fields.append(&name, value.parse().unwrap());
            }
            metering.read(&fields);
        }
        metering.cost(true)
    }

    #[test]
    fn cost_is_what_one_clear_field_says_and_else_the_reservation() {
        for (responses, cost) in [
            (&[&["12"][..]][..], 12),
            (&[&["0"]], 0),
            (&[&[], &["7"]], 7),
            (&[&["9001"]], 9001),
            (&[&[]], 8000),
            (&[&["12", "12"]], 8000),
            (&[&["12"], &["12"]], 8000),
            (&[&["-1"]], 8000),
            (&[&["1.5"]], 8000),
            (&[&["+5"]], 8000),
            (&[&[""]], 8000),
            (&[&["99999999999999999999"]], 8000),
        ] {
            assert_eq!(metered(responses), cost, "{responses:?}");
        }
    }

    #[test]
    fn decimal_number_is_rounded_to_units() {
        for (text, cost) in [
            ("1.35e-05", Some(14)),
            ("0.0000135", Some(14)),
            ("0.0000134999", Some(13)),
            ("1.2000000000000002e-05", Some(12)),
            ("1.1999999999999999E-5", Some(12)),
            ("0.002", Some(2000)),
            ("3", Some(3_000_000)),
            (".5", Some(500_000)),
            ("2.e+1", Some(20_000_000)),
            ("0", Some(0)),
            ("0.0", Some(0)),
            ("0e-300", Some(0)),
            ("1e-9", Some(1)),
            ("1e-300", Some(1)),
            ("1e13", Some(10_000_000_000_000_000_000)),
            ("1e14", None),
            ("1e300", None),
            ("1e99999", None),
            ("-1", None),
            ("+1", None),
            ("1.+5", None),
            ("1e", None),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("0x1", None),
            ("NaN", None),
            ("inf", None),
            ("1 ", None),
        ] {
            assert_eq!(units(text, 6), cost, "{text}");
        }
        assert_eq!(units("13.5", 0), None);
        assert_eq!(units("1.35e-05", 7), Some(135));
    }
}
