//! Source of a conversion: the reader of one program's files.

use super::apisix::Apisix;
use super::consumer::{Consumer, Place};
use super::kong::Kong;
use super::report::Report;
use super::unkey::Unkey;
use domain::clock::Micros;
use platform::settings::{Location, Part, Treatment, read_lists};

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

/// What is read, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Keys that expire, or are used up, become keys that do not.
    pub(super) keep_expiring: bool,
    /// Keys that look encrypted are keys as they are.
    pub(super) plain_keys: bool,
    /// The time at which keys have expired or not.
    pub(super) now: Micros,
}

/// Reader of a kind of file: it takes the file part by part.
pub(super) trait Reader {
    /// Chooses how the value at a path is read.
    fn treat(&self, path: &str) -> Treatment;
    /// Takes an item of a list.
    fn take(&mut self, item: super::field::Field<'_>, list: &str, report: &mut Report);
    /// Why a part of the file that is not read has no counterpart; none: it is no part of what is converted.
    fn reason(&self, path: &str) -> Option<String>;
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

    /// Reads a text; `progress` is told the number of items so far, and of characters before the last one.
    pub(super) fn read(
        self,
        text: &str,
        options: Options,
        report: &mut Report,
        mut progress: impl FnMut(usize, usize),
    ) -> Vec<Consumer> {
        let reader = std::cell::RefCell::new(self.reader(options));
        let mut items = 0;
        let read = read_lists(
            text,
            |path| reader.borrow().treat(path),
            |part| match part {
                Part::Item { list, index, node, offset } => {
                    items += 1;
                    progress(items, offset);
                    let item = super::field::Field::item(list, index, &node);
                    reader.borrow_mut().take(item, list, report);
                }
                Part::Skipped { path, at, values } => {
                    if let Some(reason) = reader.borrow().reason(path).filter(|_| values > 0) {
                        report.leave(Place { at, path: path.into() }, reason);
                    }
                }
            },
        );
        if let Err((at, what)) = read {
            report.error(&place_of_syntax(at), what);
            return Vec::new();
        }
        reader.into_inner().finish(report)
    }
}

fn place_of_syntax(at: Location) -> Place {
    Place { at, path: "syntax".into() }
}
