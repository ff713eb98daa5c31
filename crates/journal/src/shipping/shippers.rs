//! The shippers of all sinks: through start, reload, hand-over and stop.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use uuid::Uuid;

use super::needs::Needs;
use super::position_file::PositionFile;
use super::rejected_file::RejectedFile;
use super::running_shipper::{RunningShipper, stop};
use super::settings::{Settings, SinkSettings};
use super::shipper::{Shipper, ShipperCommand};
use super::sink::{OpenError, Sink};
use super::status::{SinkReport, SinkState, Status};
use crate::audit::{JournalTap, journal_id};
use domain::clock::{self, Micros};
use platform::metrics::ShippingMetrics;

/// Reason why a sink cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file that the sink needs cannot be used.
    #[error("the audit sink `{sink}` cannot be used")]
    Sink {
        /// Its name.
        sink: String,
        /// The reason.
        #[source]
        source: Box<OpenError>,
    },
    /// The file system failed, or there is no thread.
    #[error("the audit cannot be shipped from {directory}")]
    Io {
        /// The directory of the journal.
        directory: std::path::PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}

/// The shippers of all sinks.
///
/// - They run between [`Shippers::start`] and [`Shippers::finish`], but for the time of a hand-over.
/// - A reload ends and starts only those whose settings have changed.
#[derive(Debug)]
pub struct Shippers {
    tap: JournalTap,
    metrics: ShippingMetrics,
    needs: Arc<Needs>,
    started: Micros,
    /// Held by the change that goes on, which may wait for shippers to end.
    turn: Mutex<()>,
    /// Never held across a wait: reports read it.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    settings: Settings,
    running: Vec<RunningShipper>,
    /// While another process has the journal, nothing is shipped.
    is_suspended: bool,
}

impl Shippers {
    /// Starts a shipper for each sink.
    ///
    /// # Errors
    /// [`StartError`]. A sink that cannot be reached is none.
    pub fn start(tap: JournalTap, settings: &Settings, metrics: &ShippingMetrics) -> Result<Arc<Self>, StartError> {
        let needs = Arc::new(Needs::new(tap.clone()));
        let shippers = Arc::new(Self {
            tap,
            metrics: metrics.clone(),
            needs,
            started: clock::now(),
            turn: Mutex::default(),
            inner: Mutex::default(),
        });
        shippers.apply(settings)?;
        Ok(shippers)
    }

    /// Ships to these sinks from now on. Those that are the same go on.
    ///
    /// # Errors
    /// [`StartError`]: nothing has changed then.
    pub fn apply(&self, settings: &Settings) -> Result<(), StartError> {
        let _turn = self.take_turn();
        self.change(settings)
    }

