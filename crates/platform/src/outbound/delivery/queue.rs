//! Bounded queue between the threads that have items, such as the bytes of lines, and the worker that delivers them.
//!
//! - Adding takes a short lock and copies; it never waits for the worker. Beyond the bound an item finds no room. What
//!   the worker has taken and not delivered counts against the bound.
//! - The worker takes all items at once, so that one message serves many of them.
//! - The worker is woken by the first item, and once more at half of the bound: a wake-up is a system call.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

/// Bytes of items whose room is kept when the queue was emptied; what a surge took beyond is given back.
const KEPT_BYTES: usize = 1 << 20;

/// The queue, shared by those who add and by the worker. Dropped with the last of them: the worker has taken what was
/// in it then, or was given up.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// Items that wait or are being delivered, at most.
    capacity: usize,
    /// Time for which the worker collects items after the first one, so that it is not woken for each.
    collect: Duration,
    /// Locked for no longer than items are copied, and never across an await.
    state: Mutex<State<T>>,
    /// Wakes the worker.
    changed: Notify,
    /// Tells the worker that the queue was closed.
    closing: Notify,
    /// Wakes who waits for items to be delivered.
    delivered: Condvar,
    /// Wakes who waits for the end of the worker.
    ended: Condvar,
}

/// - The items and those in delivery are no more than the capacity.
/// - Once it is closed it stays so, and no item comes any more.
#[derive(Debug)]
struct State<T> {
    /// Items that wait, in the order in which they came. The worker takes all at once.
    items: Vec<T>,
    /// Items that the worker has taken and not delivered.
    in_delivery: usize,
    /// True when the destination is to be opened again.
    reopen: bool,
    /// The destination has refused items, and is tried again later.
    is_failing: bool,
    /// No items are added any more. Set by those who add, and by a worker that ends.
    is_closed: bool,
    /// The worker has ended: what is left is delivered no more.
    has_ended: bool,
}

/// Items that the worker has taken from the queue, and how many of them are delivered or given up.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    items: Vec<T>,
    /// Items from the first one on that need not be delivered any more.
    done: usize,
}

