//! Every promise of a backend, for the CPU with each instruction set and for the naive twins.

use std::thread;

use lapidary_backend_cpu::{Cpu, Isa, Reference};
use lapidary_core::{Backend, BlockType, Matrix};
use lapidary_testkit::{Rng, conformance, random_weights};

/// A device of each instruction set that is here, with one, two or three threads.
fn each_isa(check: impl Fn(&Cpu)) {
    for (isa, threads) in Isa::ALL.into_iter().zip([2, 3, 1]) {
        if isa.is_here() {
            check(&Cpu::new(isa, threads).expect("the instruction set is here"));
        } else {
            println!("skipped: this machine has no {isa}");
        }
    }
}

#[test]
fn matrices_reproduce_the_vectors() {
    each_isa(conformance::matrices_reproduce_the_vectors);
}

#[test]
fn curves_reproduce_the_vectors() {
    each_isa(conformance::curves_reproduce_the_vectors);
}

#[test]
fn norms_reproduce_the_vectors() {
    each_isa(conformance::norms_reproduce_the_vectors);
}

#[test]
fn matrices_side_by_side_are_each_alone() {
    each_isa(conformance::matrices_side_by_side_are_each_alone);
}

#[test]
fn quantised_matrices_follow_the_law() {
    each_isa(conformance::quantised_matrices_follow_the_law);
}

#[test]
fn float_matrices_follow_the_law() {
    each_isa(conformance::float_matrices_follow_the_law);
}

#[test]
fn law_is_close_to_the_truth() {
    conformance::law_is_close_to_the_truth();
}

#[test]
fn embeddings_are_decoded_exactly() {
    each_isa(conformance::embeddings_are_decoded_exactly);
}

#[test]
fn special_inputs_follow_the_law() {
    each_isa(conformance::special_inputs_follow_the_law);
}

#[test]
fn extreme_codes_follow_the_law() {
    each_isa(conformance::extreme_codes_follow_the_law);
}

#[test]
fn row_ops_agree_with_their_definition() {
    each_isa(conformance::row_ops_agree_with_their_definition);
}

#[test]
fn routes_agree_with_their_definition() {
    each_isa(conformance::routes_agree_with_their_definition);
}

#[test]
fn experts_are_their_definition() {
    each_isa(conformance::experts_are_their_definition);
}

#[test]
fn fused_ops_are_their_definition() {
    each_isa(conformance::fused_ops_are_their_definition);
    conformance::fused_ops_are_their_definition(&Reference);
}

#[test]
fn a_heads_likeliest_are_those_of_its_logits() {
    each_isa(conformance::a_heads_likeliest_are_those_of_its_logits);
}

#[test]
fn attention_agrees_with_its_definition() {
    each_isa(conformance::attention_agrees_with_its_definition);
}

#[test]
fn attention_keeps_the_row_law() {
    each_isa(conformance::attention_keeps_the_row_law);
}

#[test]
fn no_row_feels_its_company() {
    each_isa(conformance::no_row_feels_its_company);
    conformance::no_row_feels_its_company(&Reference);
}

/// Three devices with more threads than the machine has cores, driven from three threads at once.
#[test]
fn busy_pools_compute_the_same() {
    let (rows, cols, count) = (400, 256, 6);
    let mut rng = Rng(91);
    let bytes = random_weights(BlockType::Q4_K, rows * cols, 0.06, &mut rng);
    let x: Vec<f32> = (0..count * cols).map(|_| rng.signed()).collect();
    let product = |cpu: &Cpu| {
        let stored =
            Matrix { block: BlockType::Q4_K, stack: 1, rows, cols, bytes: (&bytes[..]).into() };
        let weight = cpu.matrix(stored).expect("the CPU has kernels for Q4_K");
        cpu.read(&cpu.linear(&cpu.upload(&x, cols), &weight)).expect("the CPU works")
    };
    let cpu = |threads| Cpu::new(Isa::best(), threads).expect("the best is here");
    let expected = product(&cpu(1));
    thread::scope(|scope| {
        for threads in [2, 4, 7] {
            let (product, expected) = (&product, &expected);
            scope.spawn(move || {
                let cpu = cpu(threads);
                for round in 0..60 {
                    assert_eq!(&product(&cpu), expected, "{threads} threads, round {round}");
                }
            });
        }
    });
}
