//! Several query-stores over one database, while programs and the database are killed: sequences and writes go on.
//! `KEYGATE_KILLS=200` for the long run. The documentation of `several` defines which states a page sequence may equal.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use query_store::service::Caller;
use serde_json::Value;

use super::several::{States, assert_is_a_state};
use super::support::{caller, cursor_key};
use crate::support::{Postgresql, Random, eventually, free_address};

/// Programs over one database.
struct Fleet {
    server: Mutex<Postgresql>,
    programs: Vec<Program>,
    directory: tempfile::TempDir,
    stop: AtomicBool,
    writes: AtomicUsize,
    sequences: AtomicUsize,
}

struct Program {
    address: SocketAddr,
    child: Mutex<Child>,
    /// Even while no statement of a killed program can be running; odd from a kill to then.
    kills: AtomicUsize,
}

impl Fleet {
    fn start(programs: usize) -> Self {
        let server = Postgresql::start();
        let directory = tempfile::tempdir().unwrap();
        let programs = (0..programs).map(|number| {
            // A user of its own shows which connections are its.
            server.sql(&format!("CREATE ROLE program_{number} LOGIN SUPERUSER"));
            let address = free_address();
            let url = server.url().replace("keygate@", &format!("program_{number}@"));
            let (id, secret) = cursor_key(1);
            let text = format!(
                "listen: '{address}'\nstore: {{postgresql: {{url: '{url}', deadline: 60s}}}}\n\
                 cursor: {{keys: [{{id: {id}, secret: '{}'}}]}}\n",
                secret.expose()
            );
            let path = directory.path().join(format!("{number}.yaml"));
            std::fs::write(&path, text).unwrap();
            Program { address, child: Mutex::new(spawn(&path)), kills: AtomicUsize::new(0) }
        });
        let programs: Vec<Program> = programs.collect();
        let fleet = Self {
            server: Mutex::new(server),
            programs,
            directory,
            stop: AtomicBool::new(false),
            writes: AtomicUsize::new(0),
            sequences: AtomicUsize::new(0),
        };
        (0..fleet.programs.len()).for_each(|number| fleet.wait_until_ready(number));
        fleet
    }

    fn wait_until_ready(&self, number: usize) {
        eventually("the program is ready", || {
            matches!(exchange(self.programs[number].address, "GET", "/ready", caller(), ""), Some((200, _)))
        });
    }

    /// Kills a program, waits until none of its statements can have an effect any more, and starts it again.
    fn kill_program(&self, number: usize) {
        let program = &self.programs[number];
        program.kills.fetch_add(1, Ordering::SeqCst);
        let mut child = program.child.lock();
        child.kill().unwrap();
        child.wait().unwrap();
        let left = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = 'program_{number}'");
        eventually("its connections are gone", || self.server.lock().sql(&left) == ["0"]);
        *child = spawn(&self.directory.path().join(format!("{number}.yaml")));
        program.kills.fetch_add(1, Ordering::SeqCst);
        drop(child);
        self.wait_until_ready(number);
    }

    fn crash_database(&self) {
        self.server.lock().restart();
    }

    /// Sends a request through a program until one answers with something else than 503.
    fn ask(&self, random: &mut Random, method: &str, target: &str, caller: Caller) -> (u16, Value) {
        crate::support::until("a program answers", || {
            let program = &self.programs[random.index(self.programs.len())];
            exchange(program.address, method, target, caller, "").filter(|(status, _)| *status != 503)
        })
    }