/// Next steps of the worker, beside the delivery of what it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Open the destination again, after what was taken is delivered.
    pub(super) reopen: bool,
    /// No more items will come.
    pub(super) is_closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize, collect: Duration) -> Arc<Self> {
        let state = State {
            items: Vec::new(),
            in_delivery: 0,
            reopen: false,
            is_failing: false,
            is_closed: false,
            has_ended: false,
        };
        Arc::new(Self {
            capacity,
            collect,
            state: Mutex::new(state),
            changed: Notify::new(),
            closing: Notify::new(),
            delivered: Condvar::new(),
            ended: Condvar::new(),
        })
    }

    /// Adds an item.
    ///
    /// # Errors
    /// The item, when it finds no room.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if !self.has_room(&state, 1) {
            return Err(item);
        }
        state.items.push(item);
        self.wake_worker(state, 1);
        Ok(())
    }

    /// Adds items that belong together, such as the bytes of a line. Returns false when they find no room.
    pub(crate) fn push_all(&self, items: &[T]) -> bool
    where
        T: Copy,
    {
        let mut state = self.lock();
        if !self.has_room(&state, items.len()) {
            return false;
        }
        state.items.extend_from_slice(items);
        self.wake_worker(state, items.len());
        true
    }

    fn has_room(&self, state: &State<T>, more: usize) -> bool {
        !state.is_closed && state.items.len() + state.in_delivery + more <= self.capacity
    }

    /// Wakes the worker where so many items have made the queue more than empty, or half full.
    fn wake_worker(&self, state: MutexGuard<'_, State<T>>, added: usize) {
        let after = state.items.len();
        drop(state);
        let before = after - added;
        if before == 0 || before < self.capacity / 2 && after >= self.capacity / 2 {
            self.changed.notify_one();
        }
    }

    /// Has the worker open its destination again.
    pub(crate) fn reopen(&self) {
        self.lock().reopen = true;
        self.changed.notify_one();
    }

    /// Takes no more items, and has the worker end when it has delivered those that are there.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
        self.closing.notify_one();
    }

    /// Waits until all items are delivered, or cannot be, at most for this time.
    pub(crate) fn flush(&self, timeout: Duration) {
        let is_busy = |state: &mut State<T>| {
            !state.has_ended && !state.is_failing && (state.in_delivery > 0 || !state.items.is_empty())
        };
        self.delivered.wait_while_for(&mut self.lock(), is_busy, timeout);
    }

    /// Waits until the worker has ended. Returns the items that are left when it has not within the
    /// time: they are discarded.
    pub(crate) fn wait_for_end(&self, timeout: Duration) -> Option<Vec<T>> {
        let mut state = self.lock();
        self.ended.wait_while_for(&mut state, |state| !state.has_ended, timeout);
        (!state.has_ended).then(|| mem::take(&mut state.items))
    }

    /// Returns whether the worker has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Waits for something to do, and exchanges the items for an empty batch.
    pub(super) async fn take(&self, batch: &mut Batch<T>) -> Taken {
        self.note_in_delivery(0);
        while self.lock().is_idle() {
            self.changed.notified().await;
        }
        let deadline = Instant::now() + self.collect;
        while self.lock().may_collect(self.capacity / 2) {
            if timeout_at(deadline, self.changed.notified()).await.is_err() {
                break;
            }
        }
        self.take_now(batch)
    }

    /// Exchanges the items for an empty batch.
    pub(super) fn take_now(&self, batch: &mut Batch<T>) -> Taken {
        batch.done = 0;
        batch.items.clear();
        batch.items.shrink_to(KEPT_BYTES / size_of::<T>());
        let mut state = self.lock();
        mem::swap(&mut batch.items, &mut state.items);
        state.in_delivery = batch.items.len();
        debug_assert!(state.in_delivery <= self.capacity, "no more was added than there is room for");
        Taken { reopen: mem::take(&mut state.reopen), is_closed: state.is_closed }
    }

    /// Notes how many of the items that the worker took are not delivered yet.
    pub(super) fn note_in_delivery(&self, items: usize) {
        let mut state = self.lock();
        debug_assert!(items <= state.in_delivery, "what was taken only becomes less");
        state.in_delivery = items;
        state.is_failing = false;
        drop(state);
        self.delivered.notify_all();
    }

    /// Waits before the worker tries again, at most until the destination is to be opened again; with `until_closed`,
    /// also until the queue is closed.
    pub(super) async fn wait_to_retry(&self, pause: Duration, until_closed: bool) -> Taken {
        let deadline = Instant::now() + pause;
        self.lock().is_failing = true;
        self.delivered.notify_all();
        loop {
            {
                let mut state = self.lock();
                if Instant::now() >= deadline || state.reopen || until_closed && state.is_closed {
                    return Taken { reopen: mem::take(&mut state.reopen), is_closed: state.is_closed };
                }
            }
            // When the time is up, the loop sees it.
            timeout_at(deadline, self.changed.notified()).await.ok();
        }
    }

    /// Returns whether no more items are taken.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Waits until this time has passed since the queue was closed. To be called by the worker, once.
    pub(super) async fn wait_until_closed_for(&self, time: Duration) {
        self.closing.notified().await;
        sleep(time).await;
    }

    /// Notes that the worker has ended.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.is_closed = true;
        drop(state);
        self.delivered.notify_all();
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

impl<T> State<T> {
    fn is_idle(&self) -> bool {
        self.items.is_empty() && !self.reopen && !self.is_closed
    }

    fn may_collect(&self, enough: usize) -> bool {
        self.items.len() < enough && !self.reopen && !self.is_closed
    }
}

impl<T> Batch<T> {
    /// Items that are left.
    pub(crate) fn rest(&self) -> &[T] {
        &self.items[self.done..]
    }

