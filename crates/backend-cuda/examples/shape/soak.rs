//! Minutes of mixed load through the engine: requests of all lengths come and go, some are given up.
//! Free memory of the device must not shrink.

use std::task::Poll;
use std::time::{Duration, Instant};

use lapidary_backend_cuda::{Cuda, OpenError};
use lapidary_cache::Extent;
use lapidary_core::{Regime, TokenId};
use lapidary_engine::{
    Engine, FirstCome, Limits, NoDrafts, Parts, Prefixes, Request, Scheduler, Ticket,
};
use lapidary_model::{NoHooks, Precision};
use lapidary_testkit::{Loaded, Rng};

use crate::made_up::MadeUp;

const MINUTES: f64 = 3.0;
const EXTENT: Extent = Extent { slots: 32, context: 8192, burst: 2048 };

/// Loads the shape and puts it under load; `watch` sees the same device's memory.
pub(crate) fn run(
    watch: &Cuda,
    source: MadeUp,
    open: impl FnOnce() -> Result<Cuda, OpenError> + Send + 'static,
) {
    let limits = Limits {
        slots: EXTENT.slots,
        context: EXTENT.context,
        burst: EXTENT.burst as usize,
        step: EXTENT.burst as usize,
        waiting: 1 << 16,
    };
    let build = move || open().map(|cuda| parts(cuda, &source, limits));
    let start = Instant::now();
    let (engine, thread) =
        Engine::start(build, move || start.elapsed()).unwrap_or_else(|e| panic!("{e}"));
    let mut rng = Rng(41);
    let mut tickets: Vec<Ticket> = Vec::new();
    let (mut sent, mut given_up, mut finished) = (0_u32, 0_u32, 0_u32);
    let start = Instant::now();
    let mut next_report = 0.0;
    let mut settled = None;
    while start.elapsed().as_secs_f64() < 60.0 * MINUTES {
        if tickets.len() < 48 {
            tickets
                .push(engine.submit(request(&engine, &mut rng)).unwrap_or_else(|e| panic!("{e}")));
            sent += 1;
        }
        let before = tickets.len();
        tickets.retain_mut(|ticket| {
            loop {
                match ticket.next_within(Duration::ZERO) {
                    Poll::Ready(Some(_)) => {}
                    Poll::Ready(None) => return false,
                    Poll::Pending => return true,
                }
            }
        });
        finished += (before - tickets.len()) as u32;
        if rng.below(40) == 0 && !tickets.is_empty() {
            tickets.swap_remove(rng.below(tickets.len()));
            given_up += 1;
        }
        std::thread::sleep(Duration::from_millis(5));
        let seconds = start.elapsed().as_secs_f64();
        if seconds >= next_report {
            let free = watch.memory().0 >> 20;
            println!(
                "{seconds:>4.0} s: {sent} sent, {finished} done, {given_up} given up; {free} MiB free"
            );
            next_report += 15.0;
            if seconds > 60.0 {
                settled.get_or_insert(free);
            }
        }
    }
    let stats = engine.stats();
    println!("{stats:?}; {:?}", engine.health());
    drop((tickets, engine));
    let free = watch.memory().0 >> 20;
    println!("free after a minute {settled:?} MiB, at the end {free} MiB");
    let _ = thread.join();
}

fn parts(cuda: Cuda, source: &MadeUp, limits: Limits) -> Parts<Cuda> {
    let loaded = Loaded::of(cuda, source, Precision::AsStored, EXTENT, Regime::F16);
    let scheduler = Scheduler::new(limits, Box::new(FirstCome));
    Parts {
        ops: loaded.ops,
        model: Box::new(loaded.model),
        cache: Box::new(loaded.cache),
        tower: None,
        drafter: Box::new(NoDrafts),
        prefixes: Prefixes::none(),
        hooks: Box::new(NoHooks),
        scheduler: scheduler.unwrap_or_else(|e| panic!("{e}")),
    }
}

/// Mostly short prompts and texts, some long ones.
fn request(engine: &Engine, rng: &mut Rng) -> Request {
    let longest = if rng.below(8) == 0 { 6000 } else { 600 };
    let prompt = (0..1 + rng.below(longest)).map(|_| TokenId(rng.below(200_000) as u32)).collect();
    Request {
        max_tokens: Some(1 + rng.below(300) as u32),
        ..Request::new(engine.next_id(), prompt)
    }
}
