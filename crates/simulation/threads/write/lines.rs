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

/// Results of a writer, and when it tells them.
#[derive(Clone, Copy)]
struct Writer {
    has_space: bool,
    /// A mutant: before the mode has changed.
    tells_first: bool,
}

/// Takes the lines, and writes them; tells their requests after the mode has changed, as `BatchSteps` has it. Returns
/// the number of lines.
fn write(pending: &Mutex<Pending>, earlier: Option<Arc<BatchCompletion>>, writer: Writer) -> usize {
    let Writer { has_space, tells_first } = writer;
    let (lines, completion) = {
        let mut pending = pending.lock().unwrap();
        if pending.lines == 0 {
            return 0;
        }
        let next = BatchCompletion::renew(earlier);
        (std::mem::take(&mut pending.lines), std::mem::replace(&mut pending.completion, next))
    };
    let event = if has_space { Event::Written } else { Event::WriteFailed };
    let result = if has_space { BatchResult::Written } else { BatchResult::Failed };
    if tells_first {
        completion.complete(result);
    }
    pending.lock().unwrap().mode.step(event);
    if !tells_first {
        completion.complete(result);
    }
    lines
}

fn run(writer: Writer) {
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
        let mut taken = write(&pending, Some(Arc::default()), writer);
        while taken == 0 {
            loom::thread::yield_now();
            taken = write(&pending, None, writer);
        }
        let expected = if writer.has_space { BatchResult::Written } else { BatchResult::Failed };
        assert_eq!(request.join().unwrap(), expected);
    });
}

pub(crate) fn request_learns_that_its_line_was_written() {
    run(Writer { has_space: true, tells_first: false });
}

pub(crate) fn request_learns_that_its_line_was_refused_after_the_mode_has_changed() {
    run(Writer { has_space: false, tells_first: false });
}

/// A mutant, which is found.
pub(crate) fn request_is_told_before_the_mode_has_changed() {
    run(Writer { has_space: false, tells_first: true });
}
