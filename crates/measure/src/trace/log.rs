//! What has been seen so far, and where it is written.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::chrome::{ChromeTrace, Slice};
use super::{Category, LayerRow, Totals};

/// Where a log goes. What is `None` is not collected.
#[derive(Default)]
pub struct Sinks {
    /// One event per operation, in Chrome's trace format.
    pub trace: Option<Box<dyn Write + Send>>,
    /// One line per row and layer; see [`LayerRow`].
    pub layers: Option<Box<dyn Write + Send>>,
    /// Gets the totals when the log is dropped, or the reason why a sink could not be written.
    pub totals: Option<Sender<io::Result<Totals>>>,
    /// Whether every result is read back and looked at: see [`Log::fault`].
    pub guard: bool,
}

/// Shared by a [`Traced`](super::Traced) backend and a [`LayerWatch`](super::LayerWatch).
#[derive(Clone)]
pub struct Log(Rc<RefCell<Inner>>);

struct Inner {
    clock: Box<dyn Fn() -> Duration>,
    trace: Option<ChromeTrace>,
    layers: Option<Box<dyn Write + Send>>,
    report: Option<Sender<io::Result<Totals>>>,
    guard: bool,
    totals: Totals,
    step: u64,
    layer: Option<u32>,
    fault: Option<String>,
    broken: Option<io::Error>,
}

impl Log {
    /// An empty log. `clock` tells the time since some fixed moment.
    pub fn new(clock: impl Fn() -> Duration + 'static, sinks: Sinks) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            clock: Box::new(clock),
            trace: sinks.trace.map(ChromeTrace::new),
            layers: sinks.layers,
            report: sinks.totals,
            guard: sinks.guard,
            totals: Totals::default(),
            step: 0,
            layer: None,
            fault: None,
            broken: None,
        })))
    }

    /// Totals so far.
    pub fn totals(&self) -> Totals {
        self.0.borrow().totals.clone()
    }

    /// The first result that was not finite, in words that name step, layer and operation. Only a
    /// log whose sinks ask for a guard looks.
    pub fn fault(&self) -> Option<String> {
        self.0.borrow().fault.clone()
    }

    pub(super) fn now(&self) -> Duration {
        (self.0.borrow().clock)()
    }

    pub(super) fn guards(&self) -> bool {
        self.0.borrow().guard
    }

    pub(super) fn wants_layers(&self) -> bool {
        self.0.borrow().layers.is_some()
    }

    pub(super) fn step(&self) -> u64 {
        self.0.borrow().step
    }

    pub(super) fn begin_step(&self) {
        self.0.borrow_mut().step += 1;
    }

    /// Operations from here on belong to this layer, or to none.
    pub(super) fn enter(&self, layer: Option<u32>) {
        self.0.borrow_mut().layer = layer;
    }

    pub(super) fn op(&self, category: Category, op: &'static str, began: Duration) {
        let time = self.now().saturating_sub(began);
        let inner = &mut *self.0.borrow_mut();
        inner.totals.add(category, op, time);
        if let Some(trace) = &mut inner.trace {
            let (layer, step) = (inner.layer, inner.step);
            let wrote = trace.slice(&Slice { op, category, layer, step, began, time });
            note(&mut inner.broken, wrote);
        }
    }

    /// Looks at a result of `op`.
    pub(super) fn look(&self, op: &str, values: &[f32]) {
        let inner = &mut *self.0.borrow_mut();
        let Some(value) = values.iter().find(|value| !value.is_finite()) else { return };
        let place = match inner.layer {
            Some(layer) => format!("in layer {layer}"),
            None => "outside the layers".to_owned(),
        };
        let step = inner.step;
        inner.fault.get_or_insert_with(|| format!("{op} {place} gave {value} in step {step}"));
    }

    pub(super) fn layer_row(&self, row: &LayerRow) {
        let inner = &mut *self.0.borrow_mut();
        if let Some(layers) = &mut inner.layers {
            let wrote = writeln!(layers, "{row}");
            note(&mut inner.broken, wrote);
        }
    }
}

/// The first failure is the one to tell.
fn note(broken: &mut Option<io::Error>, wrote: io::Result<()>) {
    if let Err(error) = wrote {
        broken.get_or_insert(error);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(trace) = &mut self.trace {
            note(&mut self.broken, trace.close());
        }
        if let Some(layers) = &mut self.layers {
            note(&mut self.broken, layers.flush());
        }
        if let Some(report) = &self.report {
            let outcome =
                self.broken.take().map_or_else(|| Ok(std::mem::take(&mut self.totals)), Err);
            // Whoever asked may have stopped waiting.
            let _ = report.send(outcome);
        }
    }
}
