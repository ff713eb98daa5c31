//! Telemetry: logging, as structured lines on standard error, as text for people or as JSON for machines; and what is
//! written of requests by an [`Observer`], from the [`RequestFacts`] of each: the [`access_log`], and traces
//! ([`trace`]).
//!
//! - A server logs through a queue ([`init_queued`]): a reader of standard error that stalls stops no thread but the
//!   log's.
//! - Panics of all threads, and signals that end the process, leave a line of the log.

mod lines;
mod log_queue;
mod fatal_signals;
mod observer;
mod request_facts;
pub mod access_log;
pub mod trace;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::{EnvFilter, reload};

use crate::metrics::LogMetrics;

use log_queue::LogQueue;

pub use fatal_signals::log_fatal_signals;
pub use observer::{ObservedRequest, Observer};
pub use request_facts::{COMPLETED, HeadFacts, RequestFacts, RequestText};

/// Environment variable that overrides the configured level: a level, or directives such as `keygate::audit=debug`.
pub const LEVEL_VARIABLE: &str = "KEYGATE_LOG";
/// Target of the HTTP/2 library.
const HTTP2_TARGET: &str = "h2";
/// Time for the last lines to be written when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the line of a panic to be written before the thread unwinds, or the process aborts.
const PANIC_FLUSH_TIMEOUT: Duration = Duration::from_millis(250);

/// Settings of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Format of a line.
    pub format: LogFormat,
    /// Lowest level that is logged.
    pub level: LevelFilter,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: LevelFilter::INFO }
    }
}

/// Handle of this process's logs. The default handle has no logs and does nothing.
#[derive(Clone, Default)]
pub struct LogHandle {
    set_filter: Option<Arc<dyn Fn(EnvFilter) + Send + Sync>>,
    /// None when lines are written where they are logged.
    queue: Option<LogQueue>,
    metrics: LogMetrics,
}

impl LogHandle {
    /// Changes the lowest level that is logged, unless the environment variable overrides it.
    pub fn set_level(&self, level: LevelFilter) {
        if let Some(set_filter) = &self.set_filter {
            set_filter(read_filter(level).0);
        }
    }

    /// Waits until all lines are written, for five seconds at most. To be called before the process ends.
    pub fn flush(&self) {
        self.flush_within(FLUSH_TIMEOUT);
    }

    fn flush_within(&self, timeout: Duration) {
        if let Some(queue) = &self.queue {
            queue.flush(timeout);
        }
    }

    /// Counts of the lines.
    pub fn metrics(&self) -> &LogMetrics {
        &self.metrics
    }
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogHandle").finish_non_exhaustive()
    }
}

/// Starts logging for a command: lines are written where they are logged. Text on a terminal is coloured. A second call
/// in a process has no effect.
///
/// An invalid `KEYGATE_LOG` is ignored, with a warning.
pub fn init(settings: Settings) -> LogHandle {
    start(settings, None, LogMetrics::default())
}

/// Starts logging for a server, as [`init`] does, and through a queue: no thread that logs waits. [`LogHandle::flush`]
/// is to be called before the process ends.
pub fn init_queued(settings: Settings) -> LogHandle {
    let metrics = LogMetrics::default();
    match LogQueue::start(&metrics) {
        Ok(queue) => start(settings, Some(queue), metrics),
        Err(error) => {
            let logs = start(settings, None, metrics);
            tracing::warn!(%error, "cannot start the thread of the log; threads that log wait for the reader of \
                                    standard error");
            logs
        }
    }
}

fn start(settings: Settings, queue: Option<LogQueue>, metrics: LogMetrics) -> LogHandle {
    let (filter, ignored) = read_filter(settings.level);
    let writer = queue.clone().map_or_else(|| BoxMakeWriter::new(std::io::stderr), BoxMakeWriter::new);
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // Otherwise the subscriber reports on standard error that standard error cannot be written, and panics over it.
    let subscriber = subscriber.log_internal_errors(false);
    let (set, set_filter) = match settings.format {
        LogFormat::Text => {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let subscriber = subscriber.with_ansi(ansi).with_filter_reloading();
            let set_filter = filter_setter(subscriber.reload_handle());
            (subscriber.try_init(), set_filter)
        }
        LogFormat::Json => {
            let subscriber = subscriber.json().flatten_event(true).with_filter_reloading();
            let set_filter = filter_setter(subscriber.reload_handle());
            (subscriber.try_init(), set_filter)
        }
    };
    let logs = LogHandle { set_filter: Some(set_filter), queue, metrics };
    if set.is_ok() {
        log_panics(logs.clone());
    }
    // Only now can the warning be logged.
    if set.is_ok() && ignored {
        tracing::warn!("{LEVEL_VARIABLE} holds no valid filter and is ignored; give a level, or target=level");
    }
    logs
}

