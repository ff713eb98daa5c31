//! The model for `stateright`: a state is a history and the fingerprint of the world that it leads to.
//!
//! The world itself is not kept: it is made again from the history, by the product's own steps. Histories that lead to
//! the same world are one state.

use std::fmt::{Debug, Write as _};
use std::hash::{Hash, Hasher};

use stateright::{Model, Property};

use crate::scenes::Invariant;

/// Object of a search: worlds, and the steps between them.
pub trait Explored: Clone + Send + Sync + 'static {
    type Action: Copy + Debug + PartialEq + Send + Sync;
    type World;

    /// The world at the beginning.
    fn world(&self) -> Self::World;
    fn apply(&self, world: &mut Self::World, action: Self::Action);
    /// All steps that are possible.
    fn actions(&self, world: &Self::World) -> Vec<Self::Action>;
    /// Of all that the future depends on.
    fn fingerprint(&self, world: &Self::World) -> u64;
    /// Nothing more goes wrong, and all ends.
    fn come_to_rest(&self, world: &mut Self::World);
    fn violation(&self, world: &Self::World) -> Option<(Invariant, String)>;
    /// Takes a step, and returns the time, the step and what is told of it.
    fn tell(&self, world: &mut Self::World, action: Self::Action) -> [String; 3];
}

/// A search of histories with so many steps.
#[derive(Clone)]
pub struct Search<E> {
    pub explored: E,
    pub depth: usize,
    /// Of so many states one is also brought to rest: every request must have its answer, every slot be back.
    pub rests: u64,
}

/// A history, by the fingerprint of its world.
#[derive(Clone, Debug)]
pub struct State<A> {
    pub history: Vec<A>,
    fingerprint: u64,
    actions: Vec<A>,
    is_violation: bool,
}

impl<A> PartialEq for State<A> {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl<A> Hash for State<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint.hash(state);
    }
}

impl<E: Explored> Search<E> {
    fn state(&self, history: Vec<E::Action>, mut world: E::World) -> State<E::Action> {
        let fingerprint = self.explored.fingerprint(&world);
        let is_end = history.len() == self.depth;
        let actions = if is_end { Vec::new() } else { self.explored.actions(&world) };
        if fingerprint.is_multiple_of(self.rests) && self.explored.violation(&world).is_none() {
            self.explored.come_to_rest(&mut world);
        }
        let is_violation = self.explored.violation(&world).is_some();
        State { history, fingerprint, actions, is_violation }
    }

    /// Tells a history, a step a line. Returns what it breaks.
    pub fn tell(&self, history: &[E::Action], text: &mut String) -> Option<Invariant> {
        let mut world = self.explored.world();
        for action in history {
            let [time, step, told] = self.explored.tell(&mut world, *action);
            writeln!(text, "  {time:>3}  {step:<42} {told}").unwrap();
        }
        if self.explored.violation(&world).is_none() {
            self.explored.come_to_rest(&mut world);
        }
        let (invariant, why) = self.explored.violation(&world)?;
        writeln!(text, "       {invariant:?}: {why}").unwrap();
        Some(invariant)
    }
}

impl<E: Explored> Model for Search<E> {
    type State = State<E::Action>;
    type Action = E::Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![self.state(Vec::new(), self.explored.world())]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<E::Action>) {
        actions.extend_from_slice(&state.actions);
    }

    fn next_state(&self, last: &Self::State, action: E::Action) -> Option<Self::State> {
        let mut history = Vec::with_capacity(last.history.len() + 1);
        history.extend_from_slice(&last.history);
        history.push(action);
        let mut world = self.explored.world();
        history.iter().for_each(|action| self.explored.apply(&mut world, *action));
        Some(self.state(history, world))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(CONTRACT, |_, state: &Self::State| !state.is_violation)]
    }
}

/// The property of every search.
pub const CONTRACT: &str = "the contract holds";
