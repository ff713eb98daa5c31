//! Wall clock of one process that a test steps: a library in front of the C library adds the seconds that a file says.
//!
//! The monotonic clock and the times that the kernel writes to files stay right, as on a machine whose clock is wrong
//! for a moment and right when the files are looked at.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Environment variable that names the file.
const VARIABLE: &str = "KEYGATE_TEST_CLOCK";
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    char text[24] = {0};
    const char *path = getenv("KEYGATE_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec read;
    (void) zone;
    if (clock_gettime(CLOCK_REALTIME, &read)) return -1;
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec read;
    if (clock_gettime(CLOCK_REALTIME, &read)) return -1;
    if (now) *now = read.tv_sec;
    return read.tv_sec;
}
"#;

/// A wall clock that can be stepped, for the processes that are started with it.
pub struct SteppedClock {
    dir: TempDir,
}

impl SteppedClock {
    /// A clock that is right.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // PostgreSQL runs as another user.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let source = dir.path().join("clock.c");
        fs::write(&source, LIBRARY).unwrap();
        let clock = Self { dir };
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(clock.library()).arg(source);
        let output = compiler.output().expect("cc is installed: Rust links with it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        clock.step(0);
        clock
    }

    /// Puts the clock so many seconds ahead of the right time.
    pub fn step(&self, seconds: i64) {
        let (file, new) = (self.file(), self.dir.path().join("new"));
        fs::write(&new, seconds.to_string()).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Has a command, and what it starts, read this clock.
    pub fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_PRELOAD", self.library()).env(VARIABLE, self.file())
    }

    fn library(&self) -> PathBuf {
        self.dir.path().join("clock.so")
    }

    fn file(&self) -> PathBuf {
        Path::join(self.dir.path(), "ahead")
    }
}
