//! What is written is read back the same.

use std::collections::HashSet;

use lapidary_core::{BlockType, Strings, TensorInfo, TensorSource};
use lapidary_format::gguf::{GgufArray, GgufValue, WriteError, Writer};
use lapidary_format::{Fault, Gguf};
use proptest::collection::vec;
use proptest::prelude::*;

type Values = Vec<(String, GgufValue)>;
type Tensors = Vec<(String, TensorInfo)>;

fn value() -> impl Strategy<Value = GgufValue> {
    let signed = 0..=i64::MAX as u64;
    prop_oneof![
        any::<u8>().prop_map(GgufValue::U8),
        any::<i8>().prop_map(GgufValue::I8),
        any::<u16>().prop_map(GgufValue::U16),
        any::<i16>().prop_map(GgufValue::I16),
        any::<u32>().prop_map(GgufValue::U32),
        any::<i32>().prop_map(GgufValue::I32),
        signed.prop_map(GgufValue::U64),
        any::<i64>().prop_map(GgufValue::I64),
        any::<f32>().prop_map(GgufValue::F32),
        any::<f64>().prop_map(GgufValue::F64),
        any::<bool>().prop_map(GgufValue::Bool),
        any::<String>().prop_map(GgufValue::Str),
        array().prop_map(GgufValue::Array),
    ]
}

fn array() -> impl Strategy<Value = GgufArray> {
    let flat = prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(GgufArray::U8),
        vec(any::<i8>(), 0..9).prop_map(GgufArray::I8),
        vec(any::<u16>(), 0..9).prop_map(GgufArray::U16),
        vec(any::<i16>(), 0..9).prop_map(GgufArray::I16),
        vec(any::<u32>(), 0..9).prop_map(GgufArray::U32),
        vec(any::<i32>(), 0..9).prop_map(GgufArray::I32),
        vec(0..=i64::MAX as u64, 0..9).prop_map(GgufArray::U64),
        vec(any::<i64>(), 0..9).prop_map(GgufArray::I64),
        vec(any::<f32>(), 0..9).prop_map(GgufArray::F32),
        vec(any::<f64>(), 0..9).prop_map(GgufArray::F64),
        vec(any::<bool>(), 0..9).prop_map(GgufArray::Bool),
        vec(any::<String>(), 0..9).prop_map(|texts| GgufArray::Str(strings(&texts))),
    ];
    flat.prop_recursive(4, 16, 3, |inner| vec(inner, 0..3).prop_map(GgufArray::Array))
}

fn strings(texts: &[String]) -> Strings {
    let mut strings = Strings::default();
    texts.iter().for_each(|text| strings.push(text));
    strings
}

fn info() -> impl Strategy<Value = TensorInfo> {
    let block = prop::sample::select(BlockType::ALL.as_slice());
    (block, vec(1..4_usize, 1..=4)).prop_map(|(block, mut shape)| {
        *shape.last_mut().expect("there is one dimension or more") *= block.block_len();
        TensorInfo { block, shape }
    })
}

fn named<T: std::fmt::Debug>(
    item: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<(String, T)>> {
    vec((any::<String>(), item), 0..6).prop_map(|mut items| {
        let mut seen = HashSet::new();
        items.retain(|(name, _)| seen.insert(name.clone()));
        items
    })
}

fn content(info: &TensorInfo, seed: u8) -> Vec<u8> {
    (0..info.bytes()).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn write(values: &Values, tensors: &Tensors) -> Result<Vec<u8>, WriteError> {
    let mut writer = Writer::new(Vec::new(), values, tensors)?;
    for (i, (name, info)) in tensors.iter().enumerate() {
        writer.tensor(name, &content(info, i as u8))?;
    }
    writer.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn values_and_tensors(
        mut values in named(value()),
        tensors in named(info()),
        alignment in prop::option::of(0..9_u32),
    ) {
        values.retain(|(key, _)| key != "general.alignment");
        if let Some(bits) = alignment {
            values.push(("general.alignment".to_owned(), GgufValue::U32(1 << bits)));
        }
        let gguf = Gguf::from_bytes("m.gguf", write(&values, &tensors).unwrap()).unwrap();
        prop_assert_eq!(gguf.values().unwrap(), values);
        prop_assert_eq!(gguf.names().len(), tensors.len());
        for (i, (name, info)) in tensors.iter().enumerate() {
            prop_assert_eq!(gguf.names()[i], name);
            prop_assert_eq!(gguf.info(name), Some(info));
            prop_assert_eq!(gguf.bytes(name).unwrap(), content(info, i as u8));
        }
    }
}

fn vector(len: usize) -> TensorInfo {
    TensorInfo { block: BlockType::F32, shape: vec![len] }
}

#[test]
fn nothing_is_written_that_would_not_be_read() {
    let refused = |values: Values, tensors: Tensors| match write(&values, &tensors).unwrap_err() {
        WriteError::Refused { fault, .. } => fault,
        other => panic!("{other}"),
    };
    let one = |key: &str, value| (key.to_owned(), value);
    let tensor = |shape: &[usize], block| {
        vec![("x".to_owned(), TensorInfo { block, shape: shape.to_vec() })]
    };
    let twice = vec![one("k", GgufValue::U8(1)), one("k", GgufValue::U8(1))];
    assert_eq!(refused(twice, vec![]), Fault::Twice);
    let alignment = vec![one("general.alignment", GgufValue::U32(24))];
    assert!(matches!(refused(alignment, vec![]), Fault::Expected(_)));
    assert_eq!(
        refused(vec![], [tensor(&[1], BlockType::F32), tensor(&[1], BlockType::F32)].concat()),
        Fault::Twice
    );
    assert_eq!(refused(vec![], tensor(&[], BlockType::F32)), Fault::Rank(0));
    assert_eq!(refused(vec![], tensor(&[1; 5], BlockType::F32)), Fault::Rank(5));
    assert_eq!(refused(vec![], tensor(&[0, 1], BlockType::F32)), Fault::Empty);
    let ragged = Fault::Ragged { cols: 48, block: BlockType::Q8_0 };
    assert_eq!(refused(vec![], tensor(&[2, 48], BlockType::Q8_0)), ragged);
    let wide = vec![one("k", GgufValue::U64(u64::MAX))];
    assert_eq!(refused(wide, vec![]), Fault::Wide(u64::MAX));
    let deep = (0..6).fold(GgufArray::U8(vec![]), |inner, _| GgufArray::Array(vec![inner]));
    assert_eq!(refused(vec![one("k", GgufValue::Array(deep))], vec![]), Fault::Depth(4));
}

#[test]
fn tensors_come_whole_and_in_the_announced_order() {
    let tensors = vec![("a".to_owned(), vector(2)), ("b".to_owned(), vector(1))];
    let mut writer = Writer::new(Vec::new(), &[], &tensors).unwrap();
    let message = |error: WriteError| error.to_string();
    assert_eq!(
        message(writer.tensor("b", &[0; 4]).unwrap_err()),
        "tensor `b` was given where `a` was announced"
    );
    assert_eq!(
        message(writer.tensor("a", &[0; 4]).unwrap_err()),
        "tensor `a` was given 4 bytes, but its shape takes 8"
    );
    writer.tensor("a", &[0; 8]).unwrap();
    assert_eq!(message(writer.finish().unwrap_err()), "tensor `b` was announced but never given");
    let mut writer = Writer::new(Vec::new(), &[], &[]).unwrap();
    assert_eq!(
        message(writer.tensor("a", &[]).unwrap_err()),
        "tensor `a` was given where the end of the file was announced"
    );
}
