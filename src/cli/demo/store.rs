//! Query store of a demo.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};
use tokio::sync::oneshot;

use super::QUERIES;
use domain::clock;
use query_store::service::Caller;
use query_store::{self, QueryService};

/// The query store, on a thread of its own.
pub(super) struct Store {
    pub(super) address: SocketAddr,
    /// Directory of its database, which the seed opens a second time, as another process could.
    dir: PathBuf,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Store {
    /// Opens the database in the directory, and serves it on a free port of this machine.
    pub(super) fn start(dir: &Path) -> anyhow::Result<Self> {
        let settings = settings(dir);
        let service = query_store::open(&settings)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("query-store".into()).spawn(move || {
            let shutdown = async {
                // An error means that the sender was dropped, which also ends the demo.
                stopped.await.ok();
            };
            query_store::run(listener, service, settings.drain, shutdown)
        })?;
        Ok(Self { address, dir: dir.to_owned(), stop, thread })
    }

    /// Stores the demo's queries.
    pub(super) fn seed(&self, caller: Caller) -> anyhow::Result<()> {
        let service: QueryService = query_store::open(&settings(&self.dir))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(query_store::seed(&service, caller, QUERIES, clock::now()))?;
        Ok(())
    }

    /// Drains the store, and returns when its thread has ended.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        // Sending fails when the store has ended already; joining it returns the reason.
        self.stop.send(()).ok();
        match self.thread.join() {
            Ok(ended) => ended.context("the query store ended"),
            Err(_) => bail!("the query store panicked"),
        }
    }
}

fn settings(dir: &Path) -> query_store::Settings {
    query_store::Settings::embedded(dir.join("queries.db"))
}
