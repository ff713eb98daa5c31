//! The model for `stateright`: a state is a history and the fingerprint of the world that it leads to.
//!
//! The world itself is not kept: it is made again from the history, by the product's own steps. Histories that lead to
//! the same world are one state.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use stateright::{Model, Property};

use crate::directory::Directory;
use crate::lua::{Patch, Scripts};
use crate::mutants::Fault;
use crate::scenes::{Invariant, Most, Scene};
use crate::server::Prepared;
use crate::world::{Action, World};

/// A search: a scene, a depth, and a mechanism that is switched off.
#[derive(Clone)]
pub struct Search {
    pub scene: &'static Scene,
    pub depth: usize,
    /// How often each kind of step is taken: as the scene says, or less often.
    pub most: Most,
    pub patches: &'static [Patch],
    pub fault: Fault,
    /// Of so many states one is also brought to rest: every request must have its answer, every slot be back.
    pub rests: u64,
}

/// A history, by the fingerprint of its world.
#[derive(Clone, Debug)]
pub struct State {
    pub history: Vec<Action>,
    fingerprint: u64,
    actions: Vec<Action>,
    pub violation: Option<(Invariant, String)>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint.hash(state);
    }
}

/// Interpreter and directory of a scene with its patches, and what its preparation has led to.
struct Cached {
    scripts: Rc<Scripts>,
    directory: Rc<Directory>,
    prepared: Option<Prepared>,
}

thread_local! {
    static CACHED: RefCell<HashMap<(&'static str, &'static [Patch]), Cached>> = RefCell::default();
}

impl Search {
    /// The world at the beginning.
    pub fn world(&self) -> World {
        CACHED.with_borrow_mut(|cached| {
            let new = || Cached {
                scripts: Rc::new(Scripts::new(self.patches)),
                directory: Rc::new(Directory::new(self.scene)),
                prepared: None,
            };
            let Cached { scripts, directory, prepared } =
                cached.entry((self.scene.name, self.patches)).or_insert_with(new);
            World::new((self.scene, self.most), scripts, Rc::clone(directory), self.fault, prepared)
        })
    }

    fn state(&self, history: Vec<Action>, mut world: World) -> State {
        let fingerprint = world.fingerprint();
        let actions = if history.len() < self.depth { world.actions() } else { Vec::new() };
        if world.oracle.violation.is_none() && fingerprint.is_multiple_of(self.rests) {
            world.come_to_rest();
        }
        State { history, fingerprint, actions, violation: world.oracle.violation.take() }
    }
}

impl Model for Search {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.state(Vec::new(), self.world())]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend_from_slice(&state.actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut world = self.world();
        let mut history = Vec::with_capacity(last.history.len() + 1);
        history.extend_from_slice(&last.history);
        history.push(action);
        history.iter().for_each(|action| world.apply(*action));
        Some(self.state(history, world))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("the contract holds", |_, state: &State| state.violation.is_none())]
    }
}
