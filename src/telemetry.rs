//! Logs: structured, to standard error, as text for people or as JSON for machines.

use std::fmt;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{EnvFilter, reload};

/// The environment variable that overrides the configured level: a level, or directives such as `keygate::audit=debug`.
pub const LEVEL_VARIABLE: &str = "KEYGATE_LOG";

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The form of a line.
    pub format: LogFormat,
    /// The least level that is logged.
    pub level: LevelFilter,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: LevelFilter::INFO }
    }
}

/// The logs of this process, whose level can be changed; by default nobody's, for whoever began none.
#[derive(Clone, Default)]
pub struct LogHandle(Option<Arc<dyn Fn(EnvFilter) + Send + Sync>>);

impl LogHandle {
    /// Logs from this level on, unless the environment says otherwise.
    pub fn set_level(&self, level: LevelFilter) {
        if let Some(replace) = &self.0 {
            replace(of_environment(level).0);
        }
    }
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogHandle").finish_non_exhaustive()
    }
}

/// Begins logging. Colours are used for text on a terminal. A second call changes nothing.
///
/// An unreadable `KEYGATE_LOG` is ignored, with a warning.
pub fn init(settings: Settings) -> LogHandle {
    let (filter, ignored) = of_environment(settings.level);
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // It would report to standard error that standard error cannot be written, and panic over that.
    let subscriber = subscriber.log_internal_errors(false);
    let (set, logs) = match settings.format {
        LogFormat::Text => {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let subscriber = subscriber.with_ansi(ansi).with_filter_reloading();
            let logs = LogHandle::of(subscriber.reload_handle());
            (subscriber.try_init(), logs)
        }
        LogFormat::Json => {
            let subscriber = subscriber.json().flatten_event(true).with_filter_reloading();
            let logs = LogHandle::of(subscriber.reload_handle());
            (subscriber.try_init(), logs)
        }
    };
    if set.is_ok() && ignored {
        tracing::warn!("{LEVEL_VARIABLE} holds no valid filter and is ignored; give a level, or target=level");
    }
    logs
}

impl LogHandle {
    fn of<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> Self {
        Self(Some(Arc::new(move |filter| {
            if let Err(error) = handle.reload(filter) {
                tracing::debug!(%error, "the logs are gone");
            }
        })))
    }
}

fn of_environment(level: LevelFilter) -> (EnvFilter, bool) {
    filter(level, std::env::var(LEVEL_VARIABLE).ok().as_deref())
}

/// The filter in force, and whether the environment's was not valid.
fn filter(level: LevelFilter, variable: Option<&str>) -> (EnvFilter, bool) {
    let configured = EnvFilter::default().add_directive(level.into());
    match variable.filter(|text| !text.is_empty()).map(|text| (text.parse(), text)) {
        Some((Ok(filter), text)) if !text.split(',').any(is_bare_target) => (filter, false),
        Some(_) => (configured, true),
        None => (configured, false),
    }
}

/// A word that is no level, such as a level mistyped: as a target without a level, it would silence all others.
fn is_bare_target(directive: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    directive.chars().all(word) && directive.parse::<LevelFilter>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_overrides_the_level_unless_it_is_nonsense() {
        let shown = |variable| {
            let (filter, ignored) = filter(LevelFilter::INFO, variable);
            (filter.to_string(), ignored)
        };
        assert_eq!(shown(None), ("info".into(), false));
        assert_eq!(shown(Some("debug")), ("debug".into(), false));
        assert_eq!(shown(Some("keygate=loud=x")), ("info".into(), true));
        assert_eq!(shown(Some("nonsense")), ("info".into(), true), "it would be a target, and silence all others");
        assert_eq!(shown(Some("warn,hyper=debug")), ("hyper=debug,warn".into(), false));
    }
}
