//! The scenes: each turns on a part of what may happen, so that it can be searched deeply; and the invariants.

use domain::budget::Cost;

use crate::directory::{Credential, Withdrawal};
use crate::world::Action;

/// Property that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    Tokens,
    Slots,
    Withdrawals,
    Budget,
    Lost,
    Answers,
    Audit,
}

/// Kinds of steps of which a scene has no more than a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Arrive,
    GiveUp,
    Deadline,
    Visit,
    Report,
    ReadLog,
    Assert,
    Tick,
    Hang,
    Step,
    Kill,
    FailOver,
    Lose,
    Withdraw,
}

impl Kind {
    pub const COUNT: usize = 15;

    /// The kind of a step; none of one that follows from another.
    pub fn of(action: Action) -> Option<Self> {
        Some(match action {
            Action::Request(..) => Self::Request,
            Action::Arrive(_) => Self::Arrive,
            Action::GiveUp(_) => Self::GiveUp,
            Action::Deadline(_) => Self::Deadline,
            Action::Visit(_) => Self::Visit,
            Action::Report(_) => Self::Report,
            Action::ReadLog(_) => Self::ReadLog,
            Action::Assert(_) => Self::Assert,
            Action::Tick(_) => Self::Tick,
            Action::Hang => Self::Hang,
            Action::Step(_) => Self::Step,
            Action::Kill(_) => Self::Kill,
            Action::FailOver(_) => Self::FailOver,
            Action::Lose => Self::Lose,
            Action::Withdraw(..) => Self::Withdraw,
            Action::End(..)
            | Action::Deliver(_)
            | Action::Answer(_)
            | Action::Releases(_)
            | Action::Notice(_)
            | Action::Restore => return None,
        })
    }
}

/// A part of what may happen.
#[derive(Debug)]
pub struct Scene {
    pub name: &'static str,
    pub slots: u32,
    pub key_slots: Option<u32>,
    pub tokens: u32,
    /// Microseconds in which a token flows in.
    pub token_every: u64,
    pub budget: Option<u64>,
    pub cost: Cost,
    /// Costs that responses say.
    pub costs: &'static [u64],
    pub is_offline: bool,
    pub reads_identity: bool,
    pub credentials: &'static [Credential],
    pub withdrawals: &'static [Withdrawal],
    /// Writes that a failover may lose.
    pub max_loss: usize,
    /// Microseconds of a tick.
    pub tick: u64,
    pub most: Most,
    /// Steps of a history: in the continuous integration, and in `make prove`.
    pub depths: [usize; 2],
}

impl Scene {
    const fn new(name: &'static str, depths: [usize; 2], most: Most) -> Self {
        Self {
            name,
            slots: 2,
            key_slots: None,
            tokens: 2,
            token_every: 1_000_000,
            budget: None,
            cost: Cost::ONE,
            costs: &[1],
            is_offline: false,
            reads_identity: false,
            credentials: &[Credential::Key],
            withdrawals: &[],
            max_loss: 2,
            tick: 4_000_000,
            most,
            depths,
        }
    }
}

/// Steps of each kind that a history has at most.
pub type Most = &'static [(Kind, u8)];

/// Steps of a kind that a history has at most.
pub fn most_of(most: Most, kind: Kind) -> u8 {
    most.iter().find(|(one, _)| *one == kind).map_or(0, |(_, most)| *most)
}

use Kind::{
    Arrive, Assert, Deadline, FailOver, GiveUp, Hang, Kill, Lose, ReadLog, Report, Request, Step, Tick, Visit, Withdraw,
};

/// Steps of the scenes in which a credential is withdrawn, over a failover.
const WITHDRAWING: Most = &[
    (Request, 2),
    (Withdraw, 1),
    (Arrive, 1),
    (GiveUp, 1),
    (ReadLog, 1),
    (Assert, 1),
    (Tick, 1),
    (Kill, 1),
    (FailOver, 1),
];

