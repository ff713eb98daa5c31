//! The fleet: the server, two gateways, messages in flight and requests; and what may happen next.

use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Instant;

use domain::clock::Micros;

use crate::directory::{Credential, Directory, Withdrawal};
use crate::gateway::{GATEWAYS, Gateway};
use crate::lua::Scripts;
use crate::messages::Message;
use crate::mutants::Fault;
use crate::oracle::Oracle;
use crate::requests::{Phase, Request};
use crate::scenes::{Kind, Most, Scene, most_of};
use crate::server::{Prepared, START, Server};
use crate::withdrawals::Change;

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client sends a request to a gateway.
    Request(u8, Credential),
    /// An exchange ends; its response says this cost.
    End(u8, u8),
    /// A message reaches the server, and its reply the gateway.
    Deliver(u8),
    /// A message reaches the server.
    Arrive(u8),
    /// A reply reaches its gateway.
    Answer(u8),
    /// A gateway takes a reply for lost; the message may arrive later.
    GiveUp(u8),
    /// The deadline of a request is over; its reply may come later.
    Deadline(u8),
    /// A request waits no longer for releases in flight.
    Releases(u8),
    /// A gateway visits its slot leases.
    Visit(u8),
    /// A gateway reports uses and units.
    Report(u8),
    /// A gateway reads the log of revocations.
    ReadLog(u8),
    /// A gateway writes the revocations that the server may lack.
    Assert(u8),
    /// Time passes, with all that each gateway does meanwhile, this one first.
    Tick(u8),
    /// Time passes, and the server answers nothing meanwhile.
    Hang,
    /// The clock of the server is stepped.
    Step(bool),
    /// A gateway is killed, and starts anew.
    Kill(u8),
    /// The replica is promoted, without so many of the last writes.
    FailOver(u8),
    /// A gateway notices that the server is another one.
    Notice(u8),
    /// All data is lost.
    Lose,
    /// A person restores it.
    Restore,
    /// A person withdraws something at a gateway, or takes a slot of the organization away.
    Withdraw(u8, Withdrawal),
}

pub struct World {
    pub scene: &'static Scene,
    most: Most,
    pub scripts: Rc<Scripts>,
    pub fault: Fault,
    pub directory: Rc<Directory>,
    pub now: u64,
    pub server: Server,
    pub gateways: [Gateway; GATEWAYS],
    /// In flight; none in the place of one that is over.
    pub messages: Vec<Option<Message>>,
    pub requests: Vec<Option<Request>>,
    pub changes: Vec<Change>,
    /// Steps so far, and how often each kind of step was taken.
    pub steps: usize,
    used: [u8; Kind::COUNT],
    pub oracle: Oracle,
    /// Reason of the last refusal.
    pub rest_refusal: Option<&'static str>,
    /// The events of the last step, in words, if they are to be shown.
    pub told: Option<Vec<String>>,
}

/// Any instant: all clocks count from it.
pub fn instant(now: u64) -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now) + std::time::Duration::from_micros(now)
}

/// Steady clock of the gateways, which is the true time of the server.
pub fn steady(now: u64) -> Micros {
    Micros(START + now)
}

