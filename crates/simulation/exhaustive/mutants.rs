//! Mutants: each switches off one mechanism, and is found. A new mechanism brings a line of its own.

use crate::lua::Patch;
use crate::scenes::Invariant;

/// A mechanism in Rust that is switched off, at the place where the harness performs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Revocations are not written again.
    NoAssertion,
    /// A gateway does not keep the revocations that it makes.
    NoKeeping,
    /// A key that the state does not have is unknown at once.
    NoConfirmation,
}

/// A mechanism that is switched off.
pub struct Mutant {
    pub name: &'static str,
    pub scene: &'static str,
    pub breaks: Invariant,
    pub patches: &'static [Patch],
    pub fault: Fault,
}

const fn script(name: &'static str, scene: &'static str, breaks: Invariant, patches: &'static [Patch]) -> Mutant {
    Mutant { name, scene, breaks, patches, fault: Fault::None }
}

const fn step(name: &'static str, scene: &'static str, breaks: Invariant, fault: Fault) -> Mutant {
    Mutant { name, scene, breaks, patches: &[], fault }
}

use Invariant::{Budget, Lost, Slots, Tokens, Withdrawals};

pub const MUTANTS: &[Mutant] = &[
    script("a lease has no generation", "slots", Slots, &[
        ("if its_generation >= generation then", "if false then"),
        ("code == ADMITTED and its_generation ~= generation", "false"),
        ("if its_generation ~= generation then return", "if false then return"),
    ]),
    script("a resync registers no slots", "slots", Slots, &[("held = absolute", "held = 0")]),
    script("a lease never ends", "slots", Slots, &[("now - reported > its_lease", "false")]),
    script("a resync registers no slots of a key", "key slots", Slots, &[(
        "held = absolute", "held = KEYS[2] and 0 or absolute",
    )]),
    script("leases end while the server is away", "absences", Slots, &[(
        "local extends = was_away", "local extends = false",
    )]),
    script("a quiet organization counts as an absence", "absences", Slots, &[("then return since end", "then return now end")]),
    script("a bucket is not refilled by time alone", "tokens", Tokens, &[(
        "local inflow = (now - at) * requests", "local inflow = (now - at + 1000000) * requests",
    )]),
    script("uses without Redis are not repaid", "shares", Tokens, &[(
        "level - (unreported + excess) * per", "level",
    )]),
    script("uses are reported without a total", "shares", Tokens, &[("unreported = newly_reported(name, unreported)", "")]),
    script("units come back into any period", "budget", Budget, &[("since == start and returned", "returned")]),
    script("units are reported without a total", "budget", Budget, &[(
        "returned, exceeded = newly_reported(report .. 'r', returned), newly_reported(report .. 'x', exceeded)", "",
    )]),
    script("half of a reservation is taken", "budget", Budget, &[("spent + reserve", "spent + math.floor(reserve / 2)")]),
    script("a decision looks at no version of the user", "withdrawals", Withdrawals, &[(
        " or of_user ~= user_version", "",
    )]),
    step("revocations are not asserted", "withdrawals", Withdrawals, Fault::NoAssertion),
    step("revocations are not kept", "withdrawals", Withdrawals, Fault::NoKeeping),
    step("ends of sessions are not kept", "credentials", Withdrawals, Fault::NoKeeping),
    step("an unknown key is not confirmed", "lost data", Lost, Fault::NoConfirmation),
];
