//! Link between the two processes after a hand-over of an embedded state, until the old one has ended.
//!
//! - The old process asks for decisions about requests that still arrive on its connections, and for sessions. The new
//!   one decides them as its own, and holds their slots until the old one releases them, or has ended. It is told what
//!   comes back to the budgets when they end.
//! - The new process reports revocations, which end what is open at the old one.
//! - On Redis nothing is asked: the link shows that the old process has not ended.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::channel::Channel;
use domain::budget::Cost;
use domain::clock::Micros;
use domain::identity::{OrgId, SessionId, UserId};
use domain::key::{KeyDigest, KeyId};
use domain::session::TokenDigest;
use state::embedded::{DecisionRecord, OwnedAccess, OwnedDecideRequest, Settlement, SuccessorRequest};
use state::{Decision, Permit, RevocationEntry, Session, State};

/// Pause between two looks at the revocation log.
const REVOCATION_INTERVAL: Duration = Duration::from_millis(20);

/// Cost of a request that says none.
fn one() -> Cost {
    Cost::ONE
}

/// Messages of the old process. `n` numbers its questions.
#[derive(Debug, Serialize, Deserialize)]
enum Question {
    Decide {
        n: u64,
        digest: [u8; 32],
        id: Option<KeyId>,
        access: OwnedAccess,
        /// Absent from a process that knows no costs.
        #[serde(default = "one")]
        cost: Cost,
        #[serde(default)]
        client: Option<IpAddr>,
        now: Micros,
    },
    FindSession {
        n: u64,
        digest: [u8; 32],
        now: Micros,
    },
    Release {
        n: u64,
    },
    Settle(Settlement),
}

/// Messages of the new process.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Decided { n: u64, decision: DecisionRecord },
    Found { n: u64, session: Option<Session> },
    Revoked(Revocation),
}

/// A [`RevocationEntry`], as it travels.
#[derive(Debug, Serialize, Deserialize)]
enum Revocation {
    Key(KeyId),
    Secrets { key: KeyId, current: [u8; 32], previous: ([u8; 32], Micros) },
    Policy { key: KeyId, disabled: bool, expires: Micros },
    User(UserId),
    Org(OrgId),
    Session(SessionId),
    Membership { session: SessionId, org: OrgId },
    Gap,
}

/// A request that waits for its reply from the new process.
enum PendingReply {
    Decision(KeyDigest, oneshot::Sender<Decision>),
    Session(oneshot::Sender<Option<Session>>),
}

/// Requests without a reply, by their number; none once the new process has ended.
type PendingReplies = Arc<Mutex<Option<FxHashMap<u64, PendingReply>>>>;

/// The old process's side: forwards what comes through `requests`, until the new one has ended.
pub(super) fn forward_requests(
    mut channel: Channel,
    state: Arc<State>,
    requests: mpsc::UnboundedReceiver<SuccessorRequest>,
) -> io::Result<()> {
    channel.set_timeout(None)?;
    let receiving = channel.try_clone()?;
    let pending = Arc::new(Mutex::new(Some(FxHashMap::default())));
    let sending = Arc::new(Mutex::new(channel));
    let waiting = Arc::clone(&pending);
    let (release, released) = mpsc::unbounded_channel();
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    thread("handover-answers").spawn(move || {
        receive_replies(&receiving, &state, &release, &waiting);
        // Drops what waits: it cannot be decided any more.
        lock(&waiting).take();
        if matches!(*state, State::Embedded(_)) {
            tracing::error!("the process that took over has ended; requests that still arrive here cannot be decided");
        }
    })?;
    let for_releases = Arc::clone(&sending);
    thread("handover-release").spawn(move || send_releases(&for_releases, released))?;
    thread("handover-ask").spawn(move || send_questions(&sending, requests, &pending))?;
    Ok(())
}

