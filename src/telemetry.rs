//! Telemetry: logging, as structured lines on standard error, as text for people or as JSON for machines; the
//! [`access_log`]; and traces of requests ([`trace`]).

pub(crate) mod syslog_message;
pub mod access_log;
pub mod trace;

use std::fmt;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{EnvFilter, reload};

/// Environment variable that overrides the configured level: a level, or directives such as `keygate::audit=debug`.
pub const LEVEL_VARIABLE: &str = "KEYGATE_LOG";

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

/// Handle of this process's logs, by which their level can be changed. The default handle has no logs and does nothing.
#[derive(Clone, Default)]
pub struct LogHandle(Option<Arc<dyn Fn(EnvFilter) + Send + Sync>>);

impl LogHandle {
    /// Changes the lowest level that is logged, unless the environment variable overrides it.
    pub fn set_level(&self, level: LevelFilter) {
        if let Some(replace) = &self.0 {
            replace(read_filter(level).0);
        }
    }
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogHandle").finish_non_exhaustive()
    }
}

/// Starts logging. Text on a terminal is coloured. A second call in a process has no effect.
///
/// An invalid `KEYGATE_LOG` is ignored, with a warning.
pub fn init(settings: Settings) -> LogHandle {
    let (filter, ignored) = read_filter(settings.level);
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Otherwise the subscriber reports on standard error that standard error cannot be written, and panics over it.
    let subscriber = subscriber.log_internal_errors(false);
    let (set, logs) = match settings.format {
        LogFormat::Text => {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let subscriber = subscriber.with_ansi(ansi).with_filter_reloading();
            let logs = LogHandle::from_reload_handle(subscriber.reload_handle());
            (subscriber.try_init(), logs)
        }
        LogFormat::Json => {
            let subscriber = subscriber.json().flatten_event(true).with_filter_reloading();
            let logs = LogHandle::from_reload_handle(subscriber.reload_handle());
            (subscriber.try_init(), logs)
        }
    };
    // Only now can the warning be logged.
    if set.is_ok() && ignored {
        tracing::warn!("{LEVEL_VARIABLE} holds no valid filter and is ignored; give a level, or target=level");
    }
    logs
}

impl LogHandle {
    fn from_reload_handle<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> Self {
        Self(Some(Arc::new(move |filter| {
            if let Err(error) = handle.reload(filter) {
                tracing::debug!(%error, "cannot change the log level: the subscriber is gone");
            }
        })))
    }
}

/// Reads the filter from the environment variable and the configured level.
fn read_filter(level: LevelFilter) -> (EnvFilter, bool) {
    choose_filter(level, std::env::var(LEVEL_VARIABLE).ok().as_deref())
}

/// Chooses the filter: that of the environment variable, else the configured level. Returns true with it when the
/// variable is invalid.
fn choose_filter(level: LevelFilter, variable: Option<&str>) -> (EnvFilter, bool) {
    let configured = EnvFilter::default().add_directive(level.into());
    match variable.filter(|text| !text.is_empty()).map(|text| (text.parse(), text)) {
        Some((Ok(filter), text)) if !text.split(',').any(is_bare_target) => (filter, false),
        Some(_) => (configured, true),
        None => (configured, false),
    }
}

/// True for a word that is no level, such as a mistyped one. As a directive it would be a target without a level, and
/// silence all other targets.
fn is_bare_target(directive: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    directive.chars().all(word) && directive.parse::<LevelFilter>().is_err()
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
        assert_eq!(shown(None), ("info".into(), false));
        assert_eq!(shown(Some("debug")), ("debug".into(), false));
        assert_eq!(shown(Some("keygate=loud=x")), ("info".into(), true));
        assert_eq!(shown(Some("nonsense")), ("info".into(), true), "it would be a target, and silence all others");
        assert_eq!(shown(Some("warn,hyper=debug")), ("hyper=debug,warn".into(), false));
    }
}
