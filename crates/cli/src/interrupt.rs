//! What Ctrl-C does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, INTERRUPTED};

/// Ctrl-C: stops an answer while there is one, else the program.
pub(crate) struct Interrupt {
    answering: Arc<AtomicBool>,
    pressed: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on Ctrl-C is noticed.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let interrupt = Self { answering: Arc::default(), pressed: Arc::default() };
        let (answering, pressed) = (interrupt.answering.clone(), interrupt.pressed.clone());
        let handler = move || {
            if answering.load(Ordering::Relaxed) {
                pressed.store(true, Ordering::Relaxed);
            } else {
                std::process::exit(i32::from(INTERRUPTED));
            }
        };
        ctrlc::set_handler(handler).map_err(|e| Failure::work("signals", e))?;
        Ok(interrupt)
    }

    /// Runs work that looks at whether Ctrl-C was pressed since it began.
    pub(crate) fn during<T>(&self, work: impl FnOnce(&AtomicBool) -> T) -> T {
        self.pressed.store(false, Ordering::Relaxed);
        self.answering.store(true, Ordering::Relaxed);
        let done = work(&self.pressed);
        self.answering.store(false, Ordering::Relaxed);
        done
    }
}
