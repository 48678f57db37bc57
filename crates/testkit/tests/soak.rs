//! A minute of requests that come, go and are dropped, after half a one for things to settle: every
//! one that is not dropped finishes, and memory stays where it is.
#![cfg(feature = "slow")]

use std::time::{Duration, Instant};

use lapidary_backend_cpu::Cpu;
use lapidary_cache::Extent;
use lapidary_core::{Regime, TokenId};
use lapidary_engine::{
    Budget, Engine, Event, Finish, HostShelf, Limits, NoDrafts, Parts, Preemptive, Prefixes,
    Request, Scheduler, Swap, Ticket,
};
use lapidary_model::{NoHooks, Precision};
use lapidary_testkit::{Device, Loaded, Rng, repository};

const CONTEXT: u32 = 320;
const SLOTS: usize = 8;
/// Requests that are alive at any time.
const REQUESTS: usize = 64;
/// How long things settle.
const SETTLING: Duration = Duration::from_secs(30);
/// Over how long memory is averaged, after that and at the end: sections of saved prefixes come and
/// go, and with them some per cent of it.
const STRETCH: Duration = Duration::from_secs(15);
const DURATION: Duration = Duration::from_secs(90);
/// Most that memory may grow, in percent.
const GROWTH: u64 = 2;

fn parts() -> Parts<Cpu> {
    let path = repository("models/pebble/pebble-Q8_0.gguf");
    let source = lapidary_format::open(&path).unwrap_or_else(|e| panic!("{e}"));
    let extent = Extent { slots: SLOTS, context: CONTEXT, burst: 64 };
    let loaded = Loaded::of(Cpu::device(), &source, Precision::AsStored, extent, Regime::F16);
    let Loaded { ops, model, cache, .. } = loaded;
    let limits = Limits { slots: SLOTS, context: CONTEXT, burst: 64, step: 96, waiting: REQUESTS };
    let policy = Preemptive { most: 2, swap: Swap::Save };
    let scheduler = Scheduler::new(limits, Box::new(policy)).expect("the limits are sound");
    let budget = Budget { bytes: 8 << 20, least: 8 };
    Parts {
        ops,
        model: Box::new(model),
        cache: Box::new(cache),
        tower: None,
        drafter: Box::new(NoDrafts),
        hooks: Box::new(NoHooks),
        prefixes: Prefixes::new(Box::new(HostShelf::default()), budget),
        scheduler: scheduler.saving(64),
    }
}

/// Bytes of this process in memory.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number is the resident set") * 4096
}

#[derive(Default)]
struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: u64) {
        self.sum += value;
        self.count += 1;
    }

    fn value(&self) -> u64 {
        self.sum / self.count
    }
}

fn request(engine: &Engine, rng: &mut Rng) -> Request {
    let shared = (0..[0, 20, 150][rng.below(3)]).map(|i| TokenId(300 + i * i % 7000));
    let own = (0..1 + rng.below(100)).map(|_| TokenId(rng.below(5000) as u32));
    let prompt = shared.chain(own.collect::<Vec<_>>()).collect();
    let mut request = Request::new(engine.next_id(), prompt);
    request.max_tokens = Some(1 + rng.below(40) as u32);
    request.samples = 1 + u32::from(rng.below(6) == 0);
    request.priority = rng.below(3) as i32;
    request.sampling.temperature = 1.0;
    request
}

/// Whether a request that was not dropped has ended, as it should.
fn has_ended(ticket: &mut Ticket) -> bool {
    loop {
        match ticket.next_within(Duration::ZERO) {
            std::task::Poll::Pending => return false,
            std::task::Poll::Ready(None) => return true,
            std::task::Poll::Ready(Some(Event::Finished { finish, .. })) => {
                assert!(matches!(finish, Finish::Length), "{finish:?}");
            }
            std::task::Poll::Ready(Some(_)) => {}
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_minute_of_requests_leaves_memory_flat_and_nobody_waiting() {
    let began = Instant::now();
    let started =
        Engine::start(|| Ok::<_, std::convert::Infallible>(parts()), move || began.elapsed());
    let (engine, thread) = started.unwrap_or_else(|e| panic!("{e}"));
    let (mut rng, mut alive, mut ended, mut dropped) = (Rng(8), Vec::new(), 0, 0);
    let (begin, mut early, mut late) = (Instant::now(), Mean::default(), Mean::default());
    while begin.elapsed() < DURATION {
        while alive.len() < REQUESTS {
            let request = request(&engine, &mut rng);
            alive.push(engine.submit(request).unwrap_or_else(|e| panic!("{e}")));
        }
        if rng.below(4) == 0 {
            alive.swap_remove(rng.below(REQUESTS));
            dropped += 1;
        }
        let all = alive.len();
        alive.retain_mut(|ticket| !has_ended(ticket));
        ended += all - alive.len();
        match begin.elapsed() {
            time if time > DURATION - STRETCH => late.add(resident()),
            time if time > SETTLING && time < SETTLING + STRETCH => early.add(resident()),
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (before, after) = (early.value(), late.value());
    for mut ticket in alive {
        let end = ticket.by_ref().last();
        assert!(matches!(end, Some(Event::Finished { finish: Finish::Length, .. })), "{end:?}");
        ended += 1;
    }
    let stats = engine.stats();
    println!("{ended} ended, {dropped} dropped, {before} then {after} bytes, {stats:?}");
    assert_eq!(stats.work.submitted, (ended + dropped) as u64);
    assert!(ended > 100 && dropped > 100, "{ended} ended, {dropped} dropped");
    assert!(after <= before + before * GROWTH / 100, "memory grew from {before} to {after} bytes");
    drop(engine);
    assert!(thread.join().is_ok());
}