impl World {
    /// All gateways have joined, know the key, and hold nothing.
    pub fn new(
        (scene, most): (&'static Scene, Most),
        scripts: &Rc<Scripts>,
        directory: Rc<Directory>,
        fault: Fault,
        prepared: &mut Option<Prepared>,
    ) -> Self {
        let mut server = Server::new(scene.max_loss);
        if prepared.is_none() {
            directory.seed(&mut server, scene);
        }
        let is_first = prepared.is_none();
        server.begin_preparation(prepared.clone());
        let mut world = Self {
            scene,
            most,
            scripts: Rc::clone(scripts),
            fault,
            now: 0,
            gateways: [0, 1].map(|number| Gateway::new(number, 0, &directory, None)),
            directory,
            server,
            messages: Vec::new(),
            requests: Vec::new(),
            changes: Vec::new(),
            steps: 0,
            used: [0; Kind::COUNT],
            oracle: Oracle::default(),
            rest_refusal: None,
            told: None,
        };
        world.register_all(0);
        (0..GATEWAYS).for_each(|gateway| world.do_background(gateway));
        (0..GATEWAYS).for_each(|gateway| world.warm_up(gateway));
        let ended = world.server.end_preparation();
        if is_first {
            *prepared = Some(ended);
        }
        world
    }

    pub fn tell(&mut self, text: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told {
            told.push(text());
        }
    }

    /// Takes a step.
    pub fn apply(&mut self, action: Action) {
        self.steps += 1;
        if let Some(kind) = Kind::of(action) {
            self.used[kind as usize] += 1;
        }
        match action {
            Action::Request(gateway, credential) => self.begin_request(gateway.into(), credential),
            Action::End(request, cost) => self.end_request(request.into(), Some(cost.into())),
            Action::Deliver(message) => {
                self.arrive(message.into());
                self.answer(message.into());
            }
            Action::Arrive(message) => self.arrive(message.into()),
            Action::Answer(message) => self.answer(message.into()),
            Action::GiveUp(message) => self.give_up(message.into()),
            Action::Deadline(request) => self.reach_deadline(request.into()),
            Action::Releases(request) => self.await_releases(request.into(), true),
            Action::Visit(gateway) => self.visit_leases(gateway.into()),
            Action::Report(gateway) => self.report_uses(gateway.into()),
            Action::ReadLog(gateway) => self.read_log(gateway.into()),
            Action::Assert(gateway) => self.assert_revocations(gateway.into()),
            Action::Tick(first) => self.tick(first.into(), true),
            Action::Hang => self.tick(0, false),
            Action::Step(is_forward) => {
                let by = i64::try_from(self.scene.tick).unwrap();
                self.server.clock += if is_forward { by } else { -by };
                self.oracle.note_step(if is_forward { self.scene.tick } else { 0 });
            }
            Action::Kill(gateway) => self.kill(gateway.into()),
            Action::FailOver(lost) => self.fail_over(lost.into()),
            Action::Notice(gateway) => self.notice(gateway.into()),
            Action::Lose => self.lose_data(),
            Action::Restore => self.restore_data(),
            Action::Withdraw(gateway, withdrawal) => self.begin_change(gateway.into(), withdrawal),
        }
        self.drop_what_is_over();
        self.check_state();
    }

    /// All steps that are possible now.
    pub fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.oracle.violation.is_some() {
            return actions;
        }
        self.add_message_actions(&mut actions);
        self.add_request_actions(&mut actions);
        let is_linked = |gateway: &usize| self.is_linked(*gateway);
        for gateway in 0..GATEWAYS {
            let number = gateway as u8;
            actions.extend(self.scene.credentials.iter().map(|credential| Action::Request(number, *credential)));
            if !is_linked(&gateway) {
                actions.push(Action::Notice(number));
            }
            actions.extend([Action::Kill(number), Action::Tick(number)]);
            if is_linked(&gateway) {
                let background = [Action::Visit, Action::Report, Action::ReadLog, Action::Assert];
                actions.extend(background.map(|action| action(number)));
                let withdrawals = self.scene.withdrawals.iter().filter(|one| !self.is_begun(**one));
                actions.extend(withdrawals.map(|one| Action::Withdraw(number, *one)));
            }
        }
        let lost = 1..=self.server.recent.len() as u8;
        actions.extend(lost.filter(|_| !self.server.is_lost()).map(Action::FailOver));
        actions.extend([Action::Hang, Action::Step(true), Action::Step(false)]);
        actions.push(if self.server.is_lost() { Action::Restore } else { Action::Lose });
        actions.retain(|action| {
            let Some(kind) = Kind::of(*action) else { return true };
            self.used[kind as usize] < most_of(self.most, kind)
        });
        actions
    }

    fn add_message_actions(&self, actions: &mut Vec<Action>) {
        for (number, message) in (0..).zip(&self.messages) {
            let Some(message) = message else { continue };
            match (&message.answer, &message.pending) {
                (None, Some(_)) if self.can_arrive(message) => {
                    actions.extend([Action::Deliver(number), Action::Arrive(number)]);
                }
                (None, None) if self.can_arrive(message) => actions.push(Action::Arrive(number)),
                (Some(_), Some(_)) => actions.push(Action::Answer(number)),
                _ => {}
            }
            if message.pending.is_some() {
                actions.push(Action::GiveUp(number));
            }
        }
    }