    /// Reads a whole sequence, each page through any program.
    fn sequence(&self, random: &mut Random, limit: usize, caller: Caller) -> Vec<(String, String)> {
        let (mut shown, mut target) = (Vec::new(), format!("/api/queries?limit={limit}"));
        loop {
            let (status, body) = self.ask(random, "GET", &target, caller);
            assert_eq!(status, 200, "{target}: {body}");
            let text = |query: &Value, name: &str| query[name].as_str().unwrap().to_owned();
            shown
                .extend(body["items"].as_array().unwrap().iter().map(|query| (text(query, "name"), text(query, "id"))));
            let Some(cursor) = body["nextCursor"].as_str() else { return shown };
            target = format!("/api/queries?limit={limit}&cursor={cursor}");
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for program in &self.programs {
            let mut child = program.child.lock();
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn spawn(config: &std::path::Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_query-store"));
    command.args(["serve", "--config"]).arg(config).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Sends a request on a connection of its own; `None` when there is no whole response.
fn exchange(address: SocketAddr, method: &str, target: &str, caller: Caller, body: &str) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let Caller { org, user } = caller;
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Org-Id: {org}\r\nX-User-Id: {user}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    if body.is_empty() {
        return (status == 204 || status == 200).then_some((status, Value::Null));
    }
    Some((status, serde_json::from_str(body).ok()?))
}

/// The organization of one writer and one reader.
struct Work<'a> {
    fleet: &'a Fleet,
    caller: Caller,
    states: Mutex<States>,
    acknowledged: AtomicUsize,
}

impl Work<'_> {
    fn write_until_stopped(&self, seed: u64) {
        let (mut random, mut ids) = (Random::new(seed), Vec::<String>::new());
        for number in 0.. {
            if self.fleet.stop.load(Ordering::SeqCst) {
                return;
            }
            let name = format!("name {number}");
            let which = random.index(ids.len().max(1));
            let last = self.states.lock().last().unwrap().clone();
            let mut next = last.clone();
            let body = format!(r#"{{"name":"{name}","sql":"select 1"}}"#);
            let (method, target) = match random.below(if ids.len() < 6 { 1 } else { 3 }) {
                0 => {
                    next.insert(0, name);
                    ("POST", "/api/queries".to_owned())
                }
                1 => {
                    next[which] = name;
                    ("PUT", format!("/api/queries/{}", ids[which]))
                }
                _ => {
                    next.remove(which);
                    ("DELETE", format!("/api/queries/{}", ids[which]))
                }
            };
            self.states.lock().push(next.clone());
            let program = &self.fleet.programs[random.index(self.fleet.programs.len())];
            match exchange(program.address, method, &target, self.caller, &body) {
                Some((201, query)) => ids.insert(0, query["id"].as_str().unwrap().to_owned()),
                Some((200, _)) => {}
                Some((204, _)) => drop(ids.remove(which)),
                Some((503, _)) | None => ids = self.resolve(&mut random, program, &last, &next),
                Some(other) => panic!("{method} {target}: {other:?}"),
            }
            self.acknowledged.store(self.states.lock().len() - 1, Ordering::SeqCst);
            self.fleet.writes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Finds out whether a write had its effect, once it can have none any more. Returns the ids of the queries.
    fn resolve(&self, random: &mut Random, program: &Program, last: &[String], next: &[String]) -> Vec<String> {
        eventually("its statements have ended", || program.kills.load(Ordering::SeqCst).is_multiple_of(2));
        let (names, ids): (Vec<_>, Vec<_>) = self.fleet.sequence(random, 100, self.caller).into_iter().unzip();
        if names != next {
            assert_eq!(names, last, "an unacknowledged write has its whole effect or none");
            self.states.lock().pop();
        }
        ids
    }

    fn read_until_stopped(&self, seed: u64) {
        let mut random = Random::new(seed);
        while !self.fleet.stop.load(Ordering::SeqCst) {
            let first = self.acknowledged.load(Ordering::SeqCst);
            // A write without effect is taken back from the states, and was then shown by no sequence.
            let begun = self.states.lock()[first..].to_vec();
            let shown = self.fleet.sequence(&mut random, 2, self.caller);
            let names: Vec<String> = shown.into_iter().map(|(name, _)| name).collect();
            let states = [begun, self.states.lock()[first..].to_vec()].concat();
            assert_is_a_state(&names, &states, "sequence");
            self.fleet.sequences.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn sequences_and_writes_survive_kills_of_programs_and_database() {
    let kills = std::env::var("KEYGATE_KILLS").map_or(4, |kills| kills.parse::<usize>().unwrap());
    let fleet = Fleet::start(3);
    let work = || Work {
        fleet: &fleet,
        caller: caller(),
        states: Mutex::new(vec![Vec::new()]),
        acknowledged: AtomicUsize::new(0),
    };
    let works = [work(), work()];
    std::thread::scope(|scope| {
        for (seed, work) in (1..).zip(&works) {
            let stopped = || StopOnPanic(&fleet.stop);
            scope.spawn(move || {
                let _guard = stopped();
                work.write_until_stopped(seed);
            });
            scope.spawn(move || {
                let _guard = stopped();
                work.read_until_stopped(seed + 100);
            });
        }
        let _guard = StopOnPanic(&fleet.stop);
        let mut random = Random::new(7);
        for kill in 0..kills {
            let (writes, sequences) = (fleet.writes.load(Ordering::SeqCst), fleet.sequences.load(Ordering::SeqCst));
            eventually("there is traffic between two kills", || {
                let (now, shown) = (fleet.writes.load(Ordering::SeqCst), fleet.sequences.load(Ordering::SeqCst));
                fleet.stop.load(Ordering::SeqCst) || (now >= writes + 10 && shown >= sequences + 3)
            });
            if fleet.stop.load(Ordering::SeqCst) {
                return;
            }
            // The third one of every four is the database, so that a short run has one.
            match kill % 4 {
                2 => fleet.crash_database(),
                _ => fleet.kill_program(random.index(fleet.programs.len())),
            }
        }
    });
    for work in &works {
        check_end(&fleet, work);
    }
    println!("{kills} kills, {:?} writes, {:?} sequences", fleet.writes, fleet.sequences);
}

/// Ends the threads of a test when one of them fails, and when all is done.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Checks that the last state is there, and that each write took exactly one version.
fn check_end(fleet: &Fleet, work: &Work<'_>) {
    let states = work.states.lock();
    let shown = fleet.sequence(&mut Random::new(0), 100, work.caller);
    let names: Vec<String> = shown.into_iter().map(|(name, _)| name).collect();
    assert_eq!(&names, states.last().unwrap());
    let version = format!("SELECT version FROM query_store.orgs WHERE org = '{}'", work.caller.org);
    assert_eq!(fleet.server.lock().sql(&version), [(states.len() - 1).to_string()]);
}
