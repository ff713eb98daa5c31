//! Events of the simulation, in virtual time, and the commands that gateways send to Redis.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;

use domain::clock::Micros;
use domain::key::OrgTag;
use journal::shipping::ShipEvent;
use state::identity::Reading;
use state::redis::{CachedKey, DecideInput, Kept, LateAnswer, LogRead, PendingReport, Resync, VisitedLease};
use state::{StateId, StateIdentity};

use super::faults::Fault;
use super::identity::{Confirming, Purpose};
use super::lua::{Reply, Script};
use super::sinks::{Part, SinkKind};
use super::subjects::Subject;

/// A process of a gateway: its number, and how many were before it on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub gateway: usize,
    pub start: u32,
}

/// Event at a time.
#[derive(Debug)]
pub enum Event {
    /// The next request of a client arrives.
    NextRequest,
    /// The decision of a request has lasted for its deadline.
    Deadline(u64),
    /// Releases in flight may have reached Redis, for which a request waits until this time.
    Releases(u64, u64),
    /// The exchange of a request ends.
    Finish(u64),
    /// A command reaches its server.
    Arrive(u64),
    /// The reply to a command reaches its gateway.
    Answer(u64),
    /// A command has no reply within the deadline.
    Late(u64),
    /// A command is given up.
    GiveUp(u64),
    /// A round of the heartbeat of slot leases; with `true`, an early one.
    Visit(Process, bool),
    Register(Process),
    /// A heartbeat of a gateway to a shard, the first on a connection with this number.
    Sign(Process, usize, u32),
    ReadLog(Process),
    /// A gateway reads the identity of the state.
    ReadIdentity(Process),
    /// A gateway asserts what the primary of a shard lacks.
    Assert(Process, usize),
    LinkDown {
        process: Process,
        shard: usize,
        connection: u32,
    },
    Connect(Process, usize),
    /// The next step of a revocation.
    Revoke(usize),
    /// The committer of a process looks at the pending lines.
    Look(Process),
    /// The batch of a process that is being synced is on its disk.
    Synced(Process),
    TimedSync(Process),
    /// The shipper of a process begins.
    BeginShipping(Process),
    /// A result of an action reaches the shipper of a process, if it still awaits the one with this number.
    Ship(Process, u64, ShipEvent),
    /// A part of a journal reaches its sink.
    Delivered {
        process: Process,
        turn: u64,
        kind: SinkKind,
        journal: u64,
        part: Part,
    },
    Start(usize),
    Leave(Process),
    Fault(Fault),
    Promote(usize),
    /// An operator restores the data of a shard.
    Restore(usize),
    AddReplica(usize),
    EndLag(usize, u64),
    /// A server process is started again.
    Restart(usize),
    /// A server's memory has room again, if no later fault has filled it.
    EndFull(usize),
    /// A hash slot has moved from a shard to another.
    EndMove {
        hash_slot: u16,
        from: usize,
        to: usize,
    },
}

/// Events by their times; of one time, in the order in which they were added.
#[derive(Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

struct Entry {
    time: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

impl Queue {
    pub fn add(&mut self, time: u64, event: Event) {
        self.added += 1;
        self.heap.push(Reverse(Entry { time, number: self.added, event }));
    }

    pub fn next(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(entry)| (entry.time, entry.event))
    }
}

/// A command on its way: what the server runs, and what the gateway does with the reply.
pub struct Command {
    pub process: Process,
    pub shard: usize,
    /// Connection on which it was sent, and the history of the server at its other end.
    pub connection: u32,
    pub history: u32,
    pub call: Call,
    /// The organization whose records it needs, if it needs one's.
    pub org: Option<usize>,
    pub answer: Option<Answer>,
    /// Its server was gone when it arrived: there is no reply to wait for.
    pub is_dropped: bool,
    /// Slots that Redis had given, of each subject that the reply tells about, when it answered.
    pub answer_numbers: Vec<(Subject, u64)>,
    /// Time at which it was sent.
    pub sent: u64,
    /// None once the gateway has given it up.
    pub pending: Option<Pending>,
}

/// Command that the server runs.
pub enum Call {
    Script {
        script: Script,
        keys: Vec<Rc<[u8]>>,
        arguments: Vec<Vec<u8>>,
    },
    /// Reads fields of the log of revocations.
    ReadLog {
        fields: Vec<String>,
    },
    /// Revokes a key, as the transaction of `crates/state/src/redis/directory/keys.rs` does.
    RevokeKey {
        key: usize,
        durable: bool,
    },
    /// Appends to the log of revocations, as `crates/state/src/redis/directory/revocation_log.rs` does.
    AppendLog {
        key: usize,
        durable: bool,
        /// The identity that the gateway remembers.
        identity: Option<StateId>,
    },
    ReadIdentity,
    /// Says that a gateway misses this state here.
    MissState,
    HasOrg(usize),
    ListOrgs,
    /// Reads whether organizations were ever listed.
    HasOrgs,
}

/// Reply of a server.
#[derive(Debug)]
pub enum Answer {
    Script(Reply),
    Log(Vec<Option<Vec<u8>>>),
    /// A change was made; so many replicas have it.
    Changed(u32),
    /// There is no key to be changed.
    NoKey,
    /// The identity, and whether a gateway misses its state.
    Identity(Option<StateIdentity>, bool),
    Exists(bool),
    Orgs(Vec<OrgTag>),
    Missed,
    /// The server refused the command, which did not run: its memory is full, or the hash slot is on its way.
    Refused,
}

/// Purpose of a command: the gateway's use of its reply.
pub enum Pending {
    Read { request: u64 },
    Decide(Box<PendingDecide>),
    Status(Box<PendingStatus>),
    Report { visited: VisitedLease, subject: Subject, report: PendingReport },
    Resync { subject: Subject, resync: Resync, request: Option<ResyncFor>, visited: Option<VisitedLease> },
    Register { beat: Micros, seen: u64 },
    Deregister,
    Sign,
    ReadLog(LogRead),
    Identity { reading: Reading, purpose: Purpose },
    Confirm { request: u64, step: Confirming },
    Missed,
    Revocation { number: usize },
    Assert { kept: Vec<Kept>, history: Arc<str> },
}

/// A decide call in flight.
pub struct PendingDecide {
    pub request: u64,
    pub key: usize,
    /// The cached key that it is about.
    pub entry: Arc<CachedKey>,
    pub input: DecideInput,
    pub late: Arc<LateAnswer>,
    /// The request was decided without the reply.
    pub is_late: bool,
}

/// A request that waits for a resync of a lease, with its cached key.
pub type ResyncFor = (u64, Arc<CachedKey>);

/// A report of uses in flight.
pub struct PendingStatus {
    pub key: usize,
    /// The key in the list of those with unreported uses, and as it is cached by now.
    pub listed: Arc<CachedKey>,
    pub entry: Arc<CachedKey>,
    pub input: DecideInput,
    /// Calls before it.
    pub attempts: usize,
}
