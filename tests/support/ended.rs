//! The end of a command of the real binary: its output and its exit code.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs a command that may read this text.
    pub fn of_reading(command: &mut Command, input: &str) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads nothing may have ended.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        Self::of(child.wait_with_output().unwrap())
    }
}
