//! Turns requests into batches and batches into tokens, for one request or a thousand.
//!
//! ```text
//! submit ─► Scheduler ─poll_batch─► Batch ─► run(model, cache) ─► Outputs
//! cancel ─►     ▲  ▲                                                │
//!               │  └──────────────── handle_outputs ◄───────────────┘
//!               │ handle_drafts ◄─ Drafter ◄─ poll_drafts
//!               ├─poll_admission─► keep, fork or restore entries, in the cache
//!               ├─poll_cache_op─► commit / clear / save, to the cache
//!               └─poll_event────► token / finished, to whoever asked
//! ```
//!
//! [`Scheduler`] is a state machine: no clock, no thread, no device. [`turn()`] is the only place
//! where it meets a model. [`Engine`] is the handle of a thread that calls `turn` for as long as
//! there is work.
//!
//! What a request's text is depends on its prompt, its [`Sampling`] and the model, and on nothing
//! else: not on its company, how its prompt was cut, when it came, or what was guessed.
#![forbid(unsafe_code)]

mod admission;
mod driver;
mod engine;
mod look;
mod next;
mod pooling;
mod prefixes;
mod request;
mod returned;
mod scheduler;
mod sequence;
mod share;
mod shelf;
mod soft;
mod ticket;
mod timing;
mod turn;

mod draft;
mod limits;
mod policy;
mod sampling;

pub use admission::{Admission, Way};
pub use draft::{
    AssistantDrafter, Draft, DraftCall, DraftShape, Drafter, Drafting, NgramDrafter, NoDrafts,
    Pace, SmallModelDrafter, Target,
};
pub use driver::Parts;
pub use engine::{Engine, EngineStats, Health, StartError, SubmitError};
pub use limits::{BadLimits, Limits};
pub use look::LookError;
pub use policy::{FirstCome, Policy, Preemptive, Priority, Seen, ShortestPrompt, Swap};
pub use prefixes::{Budget, PrefixStats, Prefixes};
pub use request::{Event, Finish, Guesses, Pooling, Refused, Request, RequestId};
pub use sampling::{BadSampling, Dry, Logprobs, NoChoice, Sampling, Xtc, logprobs};
pub use scheduler::{CacheOp, Scheduler, Stats};
pub use shelf::{HostShelf, Label, SectionKey, Shelf};
pub use soft::{BadSoft, Soft, SoftRows};
pub use ticket::Ticket;
pub use timing::{Histogram, NoWatch, Phase, StepWatch, Times};
pub use turn::{Aids, turn, turn_with};