fn send_questions(
    sending: &Mutex<Channel>,
    mut requests: mpsc::UnboundedReceiver<SuccessorRequest>,
    pending: &PendingReplies,
) {
    for n in 1.. {
        let Some(request) = requests.blocking_recv() else { return };
        let (question, waiting) = match request {
            SuccessorRequest::Decide(request, reply) => {
                let OwnedDecideRequest { digest, id, access, cost, client, now } = *request;
                let question = Question::Decide { n, digest: *digest.as_bytes(), id, access, cost, client, now };
                (question, PendingReply::Decision(digest, reply))
            }
            SuccessorRequest::Session(digest, now, reply) => {
                (Question::FindSession { n, digest: *digest.as_bytes(), now }, PendingReply::Session(reply))
            }
            SuccessorRequest::Settle(settlement) => {
                if send(sending, &Question::Settle(settlement)).is_err() {
                    return;
                }
                continue;
            }
        };
        match lock(pending).as_mut() {
            Some(pending) => drop(pending.insert(n, waiting)),
            None => return,
        }
        if send(sending, &question).is_err() {
            return;
        }
    }
}

fn send_releases(sending: &Mutex<Channel>, mut released: mpsc::UnboundedReceiver<u64>) {
    while let Some(n) = released.blocking_recv() {
        if send(sending, &Question::Release { n }).is_err() {
            return;
        }
    }
}

fn send(sending: &Mutex<Channel>, message: &impl Serialize) -> io::Result<()> {
    sending.lock().send(message)
}

fn receive_replies(channel: &Channel, state: &State, release: &mpsc::UnboundedSender<u64>, pending: &PendingReplies) {
    let take = |n| lock(pending).as_mut().and_then(|pending| pending.remove(&n));
    // An error says that the new process has ended.
    while let Ok((answer, _)) = channel.receive::<Answer>() {
        match answer {
            Answer::Decided { n, decision } => {
                if let Some(PendingReply::Decision(digest, reply)) = take(n)
                    && let State::Embedded(state) = state
                    && let Some(decision) = state.adopt(decision, digest, n, release)
                {
                    // An error says that the request has ended: the decision is dropped, which releases its slot.
                    reply.send(decision).ok();
                }
            }
            Answer::Found { n, session } => {
                if let Some(PendingReply::Session(reply)) = take(n) {
                    reply.send(session).ok();
                }
            }
            Answer::Revoked(revocation) => {
                if let State::Embedded(state) = state {
                    state.append_revocation(revocation.into_entry());
                }
            }
        }
    }
}

/// The new process's side: answers until the old one has ended, and reports revocations to it.
pub(super) fn serve_old_process(mut channel: Channel, state: &Arc<State>, is_alive: Arc<AtomicBool>) -> io::Result<()> {
    channel.set_timeout(None)?;
    let receiving = channel.try_clone()?;
    let sending = Arc::new(Mutex::new(channel));
    if matches!(**state, State::Embedded(_)) {
        let state = Arc::clone(state);
        let sending = Arc::clone(&sending);
        let is_alive = Arc::clone(&is_alive);
        let run = move || report_revocations(&state, &sending, &is_alive);
        std::thread::Builder::new().name("handover-revoke".into()).spawn(run)?;
    }
    let state = Arc::clone(state);
    std::thread::Builder::new().name("handover-answer".into()).spawn(move || {
        if let Err(error) = answer_questions(&receiving, &state, &sending)
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            tracing::warn!(%error, "the process that was replaced cannot be answered");
        }
        is_alive.store(false, Ordering::Relaxed);
        tracing::info!("the process that was replaced has ended");
    })?;
    Ok(())
}

