//! A clock that steps or stands, for one server: its wall clock is the machine's, plus a difference that the test sets,
//! or stands where the test has stopped it.
//!
//! The server is started with a small library before its C library (`LD_PRELOAD`), which the C compiler that links Rust
//! programs builds. Steady clocks are not touched, as when an operator or NTP sets the time.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

/// Replaces the three functions that tell the time of day. A mapped file has the difference, and the time at which the
/// clock stands, or zero; both in nanoseconds.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *difference;

static long long now(void) {
  if (!difference) {
    int file = open(getenv("CLOCK_DIFFERENCE"), O_RDONLY);
    difference = mmap(0, 2 * sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
  }
  if (difference[1]) return difference[1];
  struct timespec real;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
  return real.tv_sec * 1000000000LL + real.tv_nsec + *difference;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  long long nanoseconds = now();
  time->tv_sec = nanoseconds / 1000000000;
  time->tv_usec = nanoseconds % 1000000000 / 1000;
  return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (clock != CLOCK_REALTIME) return syscall(SYS_clock_gettime, clock, time);
  long long nanoseconds = now();
  time->tv_sec = nanoseconds / 1000000000;
  time->tv_nsec = nanoseconds % 1000000000;
  return 0;
}

time_t time(time_t *time) {
  time_t seconds = now() / 1000000000;
  if (time) *time = seconds;
  return seconds;
}
"#;

/// A wall clock of its own. Clones are the same clock.
#[derive(Clone)]
pub struct Clock(Arc<Parts>);

struct Parts {
    dir: TempDir,
    difference: File,
}

impl Clock {
    /// A clock that is right.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("clock.c"), dir.path().join("clock.so"));
        fs::write(&source, SOURCE).unwrap();
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(library).arg(source).status();
        assert!(compiled.expect("a C compiler is installed, as for Rust").success());
        fs::write(dir.path().join("difference"), [0; 16]).unwrap();
        let difference = File::options().write(true).open(dir.path().join("difference")).unwrap();
        Self(Arc::new(Parts { dir, difference }))
    }

    /// Sets the clock so far ahead of the machine's.
    pub fn set_ahead(&self, by: Duration) {
        let nanoseconds = i64::try_from(by.as_nanos()).unwrap();
        self.0.difference.write_all_at(&nanoseconds.to_ne_bytes(), 0).unwrap();
    }

    /// Stops the clock at this time since 1970; it stands there until it is stopped at another one.
    pub fn stand_at(&self, time: Duration) {
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap();
        self.0.difference.write_all_at(&nanoseconds.to_ne_bytes(), 8).unwrap();
    }

    /// Environment of a process that has this clock.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        let file = |name| self.0.dir.path().join(name);
        [("LD_PRELOAD", file("clock.so")), ("CLOCK_DIFFERENCE", file("difference"))]
    }
}