pub static SCENES: &[Scene] = &[
    // Slots: replies that are lost or late, kills, failovers.
    Scene {
        tokens: 100,
        ..Scene::new(
            "slots",
            [6, 8],
            &[(Request, 4), (Arrive, 2), (GiveUp, 1), (Visit, 2), (Tick, 3), (Kill, 1), (FailOver, 1)],
        )
    },
    // Slots of a key with a limit of its own, beside those of its organization.
    Scene {
        tokens: 100,
        key_slots: Some(1),
        ..Scene::new(
            "key slots",
            [5, 7],
            &[(Request, 3), (Arrive, 1), (GiveUp, 1), (Visit, 1), (Tick, 2), (Kill, 1), (FailOver, 1)],
        )
    },
    // Leases while the server is away, its clock is stepped, or its organization is quiet.
    Scene {
        tokens: 100,
        tick: 6_000_000,
        ..Scene::new("absences", [5, 7], &[(Request, 4), (Visit, 1), (Tick, 3), (Hang, 2), (Step, 1), (Kill, 1)])
    },
    // Tokens, over failovers and steps of the clock.
    Scene {
        slots: 100,
        tick: 1_000_000,
        ..Scene::new(
            "tokens",
            [5, 7],
            &[(Request, 5), (Arrive, 1), (GiveUp, 1), (Tick, 2), (Step, 1), (Kill, 1), (FailOver, 1)],
        )
    },
    // Shares of the gateways while Redis does not answer, and their reports.
    Scene {
        slots: 100,
        is_offline: true,
        tick: 2_000_000,
        ..Scene::new(
            "shares",
            [4, 6],
            &[(Request, 4), (Arrive, 1), (GiveUp, 3), (Deadline, 1), (Report, 2), (Hang, 2), (Tick, 1), (Kill, 1)],
        )
    },
    // A budget of three, of which each request reserves two, and the end of its period.
    Scene {
        slots: 100,
        tokens: 100,
        budget: Some(3),
        cost: Cost::at_most(2),
        costs: &[0, 2],
        tick: 16_000_000,
        ..Scene::new(
            "budget",
            [5, 7],
            &[(Request, 4), (Arrive, 2), (GiveUp, 2), (Report, 3), (Tick, 1), (Kill, 1), (FailOver, 1)],
        )
    },
    // A key that is revoked or disabled, or whose user is removed, over a failover.
    Scene {
        slots: 100,
        tokens: 100,
        withdrawals: &[Withdrawal::Key, Withdrawal::Disabling, Withdrawal::User],
        ..Scene::new("withdrawals", [5, 7], WITHDRAWING)
    },
    // A session and a management token that end, over a failover.
    Scene {
        credentials: &[Credential::Session, Credential::Token],
        withdrawals: &[Withdrawal::Session, Withdrawal::Token],
        ..Scene::new("credentials", [4, 7], WITHDRAWING)
    },
    // Data that is lost, and restored.
    Scene {
        reads_identity: true,
        slots: 100,
        tokens: 100,
        ..Scene::new("lost data", [5, 7], &[(Request, 3), (Arrive, 1), (GiveUp, 1), (Lose, 1), (Tick, 2), (Kill, 1)])
    },
    // All together.
    Scene {
        budget: Some(3),
        costs: &[0, 1],
        reads_identity: true,
        credentials: &[Credential::Key, Credential::Session, Credential::Token],
        withdrawals: &[
            Withdrawal::Key,
            Withdrawal::Disabling,
            Withdrawal::User,
            Withdrawal::Session,
            Withdrawal::Token,
            Withdrawal::Narrowing,
        ],
        ..Scene::new(
            "all",
            [3, 4],
            &[
                (Request, 4),
                (Arrive, 4),
                (GiveUp, 2),
                (Deadline, 2),
                (Visit, 2),
                (Report, 2),
                (ReadLog, 2),
                (Assert, 2),
                (Tick, 3),
                (Hang, 1),
                (Step, 1),
                (Kill, 1),
                (FailOver, 1),
                (Lose, 1),
                (Withdraw, 2),
            ],
        )
    },
];
