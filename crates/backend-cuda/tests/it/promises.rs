//! Every promise of a backend, as the suite of all backends states it.

use crate::common::device;
use lapidary_backend_cuda::Cuda;
use lapidary_testkit::conformance;

fn check(promise: impl FnOnce(&Cuda)) {
    if let Some(cuda) = device() {
        promise(&cuda);
        lapidary_core::Backend::finish(&cuda).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn matrices_reproduce_the_vectors() {
    check(conformance::matrices_reproduce_the_vectors);
}

#[test]
fn curves_reproduce_the_vectors() {
    check(conformance::curves_reproduce_the_vectors);
}

#[test]
fn matrices_side_by_side_are_each_alone() {
    check(conformance::matrices_side_by_side_are_each_alone);
}

#[test]
fn quantised_matrices_follow_the_law() {
    check(conformance::quantised_matrices_follow_the_law);
}

#[test]
fn float_matrices_follow_the_law() {
    check(conformance::float_matrices_follow_the_law);
}

#[test]
fn embeddings_are_decoded_exactly() {
    check(conformance::embeddings_are_decoded_exactly);
}

#[test]
fn special_inputs_follow_the_law() {
    check(conformance::special_inputs_follow_the_law);
}

#[test]
fn extreme_codes_follow_the_law() {
    check(conformance::extreme_codes_follow_the_law);
}

#[test]
fn row_ops_agree_with_their_definition() {
    check(conformance::row_ops_agree_with_their_definition);
}

#[test]
fn fused_ops_are_their_definition() {
    check(conformance::fused_ops_are_their_definition);
}

#[test]
fn routes_agree_with_their_definition() {
    check(conformance::routes_agree_with_their_definition);
}

#[test]
fn experts_are_their_definition() {
    check(conformance::experts_are_their_definition);
}

#[test]
fn no_row_feels_its_company() {
    check(conformance::no_row_feels_its_company);
}

#[test]
fn attention_agrees_with_its_definition() {
    check(conformance::attention_agrees_with_its_definition);
}

#[test]
fn attention_keeps_the_row_law() {
    check(conformance::attention_keeps_the_row_law);
}
