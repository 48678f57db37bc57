//! What the engine's thread does: take commands, run steps, deliver events.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lapidary_core::{Backend, KvCache, Patches};
use lapidary_model::vision::Tower;
use lapidary_model::{Hooks, Model, StepError};

use crate::look::look;
use crate::ticket::{Outbox, WakerSlot};
use crate::{
    Aids, Drafter, EngineStats, LookError, Phase, Prefixes, Request, RequestId, Scheduler,
    SoftRows, StepWatch, SubmitError, Target, Times, turn_with,
};

/// What an engine is made of. It never leaves the thread it was built in.
pub struct Parts<B: Backend> {
    /// The device.
    pub ops: B,
    /// The model, on the device.
    pub model: Box<dyn Model<B>>,
    /// An empty cache, sized for the scheduler's limits and the model's layers.
    pub cache: Box<dyn KvCache<B>>,
    /// Who looks at pictures, if the model can.
    pub tower: Option<Box<dyn Tower<B>>>,
    /// Who guesses.
    pub drafter: Box<dyn Drafter<B>>,
    /// What is kept of prefixes that no slot holds. To be filled, it takes a scheduler that is
    /// [`saving`](Scheduler::saving).
    pub prefixes: Prefixes,
    /// Who watches the layers.
    pub hooks: Box<dyn Hooks<B>>,
    /// An idle scheduler.
    pub scheduler: Scheduler,
}

/// What handles and tickets ask of the thread.
pub(crate) enum Command {
    Submit {
        request: Box<Request>,
        outbox: Outbox,
        reply: Sender<Result<(), SubmitError>>,
    },
    Look {
        picture: Box<Patches>,
        reply: Sender<Result<SoftRows, LookError>>,
    },
    /// Says whose ticket is gone, so that a later request of the same id is not meant.
    Cancel(RequestId, Arc<WakerSlot>),
}

/// What everybody may look at: the thread writes, handles and tickets read.
#[derive(Default)]
pub(crate) struct Board {
    fault: OnceLock<String>,
    stats: Mutex<EngineStats>,
}

impl Board {
    /// Why the engine broke down, if it did.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Why the engine does not answer.
    pub(crate) fn reason(&self) -> String {
        self.fault().unwrap_or("the engine has stopped").to_owned()
    }

    pub(crate) fn stats(&self) -> EngineStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why the engine broke down. The first reason stays.
    pub(crate) fn fail(&self, reason: String) {
        let _ = self.fault.set(reason);
    }

    fn publish(&self, stats: EngineStats) {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}

/// The thread's belongings.
pub(crate) struct Driver<B: Backend, C> {
    parts: Parts<B>,
    commands: Receiver<Command>,
    outboxes: HashMap<RequestId, Outbox>,
    board: Arc<Board>,
    clock: C,
    times: Times,
    /// When the requests came that have had no slot yet.
    arrivals: HashMap<RequestId, Duration>,
}

/// Measures one step.
struct Stopwatch<'a, C> {
    clock: &'a mut C,
    /// The last moment that was told.
    at: Duration,
    times: &'a mut Times,
    arrivals: &'a mut HashMap<RequestId, Duration>,
}

impl<C: FnMut() -> Duration> StepWatch for Stopwatch<'_, C> {
    fn admitted(&mut self, id: RequestId) {
        // Only the first of a request's texts ends its wait.
        if let Some(arrived) = self.arrivals.remove(&id) {
            self.times.queue.note((self.clock)().saturating_sub(arrived).as_secs_f64());
        }
    }

    fn passed(&mut self, phase: Phase) {
        let now = (self.clock)();
        self.times.add(phase, now.saturating_sub(self.at));
        self.at = now;
    }
}

impl<B: Backend, C: FnMut() -> Duration> Driver<B, C> {
    pub(crate) fn new(
        parts: Parts<B>,
        commands: Receiver<Command>,
        board: Arc<Board>,
        clock: C,
    ) -> Self {
        let (times, arrivals) = (Times::default(), HashMap::new());
        Self { parts, commands, outboxes: HashMap::new(), board, clock, times, arrivals }
    }

