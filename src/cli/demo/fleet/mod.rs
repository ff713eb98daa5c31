//! `keygate demo --fleet`: two gateways, one Redis, a load over both, `kill -9` of one, a revocation, and the numbers.
//!
//! 1. Gateways 1 and 2, Redis and the upstream start, with two keys of 1000 requests an hour.
//! 2. A client opens a stream at gateway 2 with the second key.
//! 3. 24 clients send 100 requests each with the first key, half of them at each gateway. When half of the bucket is
//!    used, gateway 1 is killed; its clients go on at gateway 2.
//! 4. Gateway 1 starts again, and ends the uses that it had left open as `aborted`.
//! 5. The second key is revoked at gateway 1: at gateway 2 the stream ends, and the next request is refused.
//! 6. Both gateways stop, their journals are read, and every number is compared with what was promised
//!    ([`numbers::Numbers`]).
//!
//! - Everything ends with the command ([`process`]), within [`BOUND`], and is removed, unless `--dir` is given.

mod process;
mod redis;
mod gateway;
mod upstream;
mod client;
mod revocation;
mod audit;
mod run;
mod numbers;

use std::cell::Cell;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http::HeaderMap;
use serde::Serialize;
use uuid::Uuid;

use super::directory::Directory;
use crate::cli::progress::{self, ProgressLine};
use crate::cli::serve::Signals;
use crate::cli::{CliError, ExitStatus, output};
use domain::identity::X_REQUEST_ID;
use numbers::{Line, Numbers};

pub(super) use process::become_program;

const GATEWAYS: usize = 2;
/// Names of the gateways, in the audit and of their directories.
const NAMES: [&str; GATEWAYS] = ["gateway-1", "gateway-2"];
const CLIENTS: usize = 24;
/// Requests of each client: more than twice what the key may have admitted, by all of them together.
const REQUESTS: usize = 100;
/// Requests that a key may have admitted at once, and in [`PERIOD`].
const BURST: u64 = 1000;
const PERIOD: Duration = Duration::from_secs(3600);
/// Time for the whole run, which takes about a second.
const BOUND: Duration = Duration::from_secs(30);
/// Ports of the servers lie below those of outgoing connections (32768 and up by default): while a gateway is down, no
/// connection takes its port.
const PORTS: std::ops::Range<u16> = 22_000..32_000;

/// Runs the demo, and prints its numbers.
///
/// # Errors
/// Exit code 1 when a number is off, 69 without `redis-server`, 75 when the run failed or was interrupted.
pub(super) fn run(dir: Option<PathBuf>, json: bool) -> Result<(), CliError> {
    let redis = redis::find_program()?;
    let numbers = measure(dir, &redis).map_err(|error| CliError::new(ExitStatus::Temporary, error))?;
    let lines = numbers.lines();
    if json {
        output::json(&Report { is_right: is_right(&lines), numbers: &numbers, lines: &lines })?;
    } else {
        show(&lines)?;
    }
    conclude(&lines)
}

/// The error of a run with a number that is not as promised.
fn conclude(lines: &[Line]) -> Result<(), CliError> {
    let wrong: Vec<&str> =
        lines.iter().filter(|line| line.is_right == Some(false)).map(|line| line.what.trim()).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(CliError::new(ExitStatus::Failed, anyhow!("not as promised: {}", wrong.join("; "))))
}

/// JSON form of the result.
#[derive(Serialize)]
struct Report<'a> {
    is_right: bool,
    #[serde(flatten)]
    numbers: &'a Numbers,
    lines: &'a [Line],
}

fn is_right(lines: &[Line]) -> bool {
    lines.iter().all(|line| line.is_right != Some(false))
}

fn show(lines: &[Line]) -> std::io::Result<()> {
    let rows: Vec<_> = lines
        .iter()
        .map(|line| [line.what.to_owned(), line.counted.clone(), line.promised.clone(), line.verdict().to_owned()])
        .collect();
    output::table(&["WHAT", "COUNTED", "PROMISED", "VERDICT"], &rows, "there are no numbers")?;
    if is_right(lines) { output::line("All numbers are as promised.") } else { Ok(()) }
}