    fn add_request_actions(&self, actions: &mut Vec<Action>) {
        for (number, request) in (0..).zip(&self.requests) {
            let Some(request) = request else { continue };
            match request.phase {
                Phase::Open => {
                    let costs = 0..self.scene.costs.len() as u8;
                    actions.extend(costs.map(|cost| Action::End(number, cost)));
                }
                Phase::AwaitingReleases => actions.push(Action::Releases(number)),
                Phase::Deciding if self.scene.is_offline => actions.push(Action::Deadline(number)),
                _ => {}
            }
        }
    }

    /// The gateway knows the present server.
    pub fn is_linked(&self, gateway: usize) -> bool {
        self.gateways[gateway].history == self.server.history
    }

    /// Steps of each kind that are left.
    pub fn text_of_used(&self) -> String {
        format!("{:?}", self.used)
    }

    fn drop_what_is_over(&mut self) {
        let history = self.server.history;
        for message in &mut self.messages {
            let is_over = |message: &Message| {
                message.pending.is_none() && (message.answer.is_some() || message.history != history)
            };
            if message.as_ref().is_some_and(is_over) {
                *message = None;
            }
        }
        while self.messages.last().is_some_and(Option::is_none) {
            self.messages.pop();
        }
        while self.requests.last().is_some_and(Option::is_none) {
            self.requests.pop();
        }
    }

    /// Time passes. Connected gateways do meanwhile what they do many times in it.
    fn tick(&mut self, first: usize, is_there: bool) {
        self.end_waits();
        self.now += self.scene.tick;
        if is_there {
            self.do_all_background(first);
        } else {
            self.oracle.hangs += 1;
        }
    }

    fn do_all_background(&mut self, first: usize) {
        self.register_all(first);
        for gateway in [first, 1 - first] {
            if !self.is_linked(gateway) {
                self.notice(gateway);
            }
            self.do_background(gateway);
        }
        self.oracle_end_tick();
    }

    /// Time passes without faults.
    pub fn pass(&mut self, time: u64) {
        self.end_waits();
        self.now += time;
        self.do_all_background(0);
        self.drop_what_is_over();
    }

    /// Nothing waits for as long as a tick: requests are answered without the server, and replies are given up.
    fn end_waits(&mut self) {
        for request in 0..self.requests.len() {
            if self.requests[request].as_ref().is_some_and(|request| request.phase == Phase::AwaitingReleases) {
                self.await_releases(request, true);
            }
            self.reach_deadline(request);
        }
        for message in 0..self.messages.len() {
            self.give_up(message);
        }
    }

    fn kill(&mut self, gateway: usize) {
        self.oracle_note_death(gateway);
        for request in &mut self.requests {
            if request.as_ref().is_some_and(|request| request.gateway == gateway) {
                *request = None;
            }
        }
        for message in self.messages.iter_mut().flatten().filter(|message| message.gateway == gateway) {
            message.pending = None;
        }
        self.changes.iter_mut().filter(|change| change.gateway == gateway).for_each(Change::abandon);
        let start = self.gateways[gateway].start + 1;
        let memory = self.gateways[gateway].identity.memory();
        self.gateways[gateway] = Gateway::new(gateway, start, &self.directory, memory);
        self.gateways[gateway].history = self.server.history;
    }

    fn fail_over(&mut self, lost: usize) {
        let spent = self.spent().unwrap_or_default();
        let groups = self.server.fail_over(lost);
        self.note_lost_groups(&groups, spent);
    }

    fn lose_data(&mut self) {
        self.server.wipe();
        self.oracle.note_loss();
    }

    fn restore_data(&mut self) {
        self.server.restore();
    }

    /// A gateway connects to the new primary: what it had in flight is lost.
    pub fn notice(&mut self, gateway: usize) {
        for message in 0..self.messages.len() {
            if self.messages[message].as_ref().is_some_and(|message| message.gateway == gateway) {
                self.give_up(message);
            }
        }
        self.gateways[gateway].history = self.server.history;
        self.gateways[gateway].count_failover();
    }
}