    /// As [`Shippers::apply`], and logs a failure: a reload that all workers serve by is not taken back.
    pub fn follow(&self, settings: &Settings) {
        if let Err(error) = self.apply(settings) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "cannot ship the audit to changed sinks; reload again"
            );
        }
    }

    fn change(&self, settings: &Settings) -> Result<(), StartError> {
        let is_kept = |running: &RunningShipper| settings.sinks.contains(&running.settings);
        let kept: Vec<SinkSettings> =
            self.lock().running.iter().filter(|running| is_kept(running)).map(|kept| kept.settings.clone()).collect();
        let new = settings.sinks.iter().filter(|sink| !kept.contains(sink));
        let opened = new.map(|sink| open(sink).map(|opened| (sink.clone(), opened)));
        let opened: Vec<(SinkSettings, Sink)> = opened.collect::<Result<_, _>>()?;
        let journal = if settings.sinks.is_empty() { None } else { Some(self.journal_id()?) };
        let (end, is_suspended) = {
            let mut inner = self.lock();
            let (stay, end): (Vec<_>, Vec<_>) = inner.running.drain(..).partition(is_kept);
            inner.running = stay;
            inner.settings = settings.clone();
            (end, inner.is_suspended)
        };
        // Two shippers of one name would have one position: the old one ends before the new one starts.
        stop(end);
        let needed = settings.sinks.iter().map(|sink| (sink.name.clone(), self.file(sink).read().segment));
        self.needs.replace(needed.collect());
        let Some(journal) = journal.filter(|_| !is_suspended) else { return Ok(()) };
        for (sink, opened) in opened {
            let running = self.spawn(sink, opened, journal)?;
            self.lock().running.push(running);
        }
        Ok(())
    }

    /// Stops all shippers, because another process is to have the journal. Returns when they have ended.
    pub fn suspend(&self) {
        let _turn = self.take_turn();
        stop(self.take_running());
    }

    /// Starts all shippers again: nothing has come of the hand-over.
    pub fn resume(&self) {
        let _turn = self.take_turn();
        let settings = {
            let mut inner = self.lock();
            inner.is_suspended = false;
            inner.settings.clone()
        };
        if let Err(error) = self.change(&settings) {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot ship the audit until a restart");
        }
    }

    /// Delivers what is left, for this time at most, and ends all shippers. The journal is closed already. A sink that
    /// has failed for 5 seconds is not waited for, and one that takes nothing for 5 seconds no longer.
    pub fn finish(&self, within: Duration) {
        let began = Instant::now();
        let _turn = self.take_turn();
        let running = self.take_running();
        let deliveries: Vec<u64> = running.iter().map(RunningShipper::begin_to_finish).collect();
        for (shipper, deliveries) in running.iter().zip(deliveries) {
            shipper.wait_while_it_delivers(began, began + within, deliveries);
            let report = shipper.status.report(&self.tap, self.started, clock::now());
            if report.lag_records > 0 {
                tracing::warn!(
                    sink = report.sink,
                    lines = report.lag_records,
                    error = report.error,
                    "the audit was not shipped to its end; the next start goes on"
                );
            }
        }
        stop(running);
    }

    /// Takes the shippers that run; no others start until a resumption.
    fn take_running(&self) -> Vec<RunningShipper> {
        let mut inner = self.lock();
        inner.is_suspended = true;
        std::mem::take(&mut inner.running)
    }

    /// The reports of all sinks, in the order of the configuration.
    pub fn reports(&self) -> Vec<SinkReport> {
        let now = clock::now();
        let inner = self.lock();
        let report = |sink: &SinkSettings| {
            let running = inner.running.iter().find(|running| running.settings == *sink)?;
            Some(running.status.report(&self.tap, self.started, now))
        };
        inner.settings.sinks.iter().filter_map(report).collect()
    }

    /// The names of the sinks that fail; none while all take what they are sent.
    pub fn failing(&self) -> Option<String> {
        let reports = self.reports();
        let failing = reports.iter().filter(|report| report.state == SinkState::Failing);
        let names: Vec<&str> = failing.map(|report| report.sink.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    fn spawn(&self, settings: SinkSettings, sink: Sink, journal: Uuid) -> Result<RunningShipper, StartError> {
        let file = self.file(&settings);
        let name = &settings.name;
        let (kind, records) = (settings.destination.kind(), settings.records);
        let status = Arc::new(Status::new(name, kind, sink.target(), file.read()));
        let metrics = self.metrics.sink(name);
        let rejected = RejectedFile::new(self.tap.directory(), name, Arc::clone(&status), metrics.clone());
        let (command, commands) = watch::channel(ShipperCommand::Follow);
        let shipper = Shipper {
            sink,
            records,
            tap: self.tap.clone(),
            journal,
            file,
            name: name.clone(),
            status: Arc::clone(&status),
            rejected,
            metrics,
            command: commands,
            needs: Arc::clone(&self.needs),
            stream: None,
            part: None,
        };
        let failed = |source| self.failed(source);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (running, ended) = mpsc::channel();
        let run = move || {
            runtime.block_on(shipper.run());
            // Does not wait for the look-up of a host name.
            runtime.shutdown_background();
            drop(running);
        };
        std::thread::Builder::new().name("audit-ship".into()).spawn(run).map_err(failed)?;
        Ok(RunningShipper { settings, status, command, ended })
    }

    fn journal_id(&self) -> Result<Uuid, StartError> {
        journal_id::read_or_create(self.tap.directory()).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> StartError {
        StartError::Io { directory: self.tap.directory().to_owned(), source }
    }

    fn file(&self, sink: &SinkSettings) -> PositionFile {
        PositionFile::new(self.tap.directory(), &sink.name)
    }

    fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

fn open(settings: &SinkSettings) -> Result<Sink, StartError> {
    let failed = |source| StartError::Sink { sink: settings.name.clone(), source: Box::new(source) };
    Sink::open(&settings.destination).map_err(failed)
}
