//! Tokio runtime of the cases, which can wait for a future on any thread.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::runtime::{Builder, EnterGuard, Runtime};

/// The runtime of all cases: its own threads drive what a state spawns and its timers.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Enters the runtime: until the guard is dropped, this thread can make timers and sockets, and spawn.
pub(crate) fn enter() -> EnterGuard<'static> {
    let runtime = || Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    RUNTIME.get_or_init(runtime).enter()
}

/// Waits for a future on this thread, within the runtime. It may be called within a case, and on any thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let _entered = enter();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn timers_and_tasks_work_on_any_thread() {
    use std::time::Duration;
    let nap = || {
        block_on(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tokio::spawn(async { tokio::time::sleep(Duration::from_millis(1)).await }).await.unwrap();
        });
    };
    nap();
    block_on(async { nap() });
    block_on(async { std::thread::scope(|scope| scope.spawn(nap).join().unwrap()) });
}
