//! One call of `decide.lua`, from the report that it carries to the permit that it acquires.
//!
//! A call that is dropped before its reply arrived, because the client has gone or the deadline has passed, is finished
//! by a task of its own: the slot that it may have acquired is released as soon as the reply arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::call_arguments::CallArguments;
use super::call_outcome::{CallOutcome, CallResult, DecideInput, complete, give_back, took_token};
use super::decide_codec::Evaluation;
use super::key_cache::CachedKey;
use super::late_answer::LateAnswer;
use super::shared::DeciderShared;
use domain::clock::{self, Micros};
use redis_client::{CommandError, RedisClient, SentCommand};

type CallFuture = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// A decide call in flight.
///
/// - It is sent when it is made. Polled, it waits for the reply, however long that takes: the deadline is the caller's.
/// - A reply at the first attempt is applied without a future of its own. What is rare is one: a second attempt, and a
///   call whose caller has gone.
pub(super) struct DecideCall<'a> {
    shared: &'a Arc<DeciderShared>,
    client: &'a RedisClient,
    key: &'a Arc<CachedKey>,
    evaluation: Evaluation,
    /// Shared with the request, which may be admitted offline while this call is still in flight.
    late_answer: Option<&'a Arc<LateAnswer>>,
    stage: Stage,
}

/// Progress of a call.
#[allow(clippy::large_enum_variant, reason = "nearly every call is sent; a box would be an allocation for each")]
enum Stage {
    /// Its reply is awaited.
    Sent(SentCall),
    /// It is finished by a future of its own.
    Finishing(CallFuture),
    /// This is the result, which was not taken yet; nothing was sent.
    NotSent(CallResult),
    Completed,
}

/// A call that was sent, and what its reply is applied to.
struct SentCall {
    command: SentCommand,
    input: DecideInput,
}

impl<'a> DecideCall<'a> {
    /// A call about a cached key, as evaluated.
    pub(super) fn new(
        shared: &'a Arc<DeciderShared>,
        client: &'a RedisClient,
        key: &'a Arc<CachedKey>,
        evaluation: Evaluation,
        now: Micros,
        late_answer: Option<&'a Arc<LateAnswer>>,
    ) -> Self {
        let stage = send(shared, client, key, evaluation, now);
        Self { shared, client, key, evaluation, late_answer, stage }
    }

    /// Waits for the result as long as the link waits for replies.
    pub(super) async fn finish(mut self) -> CallResult {
        match std::mem::replace(&mut self.stage, Stage::Completed) {
            Stage::Sent(sent) => self.finishing(sent, None).await,
            Stage::Finishing(finishing) => finishing.await,
            Stage::NotSent(result) => result,
            Stage::Completed => unreachable!("the result of a call is taken once"),
        }
    }

    /// The future that finishes a call; `first` is the error of its first attempt, if that has ended.
    fn finishing(&self, sent: SentCall, first: Option<CommandError>) -> CallFuture {
        // 'static, so that a task can run it.
        let shared = Arc::clone(self.shared);
        let client = self.client.clone();
        let key = Arc::clone(self.key);
        Box::pin(finish(shared, client, key, sent, first))
    }
}

impl Future for DecideCall<'_> {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        let first = match &mut call.stage {
            Stage::Sent(sent) => ready!(sent.command.poll_reply(cx)),
            Stage::Finishing(finishing) => {
                let result = ready!(finishing.as_mut().poll(cx));
                call.stage = Stage::Completed;
                return Poll::Ready(result);
            }
            Stage::NotSent(_) => {
                let Stage::NotSent(result) = std::mem::replace(&mut call.stage, Stage::Completed) else {
                    unreachable!("the stage is that of above")
                };
                return Poll::Ready(result);
            }
            Stage::Completed => unreachable!("the result of a call is taken once"),
        };
        let Stage::Sent(sent) = std::mem::replace(&mut call.stage, Stage::Completed) else {
            unreachable!("the reply above is that of a sent call")
        };
        match first {
            Err(error) if error.asks_for_another_attempt() => {
                call.stage = Stage::Finishing(call.finishing(sent, Some(error)));
                self.poll(cx)
            }
            reply => Poll::Ready(complete(call.shared, call.key, sent.input, reply, clock::steady())),
        }
    }
}

impl Drop for DecideCall<'_> {
    fn drop(&mut self) {
        let cost = self.evaluation.cost();
        let finishing = match std::mem::replace(&mut self.stage, Stage::Completed) {
            Stage::Sent(sent) => self.finishing(sent, None),
            Stage::Finishing(finishing) => finishing,
            Stage::NotSent(_) | Stage::Completed => return,
        };
        // Without a runtime the process is ending: the slots are released when the lease expires.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let late_answer = self.late_answer.cloned();
        let key = Arc::clone(self.key);
        let shared = Arc::clone(self.shared);
        late_answer.iter().for_each(|late_answer| late_answer.mark_pending());
        runtime.spawn(async move {
            let result = finishing.await;
            let ran = took_token(&result);
            give_back(&shared, &key, cost.units(), result);
            if late_answer.is_some_and(|late_answer| late_answer.complete(ran)) {
                shared.record_unreported(&key, cost.tokens());
            }
        });
    }
}

/// Sends a call once, unless the lease has to be resynced first.
fn send(
    shared: &DeciderShared,
    client: &RedisClient,
    key: &Arc<CachedKey>,
    evaluation: Evaluation,
    now: Micros,
) -> Stage {
    let input = match DecideInput::begin(shared, key, evaluation, now, Instant::now()) {
        Ok(input) => input,
        Err(lease) => return Stage::NotSent(Ok(CallOutcome::LeaseInDoubt(lease))),
    };
    let prepared = CallArguments::new(shared, key, &input);
    let (keys, arguments) = prepared.keys_and_arguments(shared, key);
    match client.begin(
        key.lease.hash_slot,
        &shared.scripts.decide,
        &keys[..prepared.keys],
        &arguments[..prepared.arguments],
    ) {
        Ok(command) => Stage::Sent(SentCall { command, input }),
        Err(error) => Stage::NotSent(complete(shared, key, input, Err(error), clock::steady())),
    }
}

/// Waits for the reply as long as the link does, sends the call again where the reply asks for that, and applies the
/// result.
async fn finish(
    shared: Arc<DeciderShared>,
    client: RedisClient,
    key: Arc<CachedKey>,
    sent: SentCall,
    first: Option<CommandError>,
) -> CallResult {
    let SentCall { command, input } = sent;
    let link = Arc::clone(command.link());
    let reply = match first {
        Some(error) => Err(error),
        None => command.finish().await,
    };
    let reply = match reply {
        Err(error) if error.asks_for_another_attempt() => {
            let prepared = CallArguments::new(&shared, &key, &input);
            let (keys, arguments) = prepared.keys_and_arguments(&shared, &key);
            let keys = &keys[..prepared.keys];
            let arguments = &arguments[..prepared.arguments];
            client.run_again(link, error, &shared.scripts.decide, keys, arguments).await
        }
        reply => reply,
    };
    complete(&shared, &key, input, reply, clock::steady())
}
