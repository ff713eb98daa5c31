//! Cost of the scripts about slots by the number of gateways that hold slots of the organization: the server's own time
//! for each call, as `INFO commandstats` counts it.

use redis::{Cmd, cmd};

use crate::bare::question;
use crate::deciding::Directory;
use crate::support::redis::Redis;

const SLOT_REPORT: &str = concat!(
    "#!lua\n",
    include_str!("../../crates/state/src/redis/scripts/bucket.lua"),
    include_str!("../../crates/state/src/redis/scripts/slot_leases.lua"),
    include_str!("../../crates/state/src/redis/scripts/slot_report.lua"),
);
const DECIDE: &str = concat!(
    "#!lua\n",
    include_str!("../../crates/state/src/redis/scripts/bucket.lua"),
    include_str!("../../crates/state/src/redis/scripts/slot_leases.lua"),
    include_str!("../../crates/state/src/redis/scripts/decide.lua"),
);
/// Field of the gateway that reports and decides.
const GATEWAY: &str = "h:measured";
/// Lease in microseconds: none of the other gateways' ends while this runs.
const LEASE: f64 = 1e9;

/// Prints a row for each number of gateways.
pub(crate) fn measure(server: &Redis, directory: &Directory, gateways: &[usize], calls: usize) {
    let (org, [key, user], question) = question(server, directory.keys(1)[0]);
    println!(
        "\n{:34}{:>20}{:>20}{:>34}",
        "server's µs for each call", "report", "decision", "report that reads all leases"
    );
    for count in gateways {
        set_leases(server, &org, *count);
        let report = script(server, SLOT_REPORT, &[&org], &packed(&[-1.0, 0.0, LEASE, 1.0, 0.0, 0.0, 0.0, 0.0]));
        let decide = script(server, DECIDE, &[&key, &org, &user], &question);
        let reports = time_of(server, calls, || drop(server.query::<Vec<u8>>(&report).unwrap()));
        let decisions = time_of(server, calls, || drop(server.query::<Vec<u8>>(&decide).unwrap()));
        let recounts = time_of(server, calls / 10, || {
            end_first(server, &org);
            server.query::<Vec<u8>>(&report).unwrap();
        });
        println!("{:34}{reports:>20.1}{decisions:>20.1}{recounts:>34.1}", format!("{count} gateways"));
    }
}

/// The server's microseconds for each call of a script in so many repetitions.
#[allow(clippy::cast_precision_loss, reason = "counts")]
fn time_of(server: &Redis, repetitions: usize, mut repeat: impl FnMut()) -> f64 {
    server.reset_stats();
    (0..repetitions).for_each(|_| repeat());
    let (calls, microseconds) = server.command_calls("evalsha");
    microseconds as f64 / calls as f64
}

/// A call of a script by its digest.
fn script(server: &Redis, text: &str, keys: &[&str], argument: &[u8]) -> Cmd {
    let digest: String = server.cli(&["SCRIPT", "LOAD", text]);
    let mut call = cmd("EVALSHA");
    call.arg(digest).arg(keys.len());
    for key in keys {
        call.arg(key);
    }
    call.arg(GATEWAY).arg(argument);
    call
}

/// Gives so many other gateways a lease, a hundred of them a slot, and the measured one a lease.
#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn set_leases(server: &Redis, org: &str, count: usize) {
    let names: Vec<String> = server.cli(&["HKEYS", org]);
    let leases: Vec<&str> = names.iter().map(String::as_str).filter(|name| name.starts_with("h:")).collect();
    if !leases.is_empty() {
        server.cli::<()>(&[&["HDEL", org], &*leases].concat());
    }
    let live: Vec<u8> = server.cli(&["HGET", org, "live"]);
    let time: Vec<f64> = server.cli(&["TIME"]);
    let now = time[0] * 1e6 + time[1];
    let live = [&live[..8], &packed(&[count.min(100) as f64, now + LEASE, now])].concat();
    let mut set = cmd("HSET");
    set.arg(org).arg("live").arg(live).arg(GATEWAY).arg(packed(&[0.0, now, LEASE, 1.0]));
    for number in 0..count {
        let slots = f64::from(u8::from(number < 100));
        set.arg(format!("h:{number:08}")).arg(packed(&[slots, now, LEASE, 1.0]));
    }
    server.query::<()>(&set).unwrap();
}

/// Has a lease end at once, as far as the record says, so that the next report reads all.
fn end_first(server: &Redis, org: &str) {
    let mut live: Vec<u8> = server.cli(&["HGET", org, "live"]);
    live[16..24].fill(0);
    server.query::<()>(cmd("HSET").arg(org).arg("live").arg(live)).unwrap();
}

fn packed(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