fn filter_setter<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> Arc<dyn Fn(EnvFilter) + Send + Sync> {
    Arc::new(move |filter| {
        if let Err(error) = handle.reload(filter) {
            tracing::debug!(%error, "cannot change the log level: the subscriber is gone");
        }
    })
}

/// Reads the filter from the environment variable and the configured level.
fn read_filter(level: LevelFilter) -> (EnvFilter, bool) {
    choose_filter(level, std::env::var(LEVEL_VARIABLE).ok().as_deref())
}

/// Chooses the filter: that of the environment variable, else the configured level. Returns true with it when the
/// variable is invalid.
fn choose_filter(level: LevelFilter, variable: Option<&str>) -> (EnvFilter, bool) {
    let configured = || quiet_http2(EnvFilter::default().add_directive(level.into()), &level.to_string());
    match variable.filter(|text| !text.is_empty()).map(|text| (text.parse(), text)) {
        Some((Ok(filter), text)) if !text.split(',').any(is_bare_target) => (quiet_http2(filter, text), false),
        Some(_) => (configured(), true),
        None => (configured(), false),
    }
}

/// The filter of these directives, in which the HTTP/2 library does not warn: any client can have it warn. It logs all
/// that it has to say from level debug on, and where a directive names it.
fn quiet_http2(filter: EnvFilter, directives: &str) -> EnvFilter {
    let is_named = directives.split(',').any(|directive| directive.trim().starts_with(HTTP2_TARGET));
    let level = directives.split(',').filter_map(|directive| directive.trim().parse::<LevelFilter>().ok()).next_back();
    match level {
        Some(LevelFilter::WARN | LevelFilter::INFO) if !is_named => {
            filter.add_directive(format!("{HTTP2_TARGET}=error").parse().expect("it is a directive"))
        }
        _ => filter,
    }
}

/// True for a word that is no level, such as a mistyped one. As a directive it would be a target without a level, and
/// silence all other targets.
fn is_bare_target(directive: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    directive.chars().all(word) && directive.parse::<LevelFilter>().is_err()
}

/// Has panics be logged: one of any thread leaves a line, also when the process ends by it at once.
fn log_panics(logs: LogHandle) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if tracing::enabled!(tracing::Level::ERROR) {
            log_panic(info);
            // A second panic of the thread aborts the process.
            logs.flush_within(PANIC_FLUSH_TIMEOUT);
        } else {
            // The operator's filter has no place for it.
            before(info);
        }
    }));
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let place = info.location().map(ToString::to_string);
    let panic = info.payload_as_str().unwrap_or("without a message");
    // Only when RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(thread, place, panic, backtrace, "a thread has panicked: report this line");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variable_overrides_the_level_when_valid() {
        let shown = |variable| {
            let (filter, ignored) = choose_filter(LevelFilter::INFO, variable);
            (filter.to_string(), ignored)
        };
        assert_eq!(shown(None), ("h2=error,info".into(), false));
        assert_eq!(shown(Some("debug")), ("debug".into(), false));
        assert_eq!(shown(Some("keygate=loud=x")), ("h2=error,info".into(), true));
        assert_eq!(shown(Some("nonsense")), ("h2=error,info".into(), true), "as a target it would silence all others");
        assert_eq!(shown(Some("warn,hyper=debug")), ("hyper=debug,h2=error,warn".into(), false));
        assert_eq!(shown(Some("warn,h2=debug")), ("h2=debug,warn".into(), false));
        assert_eq!(shown(Some("off")), ("off".into(), false));
    }
}
