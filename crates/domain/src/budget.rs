//! Budgets: how many units a key, a user or an organization may spend in a day or a month of UTC.
//!
//! A budget is a count and no bucket: nothing flows in, and all of it is there again when the next period begins.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::key::KeyId;

/// The most units of a budget: sums of them stay exact in an `f64`, in which Redis's Lua computes.
pub const MAX_UNITS: u64 = 1_000_000_000_000_000;

/// Cost of a request: tokens of the key's bucket, and units that it reserves of a budget, where there is one. In 32
/// bits, because the future of each request holds some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(u32);

impl Cost {
    /// That of nearly all requests.
    pub const ONE: Self = Self::fixed(1);
    /// Set where the response says the units: then the request takes one token.
    const METERED: u32 = 1 << 31;

    /// A cost that is known beforehand: as many tokens as units, 1 to 1,000,000,000.
    pub const fn fixed(cost: u32) -> Self {
        Self(cost & !Self::METERED)
    }

    /// A cost that the response says: at most so many units, 1 to 1,000,000,000, and one token, because those of a
    /// bucket never come back.
    pub const fn at_most(units: u32) -> Self {
        Self(units | Self::METERED)
    }

    /// Tokens that it takes from the key's bucket.
    pub const fn tokens(self) -> u32 {
        if self.0 & Self::METERED == 0 { self.0 } else { 1 }
    }

    /// Units that it reserves of a budget.
    pub const fn units(self) -> u32 {
        self.0 & !Self::METERED
    }
}

/// Budget of a key, a user or an organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Units that may be spent in each period. 1 to [`MAX_UNITS`].
    pub units: u64,
    /// The period.
    pub per: Period,
    /// Whose requests spend them together.
    pub of: Spender,
}

impl Budget {
    /// The subject whose counter the requests of a caller spend; without a key, those of the user's web sessions.
    pub fn subject(self, key: Option<KeyId>, user: UserId, org: OrgId) -> BudgetSubject {
        match (self.of, key) {
            (Spender::Key, Some(key)) => BudgetSubject::Key(key),
            (Spender::Key, None) | (Spender::User, _) => BudgetSubject::User(user),
            (Spender::Org, _) => BudgetSubject::Org(org),
        }
    }
}

/// Budget that a key, a user or an organization was given for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedBudget")]
pub struct OwnBudget {
    /// Units that may be spent in each period. 1 to [`MAX_UNITS`].
    pub units: u64,
    /// The period.
    pub per: Period,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedBudget {
    units: u64,
    per: Period,
}

/// Units that no budget may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the units of a quota are 1 to 1,000,000,000,000,000")]
pub struct InvalidUnits;

impl OwnBudget {
    /// A budget of so many units.
    ///
    /// # Errors
    /// [`InvalidUnits`].
    pub fn new(units: u64, per: Period) -> Result<Self, InvalidUnits> {
        if (1..=MAX_UNITS).contains(&units) { Ok(Self { units, per }) } else { Err(InvalidUnits) }
    }

    /// The same budget, as that of its subject.
    pub fn of(self, of: Spender) -> Budget {
        Budget { units: self.units, per: self.per, of }
    }
}

impl TryFrom<UncheckedBudget> for OwnBudget {
    type Error = InvalidUnits;

    fn try_from(UncheckedBudget { units, per }: UncheckedBudget) -> Result<Self, InvalidUnits> {
        Self::new(units, per)
    }
}

/// As `2000000/month`.
impl fmt::Display for OwnBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.units, self.per.as_str())
    }
}

impl FromStr for OwnBudget {
    type Err = InvalidUnits;

    fn from_str(text: &str) -> Result<Self, InvalidUnits> {
        let (units, per) = text.split_once('/').ok_or(InvalidUnits)?;
        let per = [Period::Day, Period::Month].into_iter().find(|period| period.as_str() == per).ok_or(InvalidUnits)?;
        Self::new(units.parse().map_err(|_| InvalidUnits)?, per)
    }
}

