//! The running service: requests in, housekeeping beside, and an orderly end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::runtime::LocalOptions;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};

use crate::metrics::Metrics;
use crate::query_store::http;
use crate::query_store::service::QueryService;
use crate::{clock, transport};

/// Between two passes of the collector: what ends meanwhile is all that waits for it.
const SWEEP: Duration = Duration::from_secs(60);
/// Between two looks at the wall clock.
const TICK: Duration = Duration::from_secs(1);
/// A gateway takes 100 fields and 64 KiB, and adds its own: what it lets through must find room here.
const MAX_FIELDS: usize = 128;
/// As [`MAX_FIELDS`].
const MAX_HEAD: usize = 96 * 1024;
/// Connections from all gateways together.
const MAX_CONNECTIONS: usize = 20_000;
/// How long an idle connection is kept. Long, because whenever we close one, the gateway may be sending a request into it;
/// and the gateways are few.
const KEEP_ALIVE: Duration = Duration::from_secs(300);

/// Serves a listener on a runtime of the calling thread's own; returns when [`serve`] does.
///
/// # Errors
/// The runtime or the listener cannot be set up.
pub fn run(
    listener: TcpListener,
    service: QueryService,
    drain: Duration,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(serve(listener, service, drain, shutdown))
}

/// Serves a listener until `shutdown` completes and the last request has ended, or `drain` has passed. Must be called
/// on a `LocalRuntime`.
///
/// # Errors
/// The listener cannot be registered with the runtime.
pub async fn serve(
    listener: TcpListener,
    service: QueryService,
    drain: Duration,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let service = Rc::new(service);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = Rc::new(serving());
    let connections = Rc::clone(&service);
    let serving = transport::serve(
        listener,
        || Rc::clone(&serving),
        std::future::pending(),
        async {
            // The sender lives as long as we wait.
            let _ = stopped.await;
        },
        move |_peer, _upgrade_slot| Connection(Rc::clone(&connections)),
    );
    let deadline = async {
        shutdown.await;
        let _ = stop.send(());
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        served = serving => served,
        () = deadline => {
            tracing::warn!("some requests did not end in time and are cut off");
            Ok(())
        }
        never = keep_house(&service) => match never {},
    }
}

/// A gateway asks for what its clients ask for, and waits for them as it sees fit: what it does not bound, we do not.
fn serving() -> transport::ServeOptions {
    let settings = transport::Settings {
        keep_alive_timeout: KEEP_ALIVE,
        first_byte_timeout: KEEP_ALIVE,
        min_body_rate: 0,
        max_fields: MAX_FIELDS,
        max_head: MAX_HEAD,
        ..transport::Settings::default()
    };
    // Nobody scrapes them.
    let metrics = Metrics::new();
    transport::ServeOptions {
        settings: Rc::new(settings),
        head_error_response: Rc::new(http::head_error_response),
        tls: None,
        http2: transport::Http2Negotiation::PriorKnowledge,
        proxy_networks: Rc::default(),
        connection_limiter: transport::ConnectionLimiter::new(MAX_CONNECTIONS, MAX_CONNECTIONS, Vec::new()),
        connections: metrics.connections,
        timeouts: metrics.timeouts,
    }
}

/// Follows the wall clock, and runs the collector again and again.
async fn keep_house(service: &QueryService) -> Infallible {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_sweep = Instant::now();
    loop {
        ticks.tick().await;
        clock::follow_wall();
        if Instant::now() >= next_sweep {
            next_sweep = Instant::now() + SWEEP;
            sweep(service).await;
        }
    }
}

async fn sweep(service: &QueryService) {
    match service.collect_garbage(clock::now()).await {
        Ok(swept) => tracing::debug!(swept.snapshots, swept.removed, "old versions collected"),
        Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "old versions cannot be collected"),
    }
}

/// One connection's service.
struct Connection(Rc<QueryService>);

impl hyper::service::Service<Request<Incoming>> for Connection {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let service = Rc::clone(&self.0);
        Box::pin(async move { Ok(http::handle(&service, request, clock::now()).await) })
    }
}
