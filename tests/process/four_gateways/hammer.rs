//! Token buckets over four gateways, under steady, bursting and roaming clients: no window admits more than the bucket
//! allows, and the allowed rate is reached.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Four;
use super::windows::{Admission, most_above_rate};
use crate::support::{Client, Random, Upstream};

const KEYS: usize = 8;
const RATE: f64 = 50.0;
const BURST: f64 = 50.0;
/// Duration of the test, unless `KEYGATE_HAMMER` sets it in seconds.
const DEFAULT: Duration = Duration::from_secs(8);

/// Request pattern of a client.
#[derive(Clone, Copy)]
enum Manner {
    /// One gateway, a little faster than tokens are added.
    Steady,
    /// Many requests at once, then a pause.
    Bursting,
    /// Another gateway for each request.
    Wandering,
}

/// Results of the requests with one key.
struct Asked {
    admitted: Mutex<Vec<Admission>>,
    /// Times at which each request was sent and answered, with any result.
    all: Mutex<Vec<[Duration; 2]>>,
}

#[test]
fn bucket_bound_holds_in_every_window_over_four_gateways() {
    let length = std::env::var("KEYGATE_HAMMER").ok().map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let (is_long, length) = (length.is_some(), length.unwrap_or(DEFAULT));
    let upstream = Upstream::start();
    let limits = "limits: { key: { requests: 50, per: 1s, burst: 50 }, org: { concurrent: 1000 } }";
    let four = Four::start(&upstream, KEYS, "deadline: 2s", limits);
    let begun = Instant::now();
    let asked: Vec<Asked> = (0..KEYS).map(|_| Asked { admitted: Mutex::default(), all: Mutex::default() }).collect();
    std::thread::scope(|scope| {
        for (number, (key, asked)) in four.keys.iter().zip(&asked).enumerate() {
            for manner in [Manner::Steady, Manner::Bursting, Manner::Wandering] {
                let clients = four.clients();
                scope.spawn(move || hammer(clients, (number, manner), key, asked, (begun, length)));
            }
        }
    });
    let mut all = 0;
    for (number, asked) in asked.into_iter().enumerate() {
        let (admitted, times) = (asked.admitted.into_inner().unwrap(), asked.all.into_inner().unwrap());
        let [first, last] = [times.iter().map(|[sent, _]| sent).min(), times.iter().map(|[_, at]| at).max()];
        let allowed = BURST + RATE * (*last.unwrap() - *first.unwrap()).as_secs_f64();
        let asked_for =
            [0, 1].map(|end| given(times.iter().map(|ends| ends[end]).collect())).into_iter().min().unwrap();
        let (count, most) = (admitted.len() as f64, most_above_rate(&admitted, RATE));
        println!("key {number}: {count} of {allowed:.1} admitted; the fullest window has {most:.2} above the rate");
        assert!(most <= BURST, "key {number}: a window has {most} more than the rate, and the burst is {BURST}");
        // On a loaded machine the clients may not request the whole rate.
        let least = if is_long { allowed } else { f64::from(asked_for) };
        assert!(count >= 0.99 * least, "key {number}: only {count} of {least} were admitted");
        all += admitted.len();
    }
    assert_eq!(upstream.count(), all, "every admitted request reached the upstream");
}

/// Number of tokens that a bucket gives for requests at these times.
fn given(mut times: Vec<Duration>) -> u32 {
    times.sort_unstable();
    let (mut level, mut at, mut given) = (BURST, times[0], 0);
    for now in times {
        level = BURST.min(level + RATE * (now - at).as_secs_f64());
        at = now;
        if level >= 1.0 {
            level -= 1.0;
            given += 1;
        }
    }
    given
}

fn hammer(
    mut clients: Vec<Client>,
    (number, manner): (usize, Manner),
    key: &str,
    asked: &Asked,
    (begun, length): (Instant, Duration),
) {
    let mut random = Random::new(number as u64 * 3 + manner as u64);
    let mut requests = 0;
    while begun.elapsed() < length {
        let gateway = match manner {
            Manner::Steady => number % 4,
            Manner::Bursting => requests % 4,
            Manner::Wandering => usize::try_from(random.below(4)).unwrap(),
        };
        requests += 1;
        let sent = begun.elapsed();
        let status = clients[gateway].get("/", key).status;
        let answered = begun.elapsed();
        asked.all.lock().unwrap().push([sent, answered]);
        match status {
            200 => asked.admitted.lock().unwrap().push(Admission { sent, answered }),
            429 => {}
            other => panic!("key {number}: {other}"),
        }
        std::thread::sleep(match manner {
            Manner::Steady => Duration::from_millis(12),
            Manner::Bursting if requests % 40 == 0 => Duration::from_secs(1).min(length.saturating_sub(answered)),
            Manner::Bursting => Duration::ZERO,
            Manner::Wandering => Duration::from_micros(random.below(60_000)),
        });
    }
}
