//! The running service: serves requests, collects garbage, and drains at the end.

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

use crate::http;
use crate::service::QueryService;
use domain::clock;
use edge::transport;
use platform::metrics::Metrics;

/// Pause between two passes of garbage collection. Only row versions that ended meanwhile wait for the next pass.
const GC_INTERVAL: Duration = Duration::from_secs(60);
/// Pause between two readings of the wall clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of header fields. A gateway accepts 100 fields and 64 KiB and adds its own, and all of that must fit.
const MAX_FIELDS: usize = 128;
/// Maximum size of a request head in bytes; see [`MAX_FIELDS`].
const MAX_HEAD: usize = 96 * 1024;
/// Maximum number of connections, from all gateways together.
const MAX_CONNECTIONS: usize = 20_000;
/// Time for which idle connections are kept open. It is long, because the gateway may be sending a request just when
/// the connection is closed, and because gateways are few.
const KEEP_ALIVE: Duration = Duration::from_secs(300);

/// Serves a listener on a new runtime in the calling thread; returns when [`serve`] does.
///
/// # Errors
/// If the runtime or the listener cannot be set up.
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
/// If the listener cannot be registered with the runtime.
pub async fn serve(
    listener: TcpListener,
    service: QueryService,
    drain: Duration,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let service = Rc::new(service);
    let (stop, stopped) = oneshot::channel::<()>();
    let options = Rc::new(transport_options());
    let connections = Rc::clone(&service);
    let serving = transport::serve(
        transport::WorkerListener::alone(listener),
        || Rc::clone(&options),
        std::future::pending(),
        async {
            // Never an error: the sender lives as long as this future.
            let _ = stopped.await;
        },
        move |_peer, _handle| Connection(Rc::clone(&connections)),
    );
    let deadline = async {
        shutdown.await;
        let _ = stop.send(());
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        served = serving => served,
        () = deadline => {
            tracing::warn!("the drain time is over; requests still in flight are aborted");
            Ok(())
        }
        never = run_maintenance(&service) => match never {},
    }
}

/// Settings of the transport. The gateway bounds its clients itself, so nothing that it accepts may be refused here: no
/// minimum body rate, and more fields and bytes than it forwards.
fn transport_options() -> transport::ServeOptions {
    let settings = transport::Settings {
        keep_alive_timeout: KEEP_ALIVE,
        first_byte_timeout: KEEP_ALIVE,
        min_body_rate: 0,
        max_fields: MAX_FIELDS,
        max_head: MAX_HEAD,
        ..transport::Settings::default()
    };
    // Counted for the transport, but not exported: query-store has no metrics endpoint.
    let metrics = Metrics::new();
    transport::ServeOptions {
        settings: Rc::new(settings),
        head_error_response: Rc::new(|why, _| http::head_error_response(why)),
        tls: None,
        http2: transport::Http2Negotiation::PriorKnowledge,
        proxy_networks: Rc::default(),
        peers: None,
        trusted_proxies: Rc::default(),
        connection_limiter: transport::ConnectionLimiter::new(MAX_CONNECTIONS, MAX_CONNECTIONS, Vec::new()),
        connections: metrics.connections,
        timeouts: metrics.timeouts,
    }
}

/// Follows the wall clock, and collects garbage periodically.
async fn run_maintenance(service: &QueryService) -> Infallible {
    let mut ticks = tokio::time::interval(CLOCK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_gc = Instant::now();
    loop {
        ticks.tick().await;
        clock::follow_wall();
        if Instant::now() >= next_gc {
            next_gc = Instant::now() + GC_INTERVAL;
            service.store().reload_tls();
            collect_garbage(service).await;
        }
    }
}

async fn collect_garbage(service: &QueryService) {
    // The clock of another query-store may be behind this one, and its cursors then live for longer
    // than they seem to here.
    let now = clock::now().before(service.store().clock_tolerance());
    match service.collect_garbage(now).await {
        Ok(totals) => tracing::debug!(totals.snapshots, totals.removed, "collected old row versions"),
        Err(error) => tracing::error!(
            error = &error as &dyn std::error::Error,
            "cannot collect old row versions; trying again in a minute"
        ),
    }
}

/// The service of one connection.
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
