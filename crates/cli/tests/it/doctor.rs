//! What the program says about the machine it runs on.

use crate::support::{object, said};

#[test]
fn the_machine_is_described_and_the_built_in_model_answers() {
    let report = object(&["doctor", "--json"]);
    let cpu = &report["cpu"];
    assert!(cpu["cores_allowed"].as_u64() > Some(0), "{report}");
    let isas = cpu["instruction_sets"].as_array().expect("a list");
    assert_eq!(isas.last(), Some(&cpu["kernels"]), "the most capable is used");
    for speed in ["read_bytes_per_s", "multiply_ops_per_s"] {
        assert!(cpu[speed].as_f64() > Some(1e8), "{speed} of {report}");
    }
    let answers = report["pebble"].as_array().expect("a list");
    assert_eq!(answers.len(), isas.len());
    assert!(answers.iter().all(|answer| answer["right"] == true), "{report}");
    for gpu in report["cuda"].as_array().expect("a list") {
        let usable = gpu["bytes"].as_u64() > Some(0);
        assert!(usable || gpu["unusable"].as_str().is_some_and(|why| !why.is_empty()), "{gpu}");
    }
}

#[test]
fn a_person_reads_the_same() {
    let shown = said(&["doctor"]);
    for line in ["processor", "cores", "instructions", "memory", "cuda", "answers as it should"] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
}