    /// Notes that so many more items were delivered or given up.
    pub(crate) fn advance(&mut self, items: usize) {
        debug_assert!(items <= self.rest().len(), "no more than there are");
        self.done += items;
    }
}

impl<T> From<Vec<T>> for Batch<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, done: 0 }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const CAPACITY: usize = 16 << 20;

    fn queue() -> Arc<Queue<u8>> {
        Queue::new(CAPACITY, Duration::from_millis(20))
    }

    #[tokio::test]
    async fn queue_is_bounded_and_whole_lines_come_out_in_order() {
        let queue = queue();
        assert!(queue.push_all(b"a\n") && queue.push_all(b"b\n"));
        let long = vec![b'x'; CAPACITY - 4];
        assert!(queue.push_all(&long));
        assert!(!queue.push_all(b"c"), "the queue is full");
        let mut batch = Batch::from(Vec::new());
        assert_eq!(queue.take(&mut batch).await, Taken::default());
        assert!(batch.rest().starts_with(b"a\nb\nxx") && batch.rest().len() == CAPACITY);
        assert!(!queue.push_all(b"c\n"), "nothing is delivered yet");
        queue.note_in_delivery(CAPACITY - 2);
        assert!(queue.push_all(b"c\n"));
        queue.take(&mut batch).await;
        assert_eq!(batch.rest(), b"c\n");
        assert!(batch.items.capacity() <= CAPACITY);
    }

    #[tokio::test]
    async fn closed_queue_takes_no_lines_and_gives_those_that_it_has() {
        let queue = queue();
        queue.push_all(b"a\n");
        queue.reopen();
        queue.close();
        assert!(!queue.push_all(b"b\n"));
        let mut batch = Batch::from(Vec::new());
        assert_eq!(queue.take(&mut batch).await, Taken { reopen: true, is_closed: true });
        assert_eq!(batch.rest(), b"a\n");
        assert_eq!((queue.has_ended(), queue.wait_for_end(Duration::ZERO)), (false, Some(Vec::new())));
        queue.end();
        assert_eq!((queue.has_ended(), queue.wait_for_end(Duration::ZERO)), (true, None));
    }

    #[tokio::test]
    async fn worker_is_woken_by_the_first_item_and_when_the_queue_is_half_full() {
        let queue = Queue::new(4, Duration::from_secs(3600));
        let mut batch = Batch::from(Vec::new());
        let mut taken = Box::pin(queue.take(&mut batch));
        assert!(taken.as_mut().now_or_never().is_none());
        let is_woken = || queue.changed.notified().now_or_never().is_some();
        queue.push(1).unwrap();
        assert!(taken.as_mut().now_or_never().is_none(), "it collects more");
        queue.push(2).unwrap();
        queue.push(3).unwrap();
        assert_eq!(taken.await, Taken::default());
        assert_eq!(batch.rest(), [1, 2, 3]);
        queue.note_in_delivery(0);
        queue.push(4).unwrap();
        assert!(is_woken());
        queue.push(5).unwrap();
        assert!(is_woken());
        queue.push(6).unwrap();
        assert!(!is_woken());
    }

    #[tokio::test]
    async fn flush_waits_for_lines_that_wait_and_for_those_that_are_being_delivered() {
        let queue = queue();
        let long = Duration::from_secs(60);
        let short = Duration::from_millis(10);
        let flush = |timeout| {
            let begun = Instant::now();
            queue.flush(timeout);
            begun.elapsed()
        };
        assert!(flush(long) < long);
        queue.push_all(b"a\n");
        assert!(flush(short) >= short, "a line waits");
        queue.take(&mut Batch::from(Vec::new())).await;
        assert!(flush(short) >= short, "a line is being delivered");
        queue.wait_to_retry(Duration::ZERO, false).await;
        assert!(flush(long) < long, "the destination has failed: it is not waited for");
        std::thread::scope(|scope| {
            scope.spawn(|| queue.note_in_delivery(0));
            queue.flush(long);
        });
    }
}
