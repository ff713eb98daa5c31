//! The service, telling the connection what becomes of its requests.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::activity::{Progress, Taking};

/// A service of one connection: tells when an exchange begins and ends, hears when a response is to be the last, and
/// notes when the client of an HTTP/2 stream does not take what it is given.
pub(super) struct Watched<S> {
    pub(super) service: S,
    pub(super) progress: Rc<Progress>,
}

impl<S, B> Service<Request<Incoming>> for Watched<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body,
{
    type Response = Response<WatchedBody<B>>;
    type Error = Infallible;
    type Future = Exchange<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let ongoing = Ongoing::new(&self.progress);
        let version = request.version();
        Exchange { future: self.service.call(request), ongoing: Some(ongoing), version }
    }
}

pin_project! {
    /// The time from a request's head to its response's head.
    pub(super) struct Exchange<F> {
        #[pin]
        future: F,
        ongoing: Option<Ongoing>,
        version: Version,
    }
}

impl<F, B> Future for Exchange<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<WatchedBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.future.poll(cx));
        let ongoing = this.ongoing.take().expect("a future is not polled again when it has completed");
        let mut taking = None;
        if *this.version != Version::HTTP_2 {
            ongoing.see_off(&mut response);
        } else {
            taking = ongoing.0.stream.borrow().clone();
        }
        Poll::Ready(Ok(response.map(|body| WatchedBody {
            body,
            taking,
            old: *this.version < Version::HTTP_11,
            ongoing,
        })))
    }
}

pin_project! {
    /// A response body that keeps its exchange going until it is dropped.
    pub(super) struct WatchedBody<B> {
        #[pin]
        body: B,
        taking: Option<Rc<Taking>>,
        // Whether the client may know the body's end by the connection's end only.
        old: bool,
        ongoing: Ongoing,
    }
}

impl<B: Body> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let progress = &this.ongoing.0;
        if this.taking.is_none() && progress.wait_for_room(cx.waker()) {
            return Poll::Pending;
        }
        let frame = this.body.poll_frame(cx);
        if *this.old && matches!(frame, Poll::Ready(Some(Err(_)))) {
            progress.cut();
        }
        if let Some(taking) = this.taking {
            // Asked for a piece, it has taken the one before.
            taking.waiting.set(frame.is_ready().then(Instant::now));
            if frame.is_ready() {
                progress.sent_piece();
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An exchange, as long as it goes on.
struct Ongoing(Rc<Progress>);

impl Ongoing {
    fn new(progress: &Rc<Progress>) -> Self {
        progress.begin();
        Self(Rc::clone(progress))
    }

    /// Says or hears that this response is the connection's last: it also is when it comes before the whole request. The
    /// library reads no further once nobody wants the rest, and then nobody can tell where the next request begins.
    fn see_off<B>(&self, response: &mut Response<B>) {
        let headers = response.headers_mut();
        if (self.0.is_last() || self.0.is_unread()) && response_closes(headers.get(CONNECTION)) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if headers.get(CONNECTION).is_some_and(|value| value == "close") {
            self.0.close();
        }
    }
}

/// Whether `Connection` is free to say `close`: in a 101 it says `upgrade`.
fn response_closes(connection: Option<&HeaderValue>) -> bool {
    connection.is_none_or(|value| value == "close")
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.0.end();
    }
}