/// Period of a budget, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From the first of a month to that of the next.
    Month,
}

/// Whose requests spend a budget together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spender {
    /// Those of the key; of a web session, those of all sessions of its user.
    Key,
    /// Those of all keys and sessions of the user.
    User,
    /// Those of all keys and sessions of the organization.
    Org,
}

/// One period: from `start` to `end`, which is the start of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodSpan {
    /// First microsecond.
    pub start: Micros,
    /// First microsecond of the next one.
    pub end: Micros,
}

/// The subject of a budget: the one whose counter it is. In JSON it is its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BudgetSubject {
    /// A key.
    Key(KeyId),
    /// A user.
    User(UserId),
    /// An organization.
    Org(OrgId),
}

/// A total of a subject in one period: it only grows, so that the larger of two is the later one. In JSON it is its
/// text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetTotal {
    /// The subject.
    pub subject: BudgetSubject,
    /// Start of the period.
    pub start: Micros,
    /// Units.
    pub units: u64,
}

/// Status of a budget in its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// Units of the period.
    pub units: u64,
    /// Units that are spent or reserved.
    pub used: u64,
    /// Start of the period.
    #[serde(with = "crate::clock::rfc3339")]
    pub start: Micros,
    /// First microsecond of the next period.
    #[serde(with = "crate::clock::rfc3339")]
    pub end: Micros,
}

impl BudgetStatus {
    /// Units that are left.
    pub fn remaining(&self) -> u64 {
        self.units.saturating_sub(self.used)
    }

    /// Returns whether 80 % or more are spent or reserved.
    pub fn is_near(&self) -> bool {
        self.used.saturating_mul(5) >= self.units.saturating_mul(4)
    }
}

impl Period {
    /// The period that a time is in. Times beyond the year 9999 are in its last one.
    pub fn around(self, time: Micros) -> PeriodSpan {
        let micros = i64::try_from(time.0).unwrap_or(i64::MAX);
        let timestamp = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX);
        let date = timestamp.to_zoned(TimeZone::UTC).date();
        let (first, length) = match self {
            Self::Day => (date, 1.day()),
            Self::Month => (date.first_of_month(), 1.month()),
        };
        let end = first.checked_add(length).map_or(Micros(u64::MAX), midnight);
        PeriodSpan { start: midnight(first), end }
    }

    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

fn midnight(date: Date) -> Micros {
    let zoned = DateTime::from_parts(date, Time::midnight()).to_zoned(TimeZone::UTC);
    // UTC has each of its midnights, and no time is before the epoch. One beyond the last zoned day has no end.
    zoned.map_or(Micros(u64::MAX), |zoned| Micros(u64::try_from(zoned.timestamp().as_microsecond()).unwrap_or(0)))
}

impl Spender {
    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::User => "user",
            Self::Org => "org",
        }
    }
}

/// As `key:mZvzkepCv`, `user:usr_…` or `org:org_…`.
impl fmt::Display for BudgetSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(id) => write!(f, "key:{id}"),
            Self::User(id) => write!(f, "user:{id}"),
            Self::Org(id) => write!(f, "org:{id}"),
        }
    }
}

/// A text that names no subject of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no subject of a budget, such as org:org_…")]
pub struct InvalidSubject;

impl FromStr for BudgetSubject {
    type Err = InvalidSubject;

    fn from_str(text: &str) -> Result<Self, InvalidSubject> {
        let (kind, id) = text.split_once(':').ok_or(InvalidSubject)?;
        let subject = match kind {
            "key" => id.parse().ok().map(Self::Key),
            "user" => id.parse().ok().map(Self::User),
            "org" => id.parse().ok().map(Self::Org),
            _ => None,
        };
        subject.ok_or(InvalidSubject)
    }
}

