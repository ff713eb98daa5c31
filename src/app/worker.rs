//! One worker: a thread with its own runtime, its own listeners and its own upstream connections.
//!
//! When the runtime is dropped, so is whatever is still in flight, which closes its audit entries and gives back its slots.

use std::convert::Infallible;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::Context as _;
use hyper::service::service_fn;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;
use uuid::ContextV7;

use super::{Certificates, Phase, reached};
use crate::admission::{Admission, Routes};
use crate::audit::Journal;
use crate::config::Config;
use crate::forward::TrustedProxies;
use crate::gateway::{Attempts, Gateway, Unread};
use crate::metrics::Metrics;
use crate::state::State;
use crate::transport::{self, BodyLimits, Capacity, Serving};
use crate::upstream::{Endpoints, Pool};

/// What a worker is made of. The listeners are its own; the rest it shares.
pub(super) struct Worker {
    pub(super) listeners: Vec<TcpListener>,
    pub(super) config: Arc<Config>,
    pub(super) certificates: Arc<Certificates>,
    pub(super) state: Arc<State>,
    pub(super) journal: Journal,
    pub(super) metrics: Metrics,
    pub(super) endpoints: Endpoints,
    pub(super) capacity: Capacity,
    pub(super) attempts: Attempts,
    pub(super) phase: watch::Receiver<Phase>,
    /// How many workers there are.
    pub(super) alive: Arc<AtomicUsize>,
    /// Told when the worker has drained.
    pub(super) ended: mpsc::Sender<()>,
}

/// A worker that lives; counted, and told of when it ends, also by a panic.
struct Alive {
    count: Arc<AtomicUsize>,
    ended: mpsc::Sender<()>,
}

impl Alive {
    fn new(worker: &Worker) -> Self {
        worker.alive.fetch_add(1, Ordering::Relaxed);
        Self { count: Arc::clone(&worker.alive), ended: worker.ended.clone() }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        // The other end is gone only when nobody waits for us.
        self.ended.send(()).ok();
    }
}

impl Worker {
    /// Starts the thread, and returns when it has its runtime.
    ///
    /// A local runtime runs its tasks where they are spawned: nothing of a request is shared, locked or sent, and a
    /// task that wakes another costs no system call.
    pub(super) fn start(self, number: usize) -> anyhow::Result<JoinHandle<()>> {
        let (made, is_made) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("worker-{number}"));
        let thread = thread.spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            let (runtime, result) = runtime.map_or_else(|error| (None, Err(error)), |runtime| (Some(runtime), Ok(())));
            // The other end waits for exactly this.
            made.send(result).ok();
            if let Some(runtime) = runtime {
                self.run(runtime);
            }
        })?;
        is_made.recv().context("the worker died at its start")?.context("cannot make a worker's runtime")?;
        Ok(thread)
    }

    fn run(self, runtime: LocalRuntime) {
        let _alive = Alive::new(&self);
        let phase = self.phase.clone();
        runtime.block_on(self.serve());
        if *phase.borrow() == Phase::Serving {
            tracing::error!("a worker has ended though nobody told it to: this gateway is not ready any more");
        }
        // Drops what is in flight, and waits for no name that is still being resolved.
        runtime.shutdown_background();
    }

    async fn serve(self) {
        let state = State::for_thread(&self.state).await;
        let gateway = Rc::new(self.gateway(state));
        let serving: Vec<_> = (0..self.listeners.len()).map(|number| Rc::new(self.serving(number, &gateway))).collect();
        let served: Vec<_> = self
            .listeners
            .into_iter()
            .zip(serving)
            .map(|(listener, serving)| {
                let draining = reached(self.phase.clone(), Phase::Draining);
                tokio::task::spawn_local(serve(listener, serving, draining, Rc::clone(&gateway)))
            })
            .collect();
        let drained = async {
            for listener in served {
                match listener.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!(%error, "a listener ended"),
                    Err(error) => tracing::error!(%error, "a listener panicked"),
                }
            }
        };
        tokio::select! {
            () = drained => {}
            () = reached(self.phase.clone(), Phase::Ending) => {}
        }
    }

    fn gateway(&self, state: Arc<State>) -> Gateway {
        let routes = Routes::new(&self.config.routes, &self.metrics);
        Gateway {
            admission: Admission::new(state, routes, self.metrics.clone()),
            upstream: Pool::new(self.endpoints.clone(), &self.config.upstream),
            attempts: self.attempts.clone(),
            journal: self.journal.clone(),
            trusted: TrustedProxies(self.config.trusted_proxies.clone()),
            settings: self.config.transport.clone(),
            body_limits: Rc::new(self.body_limits()),
            metrics: self.metrics.clone(),
            unread: Unread::new(&self.metrics),
            ids: ContextV7::new(),
        }
    }

    fn body_limits(&self) -> BodyLimits {
        let settings = &self.config.transport;
        BodyLimits {
            max: settings.max_body,
            idle: settings.body_idle_timeout,
            min_rate: settings.min_body_rate,
            timeouts: self.metrics.timeouts.clone(),
        }
    }

    /// What the listener with this place in the configuration serves.
    fn serving(&self, number: usize, gateway: &Rc<Gateway>) -> Serving {
        let (listen, gateway) = (&self.config.listen[number], Rc::clone(gateway));
        Serving {
            settings: Rc::new(self.config.transport.clone()),
            answer: Rc::new(move |why| gateway.unread.answer(why)),
            tls: self.certificates.store(number).cloned(),
            http2: listen.http2,
            proxies: listen.proxy_protocol.as_slice().into(),
            capacity: self.capacity.clone(),
            connections: self.metrics.connections.clone(),
            timeouts: self.metrics.timeouts.clone(),
        }
    }
}

async fn serve(
    listener: TcpListener,
    serving: Rc<Serving>,
    draining: impl Future<Output = ()>,
    gateway: Rc<Gateway>,
) -> std::io::Result<()> {
    let lame_duck = std::future::pending();
    transport::serve(
        listener,
        || Rc::clone(&serving),
        lame_duck,
        draining,
        move |peer, _handover| {
            let gateway = Rc::clone(&gateway);
            service_fn(move |request| {
                let (gateway, peer) = (Rc::clone(&gateway), Rc::clone(&peer));
                async move { Ok::<_, Infallible>(gateway.handle(&peer, request).await) }
            })
        },
    )
    .await
}
