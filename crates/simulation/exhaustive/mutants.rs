//! Mutants: each switches off one mechanism, and is found. A new mechanism brings a line of its own.

use crate::lua::Patch;
use crate::scenes::{Invariant, Kind, Most};

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
    /// Requests that wait for a resync by another one are forgotten.
    ForgetsWaiting,
    /// A request is forwarded before its use is written.
    ForwardsBeforeWriting,
    /// A sync is told to be done, and nothing is on the disk.
    SyncLies,
    /// A start leaves the uses open that were open.
    NoAborting,
}

/// A mechanism that is switched off.
pub struct Mutant {
    pub name: &'static str,
    pub scene: &'static str,
    pub breaks: Invariant,
    pub patches: &'static [Patch],
    pub fault: Fault,
    /// Steps that find it: fewer kinds than the scene has.
    pub most: Most,
    pub depth: usize,
}

/// Scene, depth and steps by which a mutant is looked for.
type Place = (&'static str, usize, Most);

const fn script(
    name: &'static str,
    (scene, depth, most): Place,
    breaks: Invariant,
    patches: &'static [Patch],
) -> Mutant {
    Mutant { name, scene, breaks, patches, fault: Fault::None, most, depth }
}

const fn step(name: &'static str, (scene, depth, most): Place, breaks: Invariant, fault: Fault) -> Mutant {
    Mutant { name, scene, breaks, patches: &[], fault, most, depth }
}

use Invariant::{Answers, Audit, Budget, Lost, Slots, Tokens, Withdrawals};
use Kind::{Arrive, FailOver, GiveUp, Hang, Kill, Lose, Report, Request, Tick, Visit, Withdraw};

pub const MUTANTS: &[Mutant] = &[
    script(
        "a lease has no generation",
        ("slots", 8, &[(Request, 3), (Arrive, 2), (GiveUp, 1), (Visit, 1)]),
        Slots,
        &[
            ("if its_generation >= generation then", "if false then"),
            ("code == ADMITTED and its_generation ~= generation", "false"),
            ("if its_generation ~= generation then return", "if false then return"),
        ],
    ),
    script(
        "a resync registers no slots",
        ("slots", 8, &[(Request, 3), (Tick, 1), (FailOver, 1)]),
        Slots,
        &[("held = absolute", "held = 0")],
    ),
    script(
        "a lease never ends",
        ("slots", 6, &[(Request, 2), (Tick, 3), (Kill, 1)]),
        Slots,
        &[("now - reported > its_lease", "false")],
    ),
    script(
        "a resync registers no slots of a key",
        ("key slots", 8, &[(Request, 2), (Tick, 1), (FailOver, 1)]),
        Slots,
        &[("held = absolute", "held = KEYS[2] and 0 or absolute")],
    ),
    script(
        "leases end while the server is away",
        ("absences", 9, &[(Request, 3), (Tick, 1), (Hang, 2)]),
        Slots,
        &[("local extends = was_away", "local extends = false")],
    ),
    script(
        "a quiet organization counts as an absence",
        ("absences", 9, &[(Request, 3), (Tick, 2), (Kill, 1)]),
        Slots,
        &[("then return since end", "then return now end")],
    ),
    script(
        "tokens flow in too early",
        ("tokens", 8, &[(Request, 3), (Tick, 1)]),
        Tokens,
        &[("local inflow = (now - at) * requests", "local inflow = (now - at + 1000000) * requests")],
    ),
    script(
        "uses without Redis are not repaid",
        ("shares", 10, &[(Request, 4), (Hang, 1), (GiveUp, 1)]),
        Tokens,
        &[("level - (unreported + excess) * per", "level")],
    ),
    script(
        "uses are reported without a total",
        ("shares", 10, &[(Request, 2), (Hang, 1), (GiveUp, 3), (Arrive, 1), (Report, 2)]),
        Tokens,
        &[("unreported = newly_reported(name, unreported)", "")],
    ),
    script(
        "units come back into any period",
        ("budget", 8, &[(Request, 2), (Tick, 1), (Report, 1)]),
        Budget,
        &[("since == start and returned", "returned")],
    ),
    script(
        "units are reported without a total",
        ("budget", 10, &[(Request, 2), (Arrive, 1), (GiveUp, 1), (Report, 2)]),
        Budget,
        &[(
            "returned, exceeded = newly_reported(report .. 'r', returned), newly_reported(report .. 'x', exceeded)",
            "",
        )],
    ),
    script(
        "half of a reservation is taken",
        ("budget", 6, &[(Request, 2)]),
        Budget,
        &[("spent + reserve", "spent + math.floor(reserve / 2)")],
    ),
    script(
        "a decision looks at no version of the user",
        ("withdrawals", 6, &[(Request, 1), (Withdraw, 1)]),
        Withdrawals,
        &[(" or of_user ~= user_version", "")],
    ),
    step(
        "revocations are not asserted",
        ("withdrawals", 9, &[(Request, 1), (Withdraw, 1), (Tick, 1), (FailOver, 1)]),
        Withdrawals,
        Fault::NoAssertion,
    ),
    step(
        "revocations are not kept",
        ("withdrawals", 9, &[(Request, 1), (Withdraw, 1), (FailOver, 1)]),
        Withdrawals,
        Fault::NoKeeping,
    ),
    step(
        "ends of sessions are not kept",
        ("credentials", 9, &[(Request, 1), (Withdraw, 1), (FailOver, 1)]),
        Withdrawals,
        Fault::NoKeeping,
    ),
    step(
        "requests that wait for a resync are forgotten",
        ("slots", 7, &[(Request, 3), (GiveUp, 1)]),
        Answers,
        Fault::ForgetsWaiting,
    ),
    step(
        "a request is forwarded before its use is written",
        ("audit, written", 6, &[]),
        Audit,
        Fault::ForwardsBeforeWriting,
    ),
    step("a sync is told to be done", ("audit, synced", 6, &[]), Audit, Fault::SyncLies),
    step("a start leaves open uses open", ("audit, written", 6, &[]), Audit, Fault::NoAborting),
    step("an unknown key is not confirmed", ("lost data", 6, &[(Request, 1), (Lose, 1)]), Lost, Fault::NoConfirmation),
];
