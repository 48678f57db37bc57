//! The events of one request, on their way from the engine's thread to whoever asked.
//!
//! The queue between them is unbounded, so a slow reader never holds up the engine; it cannot
//! outgrow the request's own tokens.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::driver::{Board, Command};
use crate::{Event, Finish, Guesses, RequestId};

/// Events of one request: tokens, then one [`Event::Finished`] for each of its texts, then nothing.
///
/// Read it as an iterator, which blocks, or as a stream through [`poll_next`](Self::poll_next),
/// which does not. Dropping it cancels the request. If the engine breaks down, the last event of
/// each text is [`Finish::Failed`] with the reason.
pub struct Ticket {
    id: RequestId,
    events: Receiver<Event>,
    waker: Arc<WakerSlot>,
    commands: Sender<Command>,
    board: Arc<Board>,
    /// The texts that have not ended.
    open: BTreeSet<u32>,
}

/// The engine's end of a ticket.
pub(crate) struct Outbox {
    events: Option<Sender<Event>>,
    waker: Arc<WakerSlot>,
    /// How many texts have not ended.
    open: u32,
}

/// Who wants to know that the queue has changed. Also the identity of a queue.
#[derive(Default)]
pub(crate) struct WakerSlot(Mutex<Option<Waker>>);

/// Both ends of the events of a request for this many texts, not yet tied to an engine.
pub(crate) fn mailbox(samples: u32) -> (Outbox, Inbox) {
    let (sender, events) = channel();
    let waker = Arc::new(WakerSlot::default());
    let outbox = Outbox { events: Some(sender), waker: waker.clone(), open: samples };
    (outbox, Inbox { events, waker, samples })
}

/// The reader's end before the request is taken.
pub(crate) struct Inbox {
    events: Receiver<Event>,
    waker: Arc<WakerSlot>,
    samples: u32,
}

impl Inbox {
    /// Becomes the ticket of a request that was taken.
    pub(crate) fn ticket(
        self,
        id: RequestId,
        commands: Sender<Command>,
        board: Arc<Board>,
    ) -> Ticket {
        let Self { events, waker, samples } = self;
        Ticket { id, events, waker, commands, board, open: (0..samples).collect() }
    }
}

impl Ticket {
    /// The request's id.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The next event, if it comes within `patience`.
    pub fn next_within(&mut self, patience: Duration) -> Poll<Option<Event>> {
        if self.open.is_empty() {
            return Poll::Ready(None);
        }
        match self.events.recv_timeout(patience) {
            Ok(event) => Poll::Ready(Some(self.note(event))),
            Err(RecvTimeoutError::Timeout) => Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => Poll::Ready(Some(self.breakdown())),
        }
    }

    /// The next event, if there is one; otherwise wakes the context's task when there is.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.open.is_empty() {
            return Poll::Ready(None);
        }
        // Before looking: an event that comes in between wakes the task for nothing, not too late.
        self.waker.set(context.waker().clone());
        match self.events.try_recv() {
            Ok(event) => Poll::Ready(Some(self.note(event))),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(Some(self.breakdown())),
        }
    }

    fn note(&mut self, event: Event) -> Event {
        if let Event::Finished { sample, .. } = &event {
            self.open.remove(sample);
        }
        event
    }

    /// The engine is gone and did not say goodbye to the next text.
    fn breakdown(&mut self) -> Event {
        let finish = Finish::Failed(self.board.reason());
        let sample = self.open.first().copied().expect("a ticket without texts is not read");
        let guesses = Guesses::default();
        self.note(Event::Finished { id: self.id, sample, finish, guesses })
    }
}

impl Iterator for Ticket {
    type Item = Event;

    /// Waits for the next event.
    fn next(&mut self) -> Option<Event> {
        if self.open.is_empty() {
            return None;
        }
        match self.events.recv() {
            Ok(event) => Some(self.note(event)),
            Err(_) => Some(self.breakdown()),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // An engine that is gone has nothing to cancel.
        let _ = self.commands.send(Command::Cancel(self.id, self.waker.clone()));
    }
}

impl Outbox {
    /// Whether this is the other end of the ticket that holds `waker`.
    pub(crate) fn belongs_to(&self, waker: &Arc<WakerSlot>) -> bool {
        Arc::ptr_eq(&self.waker, waker)
    }

    /// Hands an event over. A reader who has left does not matter.
    pub(crate) fn send(&mut self, event: Event) {
        self.open -= u32::from(matches!(event, Event::Finished { .. }));
        let _ = self.events.as_ref().map(|events| events.send(event));
        self.waker.wake();
    }
}

impl Outbox {
    /// Whether all texts have ended.
    pub(crate) fn is_done(&self) -> bool {
        self.open == 0
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.events = None;
        self.waker.wake();
    }
}

impl WakerSlot {
    fn set(&self, waker: Waker) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    fn wake(&self) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
