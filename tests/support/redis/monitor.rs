//! The commands that a server runs, those of scripts included.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use super::Redis;

/// Words that no gateway sends.
const MARK: &str = "end of what a test looks at";

/// Reads `MONITOR`. Counts of `INFO` do not tell a command of interest from those of a gateway's own tasks.
pub struct Monitor<'s> {
    server: &'s Redis,
    lines: BufReader<TcpStream>,
}

impl Monitor<'_> {
    /// Names of the commands since this, or since the last call, whose first argument begins so.
    pub fn commands_on(&mut self, record: &str) -> Vec<String> {
        let mut commands = Vec::new();
        self.read(|line| match line.split('"').collect::<Vec<_>>()[..] {
            [_, command, _, argument, ..] if argument.starts_with(record) => commands.push(command.to_lowercase()),
            [_, _, ..] => {}
            _ => panic!("no command: {line:?}"),
        });
        commands
    }

    /// The commands since this, or since the last call, with one of these texts anywhere.
    pub fn commands_with(&mut self, texts: &[&str]) -> Vec<String> {
        let mut commands = Vec::new();
        self.read(|line| {
            if texts.iter().any(|text| line.contains(text)) {
                commands.push(line.to_owned());
            }
        });
        commands
    }

    fn read(&mut self, mut each: impl FnMut(&str)) {
        self.server.cli::<String>(&["ECHO", MARK]);
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            if line.contains(MARK) {
                return;
            }
            each(&line);
        }
    }
}

impl Redis {
    /// Looks at the commands from now on.
    pub fn monitor(&self) -> Monitor<'_> {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream);
        let mut answer = String::new();
        lines.read_line(&mut answer).unwrap();
        assert_eq!(answer, "+OK\r\n");
        Monitor { server: self, lines }
    }
}
