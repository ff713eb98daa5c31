//! The service of a connection, instrumented: the connection's state learns when an exchange begins and ends, and what
//! becomes of its response.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;

/// One exchange, from its request's head until its response's body is dropped. Dropping the guard ends the exchange.
///
/// Each protocol has its own guard, which keeps its connection's state.
pub(super) trait ExchangeGuard {
    /// Sees the response's head before it is sent.
    fn inspect_response<B>(&self, response: &mut Response<B>);

    /// Completes when the connection has room for another frame of the response's body.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Sees what polling the response's body has brought.
    fn inspect_frame<T, E>(&self, frame: &Poll<Option<Result<T, E>>>);
}

/// A service whose exchanges are guarded. `begin` makes the guard of an exchange, given the request's version of HTTP.
pub(super) struct TrackedService<S, F> {
    pub(super) service: S,
    pub(super) begin: F,
}

impl<S, B, F, G> Service<Request<Incoming>> for TrackedService<S, F>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body,
    F: Fn(Version) -> G,
    G: ExchangeGuard,
{
    type Response = Response<TrackedBody<B, G>>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future, G>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        // Before the service is called: it may look at the connection's state.
        let guard = (self.begin)(request.version());
        ResponseFuture { future: self.service.call(request), guard: Some(guard) }
    }
}

pin_project! {
    /// The time from a request's head to its response's head.
    pub(super) struct ResponseFuture<F, G> {
        #[pin]
        future: F,
        guard: Option<G>,
    }
}

impl<F, B, G> Future for ResponseFuture<F, G>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    G: ExchangeGuard,
{
    type Output = Result<Response<TrackedBody<B, G>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.future.poll(cx));
        let guard = this.guard.take().expect("a future is not polled again when it has completed");
        guard.inspect_response(&mut response);
        Poll::Ready(Ok(response.map(|body| TrackedBody { body, guard })))
    }
}

pin_project! {
    /// A response body that keeps its exchange going until it is dropped.
    pub(super) struct TrackedBody<B, G> {
        #[pin]
        body: B,
        guard: G,
    }
}

impl<B: Body, G: ExchangeGuard> Body for TrackedBody<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        ready!(this.guard.poll_room(cx));
        let frame = this.body.poll_frame(cx);
        this.guard.inspect_frame(&frame);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