/// Runs everything, until it has ended, [`BOUND`] is over, or a signal comes. No process is left.
fn measure(dir: Option<PathBuf>, redis: &Path) -> anyhow::Result<Numbers> {
    // Before the first process, so that no signal ends this one without ending those.
    let mut signals = Signals::new()?;
    let place = Place::take(dir)?;
    let progress = Progress::default();
    let mut measured = None;
    let signal = signals.wait_or(async {
        let run = tokio::time::timeout(BOUND, run::run(&place.directory.path, redis, &progress));
        measured = Some(progress.show_during(run).await);
        true
    });
    let numbers = match measured {
        Some(ended) => ended.with_context(|| format!("{}: not done after {BOUND:?}", progress.step.get()))??,
        None => bail!("interrupted ({signal:?}); gateways and Redis are ended"),
    };
    if !place.is_temporary {
        let configs = NAMES.map(|name| gateway::directory(&place.directory.path, name).join("keygate.yaml"));
        configs
            .iter()
            .for_each(|config| output::note(format_args!("keygate audit list --config {}", config.display())));
    }
    Ok(numbers)
}

/// Directory of a run, which is removed in the end if it was made for it.
struct Place {
    directory: Directory,
    is_temporary: bool,
}

impl Place {
    fn take(dir: Option<PathBuf>) -> anyhow::Result<Self> {
        let is_temporary = dir.is_none();
        let place = Self { directory: Directory::take(dir)?, is_temporary };
        let path = &place.directory.path;
        if gateway::directory(path, NAMES[0]).exists() {
            bail!("{} has the journals of an earlier run; choose another directory with --dir", path.display());
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_temporary
            && let Err(error) = fs::remove_dir_all(&self.directory.path)
        {
            output::note(format_args!("{} cannot be removed: {error}", self.directory.path.display()));
        }
    }
}

/// Progress of a run.
#[derive(Default)]
struct Progress {
    step: Cell<&'static str>,
    /// Requests of the load that have ended.
    answered: Cell<u64>,
}

impl Progress {
    /// Shows the current step on a terminal, until the work is done.
    async fn show_during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut line = ProgressLine::new();
        let mut ticks = tokio::time::interval(progress::INTERVAL);
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => break done,
                _ = ticks.tick() => line.show(|| {
                    format!("{}: {} of {} requests", self.step.get(), self.answered.get(), CLIENTS * REQUESTS)
                }),
            }
        }
    }
}

/// Addresses of this machine with free ports of [`PORTS`], which differ.
fn choose_addresses<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let offset = Uuid::new_v4().as_u128() % PORTS.len() as u128;
    let first = PORTS.start + u16::try_from(offset).expect("an offset is below the length of the range");
    let addresses = (first..PORTS.end).chain(PORTS.start..first).map(|port| (Ipv4Addr::LOCALHOST, port).into());
    let free: Vec<_> = addresses.filter(|address: &SocketAddr| TcpListener::bind(address).is_ok()).take(N).collect();
    free.try_into().map_err(|free: Vec<_>| anyhow!("{} of the ports {PORTS:?} are free, {N} are needed", free.len()))
}

/// The id that a gateway gave a request.
fn request_id(headers: &HeaderMap) -> Option<Uuid> {
    headers.get(X_REQUEST_ID)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_number_ends_the_command_with_exit_code_1_and_its_name() {
        let line = |what, is_right| Line { what, counted: "1".into(), promised: "2".into(), is_right };
        let right = [line("a", Some(true)), line("b", None)];
        assert!(is_right(&right) && conclude(&right).is_ok());
        let wrong = [line("a", Some(true)), line("  b", Some(false)), line("c", Some(false))];
        assert!(!is_right(&wrong));
        let error = conclude(&wrong).unwrap_err();
        assert!(format!("{error:?}").contains("exit: Failed"), "{error:?}");
        assert_eq!(error.into_cause().to_string(), "not as promised: b; c");
    }

    #[test]
    fn chosen_addresses_differ() {
        let addresses = choose_addresses::<50>().unwrap();
        let ports: std::collections::BTreeSet<u16> = addresses.iter().map(SocketAddr::port).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
    }
}
