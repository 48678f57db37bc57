//! The handle of a running engine.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lapidary_core::{Backend, Patches, TokenId};
use thiserror::Error;

use crate::driver::{Board, Command, Driver, Parts};
use crate::ticket::mailbox;
use crate::{LookError, PrefixStats, Refused, Request, RequestId, SoftRows, Stats, Ticket, Times};

/// A running engine. Clones are handles of the same one; it stops when the last handle and the
/// last ticket are gone.
#[derive(Clone)]
pub struct Engine {
    commands: Sender<Command>,
    board: Arc<Board>,
    ids: Arc<AtomicU64>,
}

/// Whether an engine works.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Health {
    /// It takes requests.
    Ready,
    /// It has broken down, for this reason, and stays down.
    Failed(String),
}

/// What an engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// What the scheduler counted.
    pub work: Stats,
    /// What became of saved prefixes.
    pub prefixes: PrefixStats,
    /// Where the time went. Of delivering events, that of the last step is not yet in it.
    pub times: Times,
}

/// Why an engine did not start.
#[derive(Debug, Error)]
pub enum StartError<E> {
    /// The system gave no thread.
    #[error("no thread for the engine: {0}")]
    Thread(#[source] std::io::Error),
    /// The parts could not be built.
    #[error(transparent)]
    Build(E),
    /// Building them panicked.
    #[error("the engine panicked while it was being built: {0}")]
    Panicked(String),
}

/// Why an engine did not take a request.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SubmitError {
    /// The scheduler refused it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The prompt holds a token that the model does not know.
    #[error("the prompt holds token {}, but the vocabulary has {vocab} entries", token.0)]
    UnknownToken {
        /// The token.
        token: TokenId,
        /// Entries of the vocabulary.
        vocab: usize,
    },
    /// Soft rows are not what the model reads.
    #[error("the soft rows are {found} wide and this model's are {width}: use its own tower")]
    SoftWidth {
        /// Width of the rows given.
        found: usize,
        /// Width of a hidden state.
        width: usize,
    },
    /// The engine has broken down.
    #[error("the engine is down and must be started anew: {reason}")]
    Down {
        /// What happened to it.
        reason: String,
    },
}

impl Engine {
    /// Starts a thread, builds the engine's parts in it, and waits until they are ready. The
    /// handle of the thread is for those who want to wait until the engine has let go of the
    /// device. `clock` tells the time since some fixed moment.
    ///
    /// # Errors
    /// [`StartError::Build`] with what `build` returned, if it did not succeed.
    pub fn start<B: Backend, E: Send + 'static>(
        build: impl FnOnce() -> Result<Parts<B>, E> + Send + 'static,
        clock: impl FnMut() -> Duration + Send + 'static,
    ) -> Result<(Self, JoinHandle<()>), StartError<E>> {
        let (commands, inbox) = channel();
        let (ready, built) = channel();
        let board = Arc::new(Board::default());
        let posted = board.clone();
        let body = move || match catch_unwind(AssertUnwindSafe(build)) {
            Ok(Ok(parts)) => {
                // Whoever started the engine waits for this, unless their thread has died; then
                // there are no handles and the engine stops at once.
                let _ = ready.send(Ok(()));
                live(Driver::new(parts, inbox, posted.clone(), clock), &posted);
            }
            Ok(Err(error)) => drop(ready.send(Err(StartError::Build(error)))),
            Err(panic) => drop(ready.send(Err(StartError::Panicked(message(&*panic))))),
        };
        let name = "lapidary-engine".to_owned();
        let thread = thread::Builder::new().name(name).spawn(body).map_err(StartError::Thread)?;
        built.recv().expect("the thread reports before it ends")?;
        Ok((Self { commands, board, ids: Arc::default() }, thread))
    }

    /// An id that no other call of any clone returns.
    pub fn next_id(&self) -> RequestId {
        RequestId(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Hands a request over and waits for the reply, for as long as the step under way takes.
    ///
    /// # Errors
    /// [`SubmitError`], with nothing done.
    pub fn submit(&self, request: Request) -> Result<Ticket, SubmitError> {
        let id = request.id;
        let (outbox, inbox) = mailbox(request.samples);
        let (reply, answer) = channel();
        let down = || SubmitError::Down { reason: self.board.reason() };
        let command = Command::Submit { request: Box::new(request), outbox, reply };
        self.commands.send(command).map_err(|_| down())?;
        answer.recv().map_err(|_| down())??;
        Ok(inbox.ticket(id, self.commands.clone(), self.board.clone()))
    }

    /// Looks at a picture, between steps, and waits for what it becomes: the rows of a
    /// [`Soft`](crate::Soft) range.
    ///
    /// # Errors
    /// [`LookError`], with nothing done.
    pub fn look(&self, picture: Patches) -> Result<SoftRows, LookError> {
        let (reply, answer) = channel();
        let down = || LookError::Down { reason: self.board.reason() };
        let command = Command::Look { picture: Box::new(picture), reply };
        self.commands.send(command).map_err(|_| down())?;
        answer.recv().map_err(|_| down())?
    }

    /// Whether the engine takes requests.
    pub fn health(&self) -> Health {
        match self.board.fault() {
            None => Health::Ready,
            Some(reason) => Health::Failed(reason.to_owned()),
        }
    }

    /// Counters as of the last step or command.
    pub fn stats(&self) -> EngineStats {
        self.board.stats()
    }
}

/// Works until nobody is left to work for, or until something breaks. Then the driver, dropped,
/// closes every ticket's queue, and tickets find the reason on the board.
fn live<B: Backend, C: FnMut() -> Duration>(mut driver: Driver<B, C>, board: &Board) {
    match catch_unwind(AssertUnwindSafe(|| driver.serve())) {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => board.fail(failure.to_string()),
        Err(panic) => board.fail(format!("the engine panicked: {}", message(&*panic))),
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}
