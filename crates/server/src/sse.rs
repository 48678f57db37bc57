//! Answers as they are written: server-sent events.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_core::Stream;
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep};

use crate::error::ApiError;
use crate::generate::{Delta, End, Generation};

/// How a client wants to be told. Every method appends events.
pub(crate) trait Dialect: Send {
    /// Before anything has happened.
    fn begin(&mut self, events: &mut Events, generation: &Generation);
    /// Something happened; never a failure.
    fn delta(&mut self, events: &mut Events, delta: Delta, generation: &Generation);
    /// Every text has ended.
    fn end(&mut self, events: &mut Events, generation: &Generation);
    /// Nothing more will come, since something broke.
    fn fail(&mut self, events: &mut Events, error: &ApiError);
}

/// Events as they go over the wire.
#[derive(Debug, Default)]
pub(crate) struct Events(Vec<u8>);

impl Events {
    /// An event without a name.
    pub(crate) fn data(&mut self, data: &impl Serialize) {
        let json = serde_json::to_string(data).expect("answers have text keys");
        self.text(&json);
    }

    /// An event without a name whose data is this line.
    pub(crate) fn text(&mut self, line: &str) {
        self.0.extend_from_slice(format!("data: {line}\n\n").as_bytes());
    }

    /// An event with a name.
    pub(crate) fn named(&mut self, name: &str, data: &impl Serialize) {
        self.0.extend_from_slice(format!("event: {name}\n").as_bytes());
        self.data(data);
    }
}

/// What a reader ignores, so that a quiet connection stays open.
const HEARTBEAT: &[u8] = b": waiting\n\n";

/// A response that streams `generation` in `dialect`. Dropping it cancels the job.
pub(crate) fn respond(
    generation: Generation,
    mut dialect: Box<dyn Dialect>,
    heartbeat: Duration,
) -> Response {
    let mut events = Events::default();
    dialect.begin(&mut events, &generation);
    let quiet = Box::pin(sleep(heartbeat));
    let stream = EventStream { generation, dialect, events, quiet, heartbeat, over: false };
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert(header::CONTENT_TYPE, fixed("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, fixed("no-cache"));
    // Proxies that collect answers would hold a stream back.
    headers.insert("x-accel-buffering", fixed("no"));
    response
}

struct EventStream {
    generation: Generation,
    dialect: Box<dyn Dialect>,
    /// Not yet handed over.
    events: Events,
    quiet: Pin<Box<Sleep>>,
    heartbeat: Duration,
    over: bool,
}

impl Stream for EventStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let pending = this.collect(context);
        let bytes = std::mem::take(&mut this.events.0);
        if !bytes.is_empty() {
            this.quiet.as_mut().reset(Instant::now() + this.heartbeat);
            return Poll::Ready(Some(Ok(bytes.into())));
        }
        if !pending {
            return Poll::Ready(None);
        }
        if this.quiet.as_mut().poll(context).is_ready() {
            this.quiet.as_mut().reset(Instant::now() + this.heartbeat);
            // Asked again at once, the timer arranges for its next alarm.
            context.waker().wake_by_ref();
            return Poll::Ready(Some(Ok(Bytes::from_static(HEARTBEAT))));
        }
        Poll::Pending
    }
}

impl EventStream {
    /// Turns what has happened into events. Returns whether more may come.
    fn collect(&mut self, context: &mut Context<'_>) -> bool {
        while !self.over {
            match self.generation.poll(context) {
                Poll::Pending => return true,
                Poll::Ready(Some(Delta::Done { end: End::Failed(reason), .. })) => {
                    let error = ApiError::failed(reason);
                    if let Some(private) = &error.private {
                        tracing::error!(code = error.code, "{private}");
                    }
                    self.dialect.fail(&mut self.events, &error);
                    self.over = true;
                }
                Poll::Ready(Some(delta)) => {
                    self.dialect.delta(&mut self.events, delta, &self.generation);
                }
                Poll::Ready(None) => {
                    self.dialect.end(&mut self.events, &self.generation);
                    self.over = true;
                }
            }
        }
        false
    }
}
