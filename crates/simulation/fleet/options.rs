//! Options of a run.

use super::lua::Patch;

/// Mechanism that is switched off on purpose, so that its bound breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Uses that were admitted without Redis are not repaid.
    Bucket,
    /// Of these uses, each is repaid as one token.
    Cost,
    /// Units of a budget come back into any period.
    AnyPeriod,
    /// Each report of it counts, also a repeated one.
    NoTotal,
    /// Half of what a response may cost is reserved.
    Estimate,
    /// A resync registers no slots.
    Slots,
    /// A resync registers no slots of a key.
    KeySlots,
    /// Leases do not begin anew when the server was away.
    Absence,
    /// An absence of the server is seen where an organization is quiet.
    SignOfLife,
    /// No gateway keeps revocations, so none refuses by them, nor writes them to a new primary.
    Revocation,
    /// The position of a shipper moves before the records are at the sink.
    Audit,
    /// A sync is told to be done, and nothing is on the disk.
    Sync,
    /// Gateways divide their limits by a list that has lost some of them.
    Registry,
    /// A key that the state does not have is refused as unknown, without a look whether the state was lost.
    Lost,
}

impl Break {
    pub const ALL: [Self; 14] = [
        Self::Bucket,
        Self::Cost,
        Self::AnyPeriod,
        Self::NoTotal,
        Self::Estimate,
        Self::Slots,
        Self::KeySlots,
        Self::Absence,
        Self::SignOfLife,
        Self::Revocation,
        Self::Audit,
        Self::Sync,
        Self::Registry,
        Self::Lost,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Cost => "cost",
            Self::AnyPeriod => "refund-any-period",
            Self::NoTotal => "no-total",
            Self::Estimate => "estimate",
            Self::Slots => "slots",
            Self::KeySlots => "key-slots",
            Self::Absence => "absence",
            Self::SignOfLife => "sign-of-life",
            Self::Revocation => "revocation",
            Self::Audit => "audit",
            Self::Sync => "sync",
            Self::Registry => "registry",
            Self::Lost => "lost-state",
        }
    }

    /// The places of the scripts where it is switched off.
    pub fn patches(self) -> &'static [Patch] {
        match self {
            Self::Bucket => &[("level - (unreported + excess) * per", "level")],
            Self::Cost => &[("unreported + excess", "unreported")],
            Self::AnyPeriod => &[("since == start and returned", "returned")],
            Self::NoTotal => &[(
                "newly_reported(report .. 'r', returned), newly_reported(report .. 'x', exceeded)",
                "returned, exceeded",
            )],
            Self::Estimate => &[("spent + reserve", "spent + math.floor(reserve / 2)")],
            Self::Slots => &[("held = absolute", "held = 0")],
            Self::KeySlots => &[("held = absolute", "held = KEYS[2] and 0 or absolute")],
            Self::Absence => &[("local extends = was_away", "local extends = false")],
            Self::SignOfLife => &[("then return since end", "then return now end")],
            Self::Registry => &[
                ("local is_whole = now >= whole_from", "local is_whole = true"),
                ("math.max(latest_of_all, latest, seen)", "latest"),
            ],
            Self::Revocation | Self::Audit | Self::Sync | Self::Lost => &[],
        }
    }

    /// The bound that breaks.
    pub fn bound(self) -> &'static str {
        match self {
            Self::Absence => "slots",
            Self::Cost | Self::Registry => "bucket",
            Self::AnyPeriod | Self::NoTotal | Self::Estimate => "budget",
            Self::KeySlots => "key slots",
            Self::SignOfLife => "slots of the dead",
            Self::Sync => "audit",
            Self::Lost => "lost state",
            _ => self.name(),
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub gateways: usize,
    pub shards: usize,
    pub orgs: usize,
    pub keys: usize,
    pub seconds: u64,
    /// Requests in a second, of the whole fleet.
    pub requests: u64,
    pub seed: u64,
    pub runs: u64,
    pub broken: Option<Break>,
    pub json: bool,
}

impl Options {
    /// The size that `docs/capacity.md` reports.
    pub fn full() -> Self {
        Self {
            gateways: 1000,
            shards: 100,
            orgs: 400,
            keys: 4000,
            seconds: 120,
            requests: 5000,
            seed: 1,
            runs: 1,
            broken: None,
            json: false,
        }
    }

    /// A size for `cargo test`.
    pub fn small() -> Self {
        Self { gateways: 20, shards: 6, orgs: 12, keys: 200, seconds: 30, requests: 500, ..Self::full() }
    }

    /// Reads the command line.
    ///
    /// # Errors
    /// The text says which argument is wrong.
    pub fn parse(mut self, arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            if argument == "--bench" {
                continue;
            }
            if argument == "--json" {
                self.json = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{argument} needs a number, not {value}"));
            let size = || usize::try_from(number()?.max(1)).map_err(|error| error.to_string());
            match argument.as_str() {
                "--gateways" => self.gateways = size()?,
                "--shards" => self.shards = size()?,
                "--orgs" => self.orgs = size()?,
                "--keys" => self.keys = size()?,
                "--seconds" => self.seconds = number()?,
                "--requests" => self.requests = number()?.max(1),
                "--seed" => self.seed = number()?,
                "--runs" => self.runs = number()?,
                "--break" => {
                    let found = Break::ALL.into_iter().find(|broken| broken.name() == value);
                    self.broken = Some(found.ok_or_else(|| {
                        let names = Break::ALL.map(Break::name).join(", ");
                        format!("--break {value}: {names}")
                    })?);
                }
                _ => return Err(format!("{argument} is not an option")),
            }
        }
        Ok(self)
    }
}
