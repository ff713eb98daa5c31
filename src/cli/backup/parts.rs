//! Parts of a file that is imported, which a thread of its own reads ahead: parsing takes as long as importing.

use std::io::{self, BufRead};
use std::thread;

use anyhow::anyhow;
use tokio::sync::mpsc;

use state::StateRecord;
use state::migration::file::{FileError, MAX_LINE, Reader};

/// Records of a part at most: some tens of milliseconds of a state's time.
const RECORDS_PER_PART: usize = 1024;
/// Bytes of a part before its last record. With that, and written anew, it is no longer than a gateway takes.
const BYTES_PER_PART: u64 = MAX_LINE as u64 / 4 * 3;
/// Parts that wait to be imported.
const PARTS_AHEAD: usize = 1;

/// Some records of a file, in their order.
pub(super) struct Part {
    pub(super) records: Vec<StateRecord>,
    /// Number of the line of the last one.
    pub(super) line: u64,
    /// True when nothing follows.
    pub(super) is_last: bool,
}

/// The parts of a file, in their order.
pub(super) struct Parts(mpsc::Receiver<Result<Part, FileError>>);

impl Parts {
    /// Begins to read. The thread may outlive the parts: it ends with the next part, or the input.
    pub(super) fn read(reader: Reader<impl BufRead + Send + 'static>) -> io::Result<Self> {
        let (sender, parts) = mpsc::channel(PARTS_AHEAD);
        thread::Builder::new().name("import-reader".into()).spawn(move || send_parts(reader, &sender))?;
        Ok(Self(parts))
    }

    /// The next part, or what is wrong with the file.
    pub(super) async fn next(&mut self) -> anyhow::Result<Result<Part, FileError>> {
        // The thread ends after an error or the last part, and none is asked for then.
        self.0.recv().await.ok_or_else(|| anyhow!("the thread that reads the file has panicked"))
    }
}

fn send_parts(mut reader: Reader<impl BufRead>, sender: &mpsc::Sender<Result<Part, FileError>>) {
    loop {
        let part = read_part(&mut reader);
        let is_last = part.as_ref().map_or(true, |part| part.is_last);
        // An error says that the import has ended.
        if sender.blocking_send(part).is_err() || is_last {
            return;
        }
    }
}

fn read_part(reader: &mut Reader<impl BufRead>) -> Result<Part, FileError> {
    let mut records = Vec::new();
    let start = reader.bytes();
    let mut is_last = false;
    while !is_last && records.len() < RECORDS_PER_PART && reader.bytes() - start < BYTES_PER_PART {
        let record = reader.next_record()?;
        is_last = record.is_none();
        records.extend(record);
    }
    Ok(Part { records, line: reader.line(), is_last })
}
