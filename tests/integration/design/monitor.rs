//! The calls of the decision script that reach a Redis server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use crate::support::redis::Redis;
use crate::support::until;

/// Sees every command of a server, in the order in which it runs them.
pub(super) struct Monitor<'a> {
    server: &'a Redis,
    lines: Arc<Mutex<Vec<String>>>,
    looks: usize,
}

impl<'a> Monitor<'a> {
    pub(super) fn start(server: &'a Redis) -> Self {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut stream = BufReader::new(stream).lines();
        assert_eq!(stream.next().unwrap().unwrap(), "+OK");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        // Ends with the server.
        std::thread::spawn(move || stream.map_while(Result::ok).for_each(|line| seen.lock().unwrap().push(line)));
        let mut monitor = Self { server, lines, looks: 0 };
        monitor.decide_calls();
        monitor
    }

    /// Calls of `decide.lua` since the last look: the only script whose first key is the record of an API key.
    pub(super) fn decide_calls(&mut self) -> usize {
        self.looks += 1;
        let mark = format!("look-{}", self.looks);
        self.server.cli::<String>(&["ECHO", &mark]);
        until("the monitor has seen all", || {
            let mut lines = self.lines.lock().unwrap();
            let end = lines.iter().position(|line| line.contains(&mark))?;
            let before: Vec<String> = lines.drain(..=end).collect();
            Some(before.iter().filter(|line| line.contains("\"EVALSHA\"") && line.contains(":key:")).count())
        })
    }
}
