//! Rough speed of Pebble on this machine: `speed FILE [plain|avx2|avx512-vnni] [threads]`.
use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_cache::Extent;
use lapidary_core::*;
use lapidary_model::{NoHooks, Precision};
use lapidary_testkit::Loaded;
use std::time::Instant;
fn main() {
    let args: Vec<_> = std::env::args().collect();
    let isa = args.get(2).map_or_else(Isa::best, |s| s.parse().unwrap());
    let threads = args.get(3).map_or(2, |s| s.parse().unwrap());
    let t = Instant::now();
    let source = lapidary_format::open(std::path::Path::new(&args[1])).unwrap();
    let extent = Extent { slots: 16, context: 2048, burst: 512 };
    let ops = Cpu::new(isa, threads).unwrap();
    println!("{}", ops.name());
    let mut m = Loaded::of(ops, &source, Precision::AsStored, extent, Regime::F16);
    println!("load {:?}", t.elapsed());
    let toks: Vec<_> = (0..512).map(|i| TokenId(300 + i * 7 % 5000)).collect();
    for _ in 0..3 {
        let t = Instant::now();
        m.read(SlotId(0), &toks, 512, 511, Want::LOGITS, &mut NoHooks);
        println!("prefill 512: {:.0} tok/s", 512.0 / t.elapsed().as_secs_f64());
    }
    for slots in [1u32, 8] {
        for _ in 0..2 {
            for s in 0..slots {
                m.cache.clear(SlotId(s));
            }
            let t = Instant::now();
            let n = 200;
            for i in 0..n {
                let mut b = Batch::builder();
                for s in 0..slots {
                    b = b.chain(SlotId(s), i, &[TokenId(400 + i)], |_| Want::LOGITS).unwrap();
                }
                m.run(&b.build());
                for s in 0..slots {
                    m.commit(SlotId(s), 1);
                }
            }
            println!(
                "decode x{slots}: {:.0} tok/s",
                f64::from(n * slots) / t.elapsed().as_secs_f64()
            );
        }
    }
}
