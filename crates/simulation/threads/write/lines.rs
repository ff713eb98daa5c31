//! A writer takes lines and tells those who wait; others append meanwhile, and read the mode without the lock.

use loom::sync::{Arc, Mutex};

use super::completion::{BatchCompletion, BatchResult};
use super::mode::{Event, Mode, SharedMode};

/// Pending lines as `PendingLines` has them, as far as threads are concerned: a number of lines under the lock, the
/// completion that their requests share, and the mode.
struct Pending {
    lines: usize,
    completion: Arc<BatchCompletion>,
    mode: SharedMode,
}

/// Takes the lines, and writes them; tells their requests after the mode has changed, as `BatchSteps` has it. Returns
/// the number of lines.
fn write(pending: &Mutex<Pending>, earlier: Option<Arc<BatchCompletion>>, has_space: bool) -> usize {
    let (lines, completion) = {
        let mut pending = pending.lock().unwrap();
        if pending.lines == 0 {
            return 0;
        }
        let next = BatchCompletion::renew(earlier);
        (std::mem::take(&mut pending.lines), std::mem::replace(&mut pending.completion, next))
    };
    let event = if has_space { Event::Written } else { Event::WriteFailed };
    pending.lock().unwrap().mode.step(event);
    let result = if has_space { BatchResult::Written } else { BatchResult::Failed };
    completion.complete(result);
    lines
}

fn run(has_space: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let mode = SharedMode::default();
        let (lines, completion) = (0, Arc::<BatchCompletion>::default());
        let pending = Arc::new(Mutex::new(Pending { lines, completion, mode: mode.clone() }));
        let appended = Arc::clone(&pending);
        let request = loom::thread::spawn(move || {
            let completion = {
                let mut pending = appended.lock().unwrap();
                pending.lines += 1;
                Arc::clone(&pending.completion)
            };
            // The writer comes before or after it begins to wait.
            let result = loom::future::block_on(completion.wait());
            assert_eq!(completion.result(), Some(result), "a result never changes");
            if result == BatchResult::Failed {
                assert_eq!(mode.get(), Mode::NoRoom, "a request that tries again meets the mode");
            }
            result
        });
        // An earlier completion is used again only where no request waits with it.
        let mut taken = write(&pending, Some(Arc::default()), has_space);
        while taken == 0 {
            loom::thread::yield_now();
            taken = write(&pending, None, has_space);
        }
        let expected = if has_space { BatchResult::Written } else { BatchResult::Failed };
        assert_eq!(request.join().unwrap(), expected);
    });
}

pub(crate) fn request_learns_that_its_line_was_written() {
    run(true);
}

pub(crate) fn request_learns_that_its_line_was_refused_after_the_mode_has_changed() {
    run(false);
}
