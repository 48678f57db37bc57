//! Which files of a repository are meant.

use lapidary_hub::{Choice, ChooseError, Kind, label};

fn of(files: &[&str], quant: Option<&str>) -> Result<Choice, ChooseError> {
    let files: Vec<_> = files.iter().map(|file| (*file).to_owned()).collect();
    Choice::of(&files, quant)
}

fn first(files: &[&str], quant: Option<&str>) -> String {
    of(files, quant).expect("one is meant").files[0].clone()
}

const MANY: [&str; 9] = [
    "README.md",
    "gemma-it-Q4_K_M.gguf",
    "gemma-it-UD-Q4_K_M.gguf",
    "gemma-it-IQ4_XS.gguf",
    "gemma-it-Q8_0.gguf",
    "BF16/gemma-it-BF16-00001-of-00002.gguf",
    "BF16/gemma-it-BF16-00002-of-00002.gguf",
    "mmproj-F16.gguf",
    "mmproj-BF16.gguf",
];

#[test]
fn a_quantisation_is_found_in_either_case() {
    for (quant, file) in [
        ("q4_k_m", MANY[1]),
        ("UD-Q4_K_M", MANY[2]),
        ("ud-q4_k_m", MANY[2]),
        ("IQ4_XS", MANY[3]),
        ("q8_0", MANY[4]),
        ("bf16", MANY[5]),
        ("gemma-it-Q8_0.gguf", MANY[4]),
    ] {
        assert_eq!(first(&MANY, Some(quant)), file, "{quant}");
    }
}

#[test]
fn a_part_of_a_quantisation_is_none() {
    for quant in ["Q4", "K_M", "Q4_XS", "8_0", "gguf", "it-Q"] {
        assert!(matches!(of(&MANY, Some(quant)), Err(ChooseError::Unknown { .. })), "{quant}");
    }
}

#[test]
fn without_one_the_usual_is_meant_or_the_only() {
    assert_eq!(first(&MANY, None), MANY[1]);
    assert_eq!(first(&["m-IQ1_S.gguf", "mmproj-m.gguf"], None), "m-IQ1_S.gguf");
    let there = vec!["Q2_K".to_owned(), "Q8_0".to_owned()];
    assert_eq!(of(&["m-Q2_K.gguf", "m-Q8_0.gguf"], None), Err(ChooseError::Several { there }));
}

#[test]
fn a_file_in_parts_comes_whole() {
    let choice = of(&MANY, Some("BF16")).expect("both parts");
    assert_eq!(choice.kind, Kind::Gguf);
    assert_eq!(choice.files, MANY[5..7]);
    let missing = of(&MANY[..6], Some("BF16"));
    assert!(matches!(missing, Err(ChooseError::Parts { of: 2, found: 1, .. })), "{missing:?}");
}

#[test]
fn the_tower_comes_along() {
    let tower = |quant| of(&MANY, Some(quant)).expect("one").mmproj;
    assert_eq!(tower("Q8_0").as_deref(), Some("mmproj-F16.gguf"));
    assert_eq!(tower("BF16").as_deref(), Some("mmproj-BF16.gguf"));
    assert_eq!(of(&MANY[..5], Some("Q8_0")).expect("one").mmproj, None);
}

#[test]
fn safetensors_come_as_a_folder() {
    let shards = [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "original/weights.safetensors",
        "a.py",
    ];
    let choice = of(&shards, None).expect("a folder");
    assert_eq!((choice.kind, choice.files.len()), (Kind::Folder, 5));
    assert!(matches!(of(&shards[..2], None), Err(ChooseError::Parts { of: 2, .. })));
    assert_eq!(of(&shards[1..], None), Err(ChooseError::NoModel));
    assert_eq!(of(&["README.md"], Some("Q8_0")), Err(ChooseError::NoModel));
}

#[test]
fn labels_are_what_people_type() {
    for (file, said) in [
        ("a/gemma-4-Q4_K_M.gguf", "Q4_K_M"),
        ("gemma.q4_0.gguf", "q4_0"),
        ("gemma-UD-Q6_K_XL-00001-of-00004.gguf", "UD-Q6_K_XL"),
        ("gemma-3-270m.gguf", "gemma-3-270m"),
        ("mmproj-gemma-F16.gguf", "mmproj F16"),
        ("mmproj.gguf", "mmproj mmproj"),
        ("é", "é"),
    ] {
        assert_eq!(label(file), said, "{file}");
    }
}
