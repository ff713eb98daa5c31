//! The clock of this process: readings of the monotonic and the wall clock, and the discipline between them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use super::discipline::{Correction, Discipline};
use super::micros::Micros;

/// Value of [`ProcessClock::offset`] while the clock runs at half speed.
const SLEWING: i64 = i64::MIN;

/// The clock of this process.
struct ProcessClock {
    /// Origin of the monotonic time.
    origin: Instant,
    /// Wall time at the origin.
    wall: Micros,
    /// The clock minus the monotonic time, or [`SLEWING`]: all that most readings need.
    offset: AtomicI64,
    /// Number of beginnings and ends of comparisons with the wall clock; odd during one.
    comparisons: AtomicU64,
    discipline: Mutex<Discipline>,
}

/// One reading of the clock, for those who need the time and a point from which they measure a span.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The time, as [`now`] returns it.
    pub time: Micros,
    /// The monotonic clock at the same moment.
    pub instant: Instant,
}

static CLOCK: OnceLock<ProcessClock> = OnceLock::new();

/// Reads the clock. On one thread, a reading is never smaller than an earlier one.
pub fn now() -> Micros {
    clock().read().time
}

/// Reads the clock, as [`now`] does, and tells the moment also on the monotonic clock.
pub fn read() -> Reading {
    clock().read()
}

/// Reads the monotonic time: like [`now`], and never adjusted. For spans that a wall clock must not stretch.
pub fn steady() -> Micros {
    let clock = clock();
    Micros(clock.wall.0.saturating_add(clock.monotonic()))
}

/// Compares the clock with the wall clock, and corrects it. The background thread or task of the state calls this once
/// a second or more often.
pub fn follow_wall() {
    match clock().follow(Micros::wall) {
        Some(Correction::Jumped(micros)) => {
            tracing::warn!(seconds = seconds(micros), "the wall clock went ahead; keygate's clock follows");
        }
        Some(Correction::Slewing(micros)) => {
            tracing::warn!(
                seconds = seconds(micros),
                "the wall clock was set back; keygate's clock goes on at half speed until both agree"
            );
        }
        Some(Correction::Met) => tracing::info!("keygate's clock agrees with the wall clock again"),
        None => {}
    }
}

fn clock() -> &'static ProcessClock {
    CLOCK.get_or_init(|| ProcessClock::new(Micros::wall()))
}

fn seconds(micros: u64) -> f64 {
    std::time::Duration::from_micros(micros).as_secs_f64()
}

impl ProcessClock {
    fn new(wall: Micros) -> Self {
        let discipline = Discipline::new(wall.0);
        let offset = AtomicI64::new(discipline.offset().unwrap_or(SLEWING));
        Self {
            origin: Instant::now(),
            wall,
            offset,
            comparisons: AtomicU64::new(0),
            discipline: Mutex::new(discipline),
        }
    }

    fn read(&self) -> Reading {
        loop {
            let comparisons = self.comparisons.load(Ordering::Acquire);
            let offset = self.offset.load(Ordering::Acquire);
            if offset == SLEWING || comparisons % 2 == 1 {
                return self.slewing_read();
            }
            let instant = Instant::now();
            // With the offset of another moment, a reading could be smaller than an earlier one. The offset alone does
            // not tell: it may have been another one in between.
            if self.comparisons.load(Ordering::Acquire) == comparisons {
                return Reading { time: Micros(self.since_origin(instant).saturating_add_signed(offset)), instant };
            }
        }
    }

    /// A reading at half speed. The monotonic time is read under the lock, so that it belongs to the discipline.
    #[cold]
    fn slewing_read(&self) -> Reading {
        let discipline = self.discipline();
        let instant = Instant::now();
        Reading { time: Micros(discipline.at(self.since_origin(instant))), instant }
    }

    /// Compares the clock with a reading of the wall clock.
    fn follow(&self, wall: impl Fn() -> Micros) -> Option<Correction> {
        let mut discipline = self.discipline();
        // Readings wait for the lock from here on: none is made with the offset before at a time after the change.
        self.comparisons.fetch_add(1, Ordering::AcqRel);
        let (next, correction) = discipline.follow(wall().0, self.monotonic());
        *discipline = next;
        self.offset.store(next.offset().unwrap_or(SLEWING), Ordering::Release);
        self.comparisons.fetch_add(1, Ordering::Release);
        correction
    }

    /// Microseconds since the origin.
    fn monotonic(&self) -> u64 {
        self.since_origin(Instant::now())
    }

    /// Microseconds from the origin to a moment.
    fn since_origin(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.origin).as_micros()).unwrap_or(u64::MAX)
    }

    /// A panic under this lock leaves nothing half changed: its holders only assign.
    fn discipline(&self) -> MutexGuard<'_, Discipline> {
        self.discipline.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clock_never_steps_back() {
        let mut last = now();
        for _ in 0..1000 {
            follow_wall();
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn threads_never_read_an_earlier_time_while_the_wall_clock_jumps() {
        let clock = ProcessClock::new(Micros::wall());
        let reads = |_| {
            let mut last = clock.read().time;
            for _ in 0..50_000 {
                let next = clock.read().time;
                assert!(next >= last, "{last} before {next}");
                last = next;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|number| scope.spawn(move || reads(number))).collect();
            for number in 0_u64.. {
                // Behind by a second, and by nothing: the slew begins and ends all the time.
                let right = Micros(clock.wall.0 + clock.monotonic());
                clock.follow(|| if number % 2 == 1 { right.before(Duration::from_secs(1)) } else { right });
                if threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                    break;
                }
            }
        });
    }
}
