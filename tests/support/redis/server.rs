//! One Redis server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ::redis::{
    Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, ConnectionLike as _, FromRedisValue,
    IntoConnectionInfo as _, RedisResult,
};
use tempfile::TempDir;

use super::options::SOCKET;
use super::process::Process;
use super::{Options, until};

/// Time-out of a command of the test. A stopped server never replies.
const ANSWER: Duration = Duration::from_secs(5);

/// A real server, killed when dropped.
///
/// - It answers from the moment that it is returned, and again from the moment that `restart` returns.
/// - It comes back where it was: its port and its directory are its own for as long as this lives.
/// - We talk to it by a Unix socket in its directory: never to a stranger on its port, and in the clear whatever its
///   port speaks.
pub struct Redis {
    port: u16,
    options: Options,
    process: Mutex<Process>,
    /// Kept for as long as it works; none before the first question and after a failure.
    connection: Mutex<Option<Connection>>,
    dir: TempDir,
}

impl Redis {
    /// Starts a server that keeps everything in memory and evicts nothing, and waits until it answers.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// Options to start a server with.
    pub fn options() -> Options {
        Options::default()
    }

    /// Starts it on a port, unless that is taken.
    pub(super) fn start_at(port: u16, options: &Options) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start(dir.path(), &options.arguments(port, dir.path()), options.clock.as_ref());
        let (process, connection, options) = (Mutex::new(process), Mutex::new(None), options.clone());
        let server = Self { port, options, process, connection, dir };
        server.answers().then_some(server)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its URL, password included.
    pub fn url(&self) -> String {
        let scheme = if self.options.certificates.is_some() { "rediss" } else { "redis" };
        let login = self.password().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{login}{}", self.address())
    }

    /// The password that it requires.
    pub fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.process().id()
    }

    /// Its whole log.
    pub fn log(&self) -> String {
        self.process().log()
    }

    /// Runs a command that must succeed.
    pub fn cli<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_cli(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs a command.
    pub fn try_cli<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        self.query(&command)
    }

    /// Runs a command whose arguments may be any bytes. All commands go by one connection while it lasts: `WAIT` knows
    /// what was written before it.
    pub fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut kept = self.connection.lock().unwrap();
        let answer = match kept.take().map(|connection| ask(connection, command)) {
            // Closed meanwhile: a server that changes sides does that to its clients.
            None => ask(self.connect()?, command),
            Some((Err(error), None)) if !error.is_timeout() => ask(self.connect()?, command),
            Some(asked) => asked,
        };
        *kept = answer.1;
        answer.0
    }

    /// A field of a section of `INFO`.
    pub fn info(&self, section: &str, field: &str) -> String {
        let text: String = self.cli(&["INFO", section]);
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("INFO {section} has no {field}:\n{text}")).to_owned()
    }

    /// Waits until all that was written to this primary so far is on these replicas of it.
    pub fn until_replicated<'r>(&self, replicas: impl Iterator<Item = &'r Redis> + Clone) {
        let offset = |server: &Redis, field: &str| server.info("replication", field).parse::<u64>().unwrap();
        let written = offset(self, "master_repl_offset");
        until("the replicas have what their primary has", || {
            replicas.clone().all(|replica| offset(replica, "slave_repl_offset") >= written).then_some(())
        });
    }

    /// Calls of a command since the statistics were reset, and their total time in microseconds.
    /// Subcommands are named as in `config|get`.
    pub fn command_calls(&self, command: &str) -> (u64, u64) {
        let stats = self.command_stats();
        stats.into_iter().find(|(name, ..)| name == command).map_or((0, 0), |(_, calls, usec)| (calls, usec))
    }

    /// Commands called since the statistics were reset, those of scripts included. `INFO` and `CONFIG RESETSTAT` are
    /// not counted, so that reading the statistics does not change them.
    pub fn total_commands(&self) -> u64 {
        let looking = ["info", "config|resetstat"];
        let stats = self.command_stats();
        stats.iter().filter(|(name, ..)| !looking.contains(&name.as_str())).map(|(_, calls, _)| calls).sum()
    }

    pub fn reset_stats(&self) {
        self.cli::<()>(&["CONFIG", "RESETSTAT"]);
    }

    /// Returns whether it runs and is not stopped.
    pub fn is_running(&self) -> bool {
        let mut process = self.process();
        !process.has_ended() && !process.is_stopped()
    }

    /// Stops it where it is (SIGSTOP): connections stay, and nothing is answered.
    pub fn stop_process(&self) {
        self.process().stop();
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Kills it (SIGKILL).
    pub fn kill(&self) {
        self.process().kill();
        self.connection.lock().unwrap().take();
    }

    /// Terminates it (SIGTERM), and waits.
    pub fn shutdown(&self) {
        self.process().terminate();
        self.connection.lock().unwrap().take();
    }

    /// Starts it again where it was, after killing it if it runs. What it wrote to its disk is there again.
    pub fn restart(&self) {
        self.kill();
        let arguments = self.options.arguments(self.port, self.dir.path());
        until("the port is free again", || {
            *self.process() = Process::start(self.dir.path(), &arguments, self.options.clock.as_ref());
            self.answers().then_some(())
        });
    }

    /// The same, with its data removed. A node of a Cluster still knows who it is.
    pub fn restart_empty(&self) {
        self.kill();
        // A missing file need not be removed.
        std::fs::remove_dir_all(self.dir.path().join("appendonlydir")).ok();
        std::fs::remove_file(self.dir.path().join("dump.rdb")).ok();
        self.restart();
    }

    /// Waits until it answers. False if it has ended because its port was taken.
    fn answers(&self) -> bool {
        let before = self.log().len();
        until("the server answers", || {
            if self.process().has_ended() {
                let log = self.log();
                // The log goes on over restarts: what is said of the port must be said of this start.
                assert!(log[before..].contains("already in use"), "the server has ended:\n{log}");
                return Some(false);
            }
            self.try_cli::<String>(&["PING"]).ok().map(|_| true)
        })
    }

    fn connect(&self) -> RedisResult<Connection> {
        let info: ConnectionInfo = ConnectionAddr::Unix(self.dir.path().join(SOCKET)).into_connection_info()?;
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let mut connection = Client::open(info.set_redis_settings(settings))?.get_connection()?;
        connection.set_read_timeout(Some(ANSWER))?;
        connection.set_write_timeout(Some(ANSWER))?;
        if let Some(password) = &self.options.password {
            ::redis::cmd("AUTH").arg(password).exec(&mut connection)?;
        }
        Ok(connection)
    }

    /// Name, calls and microseconds of every command that was called.
    fn command_stats(&self) -> Vec<(String, u64, u64)> {
        let text: String = self.cli(&["INFO", "commandstats"]);
        let number = |fields: &str, name: &str| {
            let value = fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {fields}"))
        };
        let lines = text.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'));
        lines.map(|(name, fields)| (name.to_owned(), number(fields, "calls"), number(fields, "usec"))).collect()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap()
    }
}

/// Asks by a connection, and returns it if it is still of use.
fn ask<T: FromRedisValue>(mut connection: Connection, command: &Cmd) -> (RedisResult<T>, Option<Connection>) {
    let answer = command.query(&mut connection);
    let late = answer.as_ref().is_err_and(::redis::RedisError::is_timeout);
    // A late reply would be taken for the reply to the next command.
    let connection = (connection.is_open() && !late).then_some(connection);
    (answer, connection)
}
