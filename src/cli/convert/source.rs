//! Source of a conversion: the reader of one program's files.

use super::apisix::{self, Apisix};
use super::consumer::{Consumer, Place};
use super::field::Field;
use super::kong::{self, Kong};
use super::placeholder;
use super::report::Report;
use super::unkey::{self, Unkey};
use domain::clock::Micros;
use platform::settings::{Part, Treatment, read_lists};

/// Programs whose files are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Source {
    /// Kong: a declarative file, as of `deck gateway dump`
    Kong,
    /// Apache APISIX: apisix.yaml of the standalone mode, or lists of the Admin API
    Apisix,
    /// Unkey: keys as JSON
    Unkey,
}

/// Options of reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Keys that have a number of requests left become keys that have none.
    pub(super) keep_counted: bool,
    /// Keys that look encrypted are keys as they are.
    pub(super) plain_keys: bool,
    /// Permissions are made of groups.
    pub(super) permissions_from_groups: bool,
    /// The time at which keys have expired or not.
    pub(super) now: Micros,
}

/// Reader of a kind of file: it takes the file item by item.
pub(super) trait Reader {
    /// Takes an item of a list.
    fn take(&mut self, item: Field<'_>, list: &str, report: &mut Report);
    /// The consumers, when the file is read.
    fn finish(self: Box<Self>, report: &mut Report) -> Vec<Consumer>;
}

impl Source {
    fn reader(self, options: Options) -> Box<dyn Reader> {
        match self {
            Self::Kong => Box::new(Kong::new(options)),
            Self::Apisix => Box::new(Apisix::new(options)),
            Self::Unkey => Box::new(Unkey::new(options)),
        }
    }

    /// Chooses how the value at a path is read.
    fn treat(self, path: &str) -> Treatment {
        match self {
            Self::Kong => kong::treat(path),
            Self::Apisix => apisix::treat(path),
            Self::Unkey => unkey::treat(path),
        }
    }

    /// Reason for which a value that is not read has no counterpart; none: it says nothing of its own.
    fn reason(self, path: &str) -> Option<String> {
        match self {
            Self::Kong => kong::reason(path),
            Self::Apisix => apisix::reason(path),
            Self::Unkey => unkey::reason(path),
        }
    }

    /// Reads a text; `progress` is told the number of items so far, and of characters before the last one.
    pub(super) fn read(
        self,
        text: &str,
        options: Options,
        report: &mut Report,
        mut progress: impl FnMut(usize, usize),
    ) -> Vec<Consumer> {
        let mut reader = self.reader(options);
        let mut items = 0;
        let take = |part: Part<'_>| match part {
            Part::Item { list, index, node, offset } => {
                items += 1;
                progress(items, offset);
                reader.take(Field::item(list, index, &node), list, report);
            }
            Part::Skipped { path, at, values } => {
                if let Some(reason) = self.reason(path).filter(|_| values > 0) {
                    report.leave(Place { at, path: path.into() }, reason);
                }
            }
        };
        match read_lists(text, |path| self.treat(path), take) {
            Ok(()) => reader.finish(report),
            Err((at, what)) => {
                let line = text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
                let advice = placeholder::advice(line).map(|advice| format!("; {advice}")).unwrap_or_default();
                report.error(&Place { at, path: "syntax".into() }, format_args!("{what}{advice}"));
                Vec::new()
            }
        }
    }
}
