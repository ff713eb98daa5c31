//! The fleet as it is searched: a scene, with a mechanism that is switched off or none.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::directory::Directory;
use crate::lua::{Patch, Scripts};
use crate::model::Explored;
use crate::mutants::Fault;
use crate::requests::name;
use crate::scenes::{Invariant, Most, Scene};
use crate::server::Prepared;
use crate::world::{Action, World};

#[derive(Clone)]
pub struct Fleet {
    pub scene: &'static Scene,
    /// Number of steps of each kind: as the scene says, or fewer.
    pub most: Most,
    pub patches: &'static [Patch],
    pub fault: Fault,
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

impl Explored for Fleet {
    type Action = Action;
    type World = World;

    fn world(&self) -> World {
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

    fn apply(&self, world: &mut World, action: Action) {
        world.apply(action);
    }

    fn actions(&self, world: &World) -> Vec<Action> {
        world.actions()
    }

    fn fingerprint(&self, world: &World) -> u64 {
        world.fingerprint()
    }

    fn come_to_rest(&self, world: &mut World) {
        world.come_to_rest();
    }

    fn violation(&self, world: &World) -> Option<(Invariant, String)> {
        world.oracle.violation.clone()
    }

    fn tell(&self, world: &mut World, action: Action) -> [String; 3] {
        world.told = Some(Vec::new());
        let step = world.describe(action);
        world.apply(action);
        let told = world.told.take().unwrap_or_default().join("; ");
        [(world.now / 1_000_000).to_string(), step, told]
    }
}

impl World {
    /// A step in words.
    fn describe(&self, action: Action) -> String {
        let of = |gateway: u8| name(gateway.into());
        let message = |number: u8| {
            let message = self.messages[usize::from(number)].as_ref();
            message.map_or(String::new(), |message| format!("{}: {}", name(message.gateway), message.purpose()))
        };
        let request = |number: u8| {
            let request = self.requests[usize::from(number)].as_ref();
            request.map_or(String::new(), |request| format!("{}: /{number}", name(request.gateway)))
        };
        match action {
            Action::Request(gateway, credential) => {
                let credential = format!("{credential:?}").to_lowercase();
                format!("{}: a request with the {credential}", of(gateway))
            }
            Action::End(number, cost) => {
                format!("{} ends, and costs {}", request(number), self.scene.costs[usize::from(cost)])
            }
            Action::Deliver(number) => format!("{} is answered", message(number)),
            Action::Arrive(number) => format!("{} arrives", message(number)),
            Action::Answer(number) => format!("{}: the reply arrives", message(number)),
            Action::GiveUp(number) => format!("{}: the reply is lost", message(number)),
            Action::Deadline(number) => format!("{}: the deadline is over", request(number)),
            Action::Releases(number) => format!("{} waits no longer", request(number)),
            Action::Visit(gateway) => format!("{}: visits its leases", of(gateway)),
            Action::Report(gateway) => format!("{}: reports", of(gateway)),
            Action::ReadLog(gateway) => format!("{}: reads the log", of(gateway)),
            Action::Assert(gateway) => format!("{}: asserts", of(gateway)),
            Action::Tick(_) => "time passes".to_owned(),
            Action::Hang => "time passes, Redis answers nothing".to_owned(),
            Action::Step(true) => "the clock of Redis is set forward".to_owned(),
            Action::Step(false) => "the clock of Redis is set back".to_owned(),
            Action::Kill(gateway) => format!("{}: is killed, and starts anew", of(gateway)),
            Action::FailOver(lost) => format!("the replica is promoted, lacks {lost} writes"),
            Action::Notice(gateway) => format!("{}: notices the new primary", of(gateway)),
            Action::Lose => "all data is lost".to_owned(),
            Action::Restore => "a person restores the data".to_owned(),
            Action::Withdraw(gateway, withdrawal) => format!("{}: {withdrawal:?} begins", of(gateway)),
        }
    }
}
