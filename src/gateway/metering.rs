//! Metering of a request whose cost its response says, in its head or in its trailers.

use std::sync::Once;

use http::{HeaderMap, HeaderName};
use prometheus::IntCounter;

use crate::admission::Route;
use state::Permit;

/// The cost of one request, as far as its response has said it.
pub(super) struct Metering {
    field: HeaderName,
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
        let (field, reservation) = route.cost_from.as_ref().zip(permit.reservation())?;
        let (name, over) = (field.name.clone(), field.over.clone());
        Some(Box::new(Self { field: name, reserved: reservation.units, told: Told::Nothing, over }))
    }

    /// Reads the field of a head, or of trailers.
    pub(super) fn read(&mut self, fields: &HeaderMap) {
        self.read_fields(fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    }

    /// The same of fields that another proxy describes.
    pub(super) fn read_fields<'f>(&mut self, fields: impl Iterator<Item = (&'f str, &'f [u8])>) {
        for (_, value) in fields.filter(|(name, _)| self.field == *name) {
            let cost = str::from_utf8(value).ok().filter(|text| text.bytes().all(|digit| digit.is_ascii_digit()));
            self.told = match (self.told, cost.and_then(|text| text.parse().ok())) {
                (Told::Nothing, Some(cost)) => Told::Cost(cost),
                _ => Told::Unclear,
            };
        }
    }

    /// Units that the request has cost. A response that says nothing clear has cost its reservation.
    pub(super) fn cost(&self) -> u64 {
        static WARNING: Once = Once::new();
        let Told::Cost(cost) = self.told else { return self.reserved };
        if cost > self.reserved {
            self.over.inc();
            let (field, reserved) = (&self.field, self.reserved);
            WARNING.call_once(|| {
                tracing::warn!(
                    %field, cost, reserved,
                    "a response costs more than its request reserved, and exceeds its budget; raise `cost.at_most` of \
                     the route (keygate_cost_over_total counts further ones)"
                );
            });
        }
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metered(responses: &[&[&str]]) -> u64 {
        let over = IntCounter::new("over", "over").unwrap();
        let field = HeaderName::from_static("x-cost");
        let mut metering = Metering { field: field.clone(), reserved: 8000, told: Told::Nothing, over };
        for values in responses {
            let mut fields = HeaderMap::new();
            for value in *values {
                fields.append(&field, value.parse().unwrap());
            }
            metering.read(&fields);
        }
        metering.cost()
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
}