    /// Works until every handle and ticket is gone.
    pub(crate) fn serve(&mut self) -> Result<(), StepError> {
        while self.take_commands() {
            let turned = self.step();
            if let Err(failure) = &turned {
                // First, so that whoever reads of the failure finds the engine's health changed.
                self.board.fail(failure.to_string());
            }
            let before = (self.clock)();
            self.report();
            let after = (self.clock)();
            self.times.add(Phase::Deliver, after.saturating_sub(before));
            turned?;
        }
        Ok(())
    }

    /// Makes one step and takes its time.
    fn step(&mut self) -> Result<(), StepError> {
        let Parts { ops, model, cache, drafter, prefixes, hooks, scheduler, .. } = &mut self.parts;
        let began = (self.clock)();
        let (clock, times, arrivals) = (&mut self.clock, &mut self.times, &mut self.arrivals);
        let mut watch = Stopwatch { clock, at: began, times, arrivals };
        let target = Target { ops, model: &**model, cache: &mut **cache };
        let (drafter, hooks) = (&mut **drafter, &mut **hooks);
        let before = scheduler.stats().rows;
        let ran =
            turn_with(scheduler, target, Aids { drafter, prefixes, hooks, watch: &mut watch });
        let took = watch.at.saturating_sub(began);
        scheduler.handle_step_time(took);
        if ran? {
            self.times.step.note(took.as_secs_f64());
            self.times.rows.note((scheduler.stats().rows - before) as f64);
        }
        Ok(())
    }

    /// Takes the commands that have come; waits for more while there is nothing else to do.
    /// Returns whether anybody is left to work for. Texts under way wait for one look at most.
    fn take_commands(&mut self) -> bool {
        let mut looked = false;
        loop {
            let scheduler = &self.parts.scheduler;
            let idle = scheduler.is_idle() && scheduler.is_settled();
            if looked && !idle {
                return true;
            }
            let command = match self.commands.try_recv() {
                Err(TryRecvError::Empty) if idle => self.commands.recv().ok(),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => None,
                Ok(command) => Some(command),
            };
            let Some(command) = command else { return false };
            looked = matches!(command, Command::Look { .. });
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit { request, outbox, reply } => {
                let id = request.id;
                let taken = self.submit(*request);
                if taken.is_ok() {
                    self.outboxes.insert(id, outbox);
                    self.arrivals.insert(id, (self.clock)());
                }
                self.report();
                // Whoever asked waits for the reply, unless their thread has died.
                let _ = reply.send(taken);
            }
            Command::Look { picture, reply } => {
                let Parts { ops, tower, .. } = &self.parts;
                let _ = reply.send(look(ops, tower.as_deref(), &picture));
            }
            Command::Cancel(id, waker) => {
                if self.outboxes.get(&id).is_some_and(|outbox| outbox.belongs_to(&waker)) {
                    self.outboxes.remove(&id);
                    self.arrivals.remove(&id);
                    self.parts.scheduler.cancel(id);
                    self.report();
                }
            }
        }
    }

    fn submit(&mut self, request: Request) -> Result<(), SubmitError> {
        let vocab = self.parts.model.vocab();
        if let Some(&token) = request.prompt.iter().find(|token| token.index() >= vocab) {
            return Err(SubmitError::UnknownToken { token, vocab });
        }
        let width = self.parts.model.hidden();
        if let Some(soft) = request.soft.iter().find(|soft| soft.rows.width() != width) {
            return Err(SubmitError::SoftWidth { found: soft.rows.width(), width });
        }
        Ok(self.parts.scheduler.submit(request)?)
    }

    /// Publishes the statistics, then delivers the events, so that whoever has read an event
    /// finds it counted.
    fn report(&mut self) {
        let work = self.parts.scheduler.stats();
        let prefixes = self.parts.prefixes.stats();
        self.board.publish(EngineStats { work, prefixes, times: self.times });
        while let Some(event) = self.parts.scheduler.poll_event() {
            let id = event.id();
            let Some(outbox) = self.outboxes.get_mut(&id) else { continue };
            outbox.send(event);
            if outbox.is_done() {
                self.outboxes.remove(&id);
                self.arrivals.remove(&id);
            }
        }
    }
}