impl BudgetTotal {
    /// The text without the units, which all requests that a total counts have in common: `org:org_…/1793491200`.
    pub fn without_units(&self) -> String {
        format!("{}/{}", self.subject, self.start.0 / 1_000_000)
    }
}

/// As its subject, the start in seconds, and the units, with `/` between: `org:org_…/1793491200/1200`.
impl fmt::Display for BudgetTotal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.subject, self.start.0 / 1_000_000, self.units)
    }
}

impl FromStr for BudgetTotal {
    type Err = InvalidSubject;

    fn from_str(text: &str) -> Result<Self, InvalidSubject> {
        let mut parts = text.splitn(3, '/');
        let subject = parts.next().ok_or(InvalidSubject)?.parse()?;
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (start, units) = number().zip(number()).ok_or(InvalidSubject)?;
        Ok(Self { subject, start: Micros(start.checked_mul(1_000_000).ok_or(InvalidSubject)?), units })
    }
}

/// Serializes types as their texts.
macro_rules! as_text {
    ($($type:ident),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text: std::borrow::Cow<'de, str> = Deserialize::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(BudgetSubject, BudgetTotal);

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Micros {
        text.parse().unwrap()
    }

    #[test]
    fn periods_follow_one_another_without_a_gap() {
        let cases = [
            (Period::Month, "2026-02-28T23:59:59.999999Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"),
            (Period::Month, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            (Period::Month, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            (Period::Day, "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"),
            (Period::Day, "2026-12-31T00:00:00.000001Z", "2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z"),
        ];
        for (period, at, start, end) in cases {
            assert_eq!(period.around(time(at)), PeriodSpan { start: time(start), end: time(end) }, "{at}");
        }
        for period in [Period::Day, Period::Month] {
            let mut span = period.around(Micros(0));
            assert_eq!(span.start, Micros(0));
            for _ in 0..1000 {
                let next = period.around(span.end);
                assert_eq!(next.start, span.end);
                assert_eq!(period.around(Micros(span.end.0 - 1)), span);
                span = next;
            }
            let last = period.around(Micros(u64::MAX));
            assert!(last.start < last.end && last.start > time("9999-11-30T00:00:00Z"), "{last:?}");
        }
    }

    #[test]
    fn costs_have_tokens_and_units() {
        let largest = 1_000_000_000;
        for cost in [1, 20, largest] {
            assert_eq!((Cost::fixed(cost).tokens(), Cost::fixed(cost).units()), (cost, cost));
            assert_eq!((Cost::at_most(cost).tokens(), Cost::at_most(cost).units()), (1, cost));
        }
        assert_eq!(serde_json::to_string(&Cost::fixed(20)).unwrap(), "20");
    }

    #[test]
    fn texts_come_back() {
        let subjects = [
            BudgetSubject::Key("abcDEF123".parse().unwrap()),
            BudgetSubject::User([7; 16].into()),
            BudgetSubject::Org([9; 16].into()),
        ];
        for subject in subjects {
            assert_eq!(subject.to_string().parse(), Ok(subject));
            let total = BudgetTotal { subject, start: time("2026-11-01T00:00:00Z"), units: MAX_UNITS };
            assert_eq!(total.to_string().parse(), Ok(total));
        }
        let own = OwnBudget { units: 2_000_000, per: Period::Month };
        assert_eq!((own.to_string().as_str(), own.to_string().parse()), ("2000000/month", Ok(own)));
        assert_eq!(serde_json::from_str::<OwnBudget>(&serde_json::to_string(&own).unwrap()).unwrap(), own);
        for text in ["", "5", "0/day", "1000000000000001/day", "5/week"] {
            assert_eq!(text.parse::<OwnBudget>(), Err(InvalidUnits), "{text}");
        }
        for text in ["", "key:", "person:abcDEF123", "key:abcDEF123/1", "key:abcDEF123/x/1", "org:usr_1/1/1"] {
            assert!(text.parse::<BudgetTotal>().is_err(), "{text}");
        }
    }
}
