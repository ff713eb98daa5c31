//! One line for each request, in a buffer of the thread that is written when it is full and each second.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const BUFFER: usize = 64 << 10;

thread_local! {
    static LOG: RefCell<Option<(File, Vec<u8>)>> = const { RefCell::new(None) };
}

/// Opens the log of this thread.
pub(super) fn flush_each_second(path: &Path) {
    let file = File::options().create(true).append(true).open(path).unwrap();
    LOG.set(Some((file, Vec::with_capacity(2 * BUFFER))));
    tokio::task::spawn_local(async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            with_log(flush);
        }
    });
}

pub(super) fn line(user: &str, org: &str, method: &str, path: &str, status: u16, begun: Instant) {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let milliseconds = begun.elapsed().as_millis();
    with_log(|file, buffer| {
        writeln!(
            buffer,
            "{{\"time\":{time},\"user\":\"{user}\",\"org\":\"{org}\",\"method\":\"{method}\",\"path\":\"{path}\",\
             \"status\":{status},\"ms\":{milliseconds}}}"
        )
        .unwrap();
        if buffer.len() > BUFFER {
            flush(file, buffer);
        }
    });
}

fn flush(file: &mut File, buffer: &mut Vec<u8>) {
    file.write_all(buffer).unwrap();
    buffer.clear();
}

fn with_log(act: impl FnOnce(&mut File, &mut Vec<u8>)) {
    LOG.with_borrow_mut(|log| {
        let (file, buffer) = log.as_mut().expect("the thread has opened its log");
        act(file, buffer);
    });
}