fn answer_questions(receiving: &Channel, state: &State, sending: &Mutex<Channel>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    // Slots of the old process's requests; released when it has ended.
    let mut slots: FxHashMap<u64, Permit> = FxHashMap::default();
    loop {
        let answer = match receiving.receive::<Question>()?.0 {
            Question::Decide { n, digest, id, access, cost, client, now } => {
                let request =
                    OwnedDecideRequest { digest: KeyDigest::from_bytes(digest), id, access, cost, client, now };
                let decision = runtime.block_on(state.decide(request.as_request())).map_err(io::Error::other)?;
                let (decision, slot) = DecisionRecord::new(decision);
                slots.extend(slot.map(|slot| (n, slot)));
                Answer::Decided { n, decision }
            }
            Question::FindSession { n, digest, now } => {
                let session = runtime.block_on(state.session(&TokenDigest::from_bytes(digest), now));
                Answer::Found { n, session: session.map_err(io::Error::other)? }
            }
            Question::Release { n } => {
                slots.remove(&n);
                continue;
            }
            Question::Settle(settlement) => {
                if let State::Embedded(state) = state {
                    state.settle(settlement);
                }
                continue;
            }
        };
        send(sending, &answer)?;
    }
}

fn report_revocations(state: &State, sending: &Mutex<Channel>, is_alive: &AtomicBool) {
    let log = state.revocations();
    let last = log.subscribe();
    // The state was opened by this process: all entries are newer than the hand-over.
    let mut position = 0;
    while is_alive.load(Ordering::Relaxed) {
        let end = *last.borrow();
        for entry in log.range(position, end) {
            let answer = Answer::Revoked(Revocation::new(entry));
            if send(sending, &answer).is_err() {
                return;
            }
        }
        position = end;
        std::thread::sleep(REVOCATION_INTERVAL);
    }
}

fn lock(pending: &PendingReplies) -> MutexGuard<'_, Option<FxHashMap<u64, PendingReply>>> {
    pending.lock()
}

impl Revocation {
    fn new(entry: RevocationEntry) -> Self {
        match entry {
            RevocationEntry::Key(key) => Self::Key(key),
            RevocationEntry::Secrets { key, current, previous: (previous, until) } => {
                Self::Secrets { key, current: *current.as_bytes(), previous: (*previous.as_bytes(), until) }
            }
            RevocationEntry::Policy { key, disabled, expires } => Self::Policy { key, disabled, expires },
            RevocationEntry::User(user) => Self::User(user),
            RevocationEntry::Org(org) => Self::Org(org),
            RevocationEntry::Session(session) => Self::Session(session),
            RevocationEntry::Membership { session, org } => Self::Membership { session, org },
            RevocationEntry::Gap => Self::Gap,
        }
    }

    fn into_entry(self) -> RevocationEntry {
        match self {
            Self::Key(key) => RevocationEntry::Key(key),
            Self::Secrets { key, current, previous: (previous, until) } => RevocationEntry::Secrets {
                key,
                current: KeyDigest::from_bytes(current),
                previous: (KeyDigest::from_bytes(previous), until),
            },
            Self::Policy { key, disabled, expires } => RevocationEntry::Policy { key, disabled, expires },
            Self::User(user) => RevocationEntry::User(user),
            Self::Org(org) => RevocationEntry::Org(org),
            Self::Session(session) => RevocationEntry::Session(session),
            Self::Membership { session, org } => RevocationEntry::Membership { session, org },
            Self::Gap => RevocationEntry::Gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_revocation_arrives_as_it_was_sent() {
        let digest = KeyDigest::of(b"any");
        let key: KeyId = "abcDEF123".parse().unwrap();
        let entries = [
            RevocationEntry::Key(key),
            RevocationEntry::Secrets { key, current: digest, previous: (digest, Micros(7)) },
            RevocationEntry::Policy { key, disabled: true, expires: Micros(7) },
            RevocationEntry::User(UserId::generate()),
            RevocationEntry::Org(OrgId::generate()),
            RevocationEntry::Session(SessionId::generate()),
            RevocationEntry::Membership { session: SessionId::generate(), org: OrgId::generate() },
            RevocationEntry::Gap,
        ];
        for entry in entries {
            let json = serde_json::to_vec(&Revocation::new(entry.clone())).unwrap();
            assert_eq!(serde_json::from_slice::<Revocation>(&json).unwrap().into_entry(), entry);
        }
    }
}
