//! Every lie a GGUF file can tell is an error that names the file, the field and the reason.

use lapidary_core::{TensorSource, Value};
use lapidary_format::Gguf;

use crate::contract;
use crate::raw::{Raw, array, small, string};

const U32: u32 = 4;
const F32: u32 = 0;
const Q8_0: u32 = 8;

#[track_caller]
fn refused(bytes: &[u8], reason: &str) {
    let error = Gguf::from_bytes("m.gguf", bytes.to_vec()).unwrap_err().to_string();
    assert_eq!(error, format!("m.gguf: {reason}"));
}

#[test]
fn a_valid_file_is_read() {
    let gguf = Gguf::from_bytes("m.gguf", small()).unwrap();
    contract::check(&gguf);
    assert_eq!(gguf.names(), ["vector", "matrix", "stack", "halves"]);
    assert_eq!(gguf.info("stack").unwrap().shape, [2, 1, 256]);
    let meta = gguf.meta();
    let int = |key| meta.get(key).and_then(Value::as_int).unwrap();
    assert_eq!(["u8", "i8", "u16", "i16", "u32", "i32"].map(int), [200, -56, 513, -1, 1, -5]);
    assert_eq!(["u64", "i64"].map(int), [1 << 40, -1]);
    assert_eq!(meta.get("f32"), Some(&Value::Float(1.5)));
    assert_eq!(meta.get("f64"), Some(&Value::Float(0.1)));
    assert_eq!(meta.get("bool"), Some(&Value::Bool(true)));
    assert_eq!(meta.get("general.architecture").unwrap().as_str(), Some("toy"));
    assert_eq!(meta.get("texts").unwrap().to_strings().unwrap(), ["a", "", "ß"]);
    assert_eq!(meta.get("flags").unwrap().to_bools().unwrap(), [true, false, true]);
    assert_eq!(meta.get("bytes"), Some(&Value::Ints(vec![1, 2, 255])));
    assert_eq!(meta.get("ints"), Some(&Value::Ints(vec![1, -1])));
    assert_eq!(meta.get("floats"), Some(&Value::Floats(vec![2.5])));
    assert_eq!(meta.get("doubles"), Some(&Value::List(vec![Value::Float(0.1)])));
    let flags = Value::List(vec![Value::Bool(false), Value::Bool(true)]);
    assert_eq!(meta.get("nested"), Some(&Value::List(vec![Value::Ints(vec![7]), flags])));
}

#[test]
fn bytes_of_a_static_are_read_in_place() {
    static FILE: &[u8] = include_bytes!("../corpus/small.gguf");
    let gguf = Gguf::from_bytes("built-in", FILE).unwrap();
    let place = gguf.bytes("vector").unwrap().as_ptr();
    assert!(FILE.as_ptr_range().contains(&place));
}

#[test]
fn version_2_is_read() {
    let file = Raw { version: 2, ..Raw::new().tensor("x", &[1], F32, 0).data(4) };
    assert_eq!(Gguf::from_bytes("m", file.build()).unwrap().names(), ["x"]);
}

#[test]
fn the_start() {
    let cut = "the file is cut short or damaged";
    refused(b"", &format!("the magic number takes 4 bytes, but 0 are left: {cut}"));
    refused(
        b"GG\xffL1234",
        r"the magic number is `GG\xffL` instead of `GGUF`: this is no GGUF file",
    );
    let version = |version| Raw { version, ..Raw::new() }.build();
    let only = "but only versions 2 and 3 can be read: convert the file anew";
    refused(&version(1), &format!("the version is 1, {only}"));
    refused(&version(4), &format!("the version is 4, {only}"));
    refused(
        &version(3_u32.swap_bytes()),
        "the version is big-endian: convert the file to little-endian",
    );
}

#[test]
fn lying_counts() {
    let many = |count: u64, left: u64| {
        format!("is {count}, too many for the {left} bytes left: the file is cut short or damaged")
    };
    let tensors = Raw { tensor_count: Some(u64::MAX), ..Raw::new() }.build();
    refused(&tensors, &format!("the number of tensors {}", many(u64::MAX, 8)));
    let keys = Raw { key_count: Some(1 << 40), ..Raw::new().data(64) }.build();
    refused(&keys, &format!("the number of keys {}", many(1 << 40, 72)));
    for element in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] {
        let list = Raw::new().key("k", 9, &array(element, u64::MAX / 8, &[0; 8])).build();
        refused(&list, &format!("key `k` {}", many(u64::MAX / 8, 8)));
    }
}

#[test]
fn keys() {
    let cut = "the file is cut short or damaged";
    let mut long = Raw::new().key("k", U32, &[0; 16]).build();
    long[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(&long, &format!("the name of key 1 takes {} bytes, but 21 are left: {cut}", u64::MAX));
    let mut text = Raw::new().key("k", U32, &[0; 4]).build();
    text[32] = 0xff;
    refused(&text, "the name of key 1 is not valid UTF-8");
    let twice = Raw::new().key("k", U32, &[0; 4]).key("k", U32, &[0; 4]).build();
    refused(&twice, "key `k` appears twice");
    let unknown = Raw::new().key("k", 13, &[0; 8]).build();
    refused(&unknown, "key `k` has the unknown value type 13");
    let unknown = Raw::new().key("k", 9, &array(13, 0, &[])).build();
    refused(&unknown, "key `k` has the unknown value type 13");
    let truth = Raw::new().key("k", 7, &[2]).build();
    refused(&truth, "key `k` holds the byte 2 as a truth value, which must be 0 or 1");
    let truth = Raw::new().key("k", 9, &array(7, 2, &[1, 3])).build();
    refused(&truth, "key `k` holds the byte 3 as a truth value, which must be 0 or 1");
    let text = Raw::new().key("k", 9, &array(8, 1, &[1, 0, 0, 0, 0, 0, 0, 0, 0x80])).build();
    refused(&text, "key `k` is not valid UTF-8");
    let wide = Raw::new().key("k", 10, &[255; 8]).build();
    let signed = "more than a signed 64-bit integer holds";
    refused(&wide, &format!("key `k` is {}, {signed}", u64::MAX));
    let wide = Raw::new().key("k", 9, &array(10, 1, &[255; 8])).build();
    refused(&wide, &format!("key `k` is {}, {signed}", u64::MAX));
}

#[test]
fn arrays_that_would_grow() {
    let deep = |depth| (1..depth).fold(array(U32, 0, &[]), |inner, _| array(9, 1, &inner));
    assert!(Gguf::from_bytes("m", Raw::new().key("k", 9, &deep(5)).build()).is_ok());
    refused(&Raw::new().key("k", 9, &deep(6)).build(), "key `k` nests arrays more than 4 deep");
    refused(
        &Raw::new().key("k", 9, &deep(50_000)).build(),
        "key `k` nests arrays more than 4 deep",
    );
    let half = array(7, 1 << 19, &vec![1; 1 << 19]);
    let full = Raw::new().key("a", 9, &half).key("b", 9, &half);
    assert!(Gguf::from_bytes("m", full.build()).is_ok());
    refused(
        &full.key("c", 9, &array(0, 1, &[1])).build(),
        "key `c` brings the bytes and truth values in arrays to more than 1048576",
    );
}

#[test]
fn alignment() {
    let file = |value: u32| {
        let aligned = Raw { alignment: value.max(1) as usize, ..Raw::new() };
        aligned.key("general.alignment", U32, &value.to_le_bytes()).tensor("x", &[3], F32, 0)
    };
    for value in [1, 8, 64, 4096] {
        let gguf = Gguf::from_bytes("m", file(value).data(12).build()).unwrap();
        assert_eq!(&gguf.bytes("x").unwrap()[..4], [0, 37, 74, 10], "alignment {value}");
    }
    let reason = "key `general.alignment` is not a power of two of type u32";
    refused(&file(0).data(12).build(), reason);
    refused(&file(24).data(12).build(), reason);
    refused(&Raw::new().key("general.alignment", 0, &[32]).build(), reason);
}

#[test]
fn shapes() {
    let file = |ne: &[u64], id| Raw::new().tensor("x", ne, id, 0).data(64).build();
    refused(&file(&[], F32), "tensor `x` has 0 dimensions instead of 1 to 4");
    refused(&file(&[1; 5], F32), "tensor `x` has 5 dimensions instead of 1 to 4");
    refused(&file(&[4, 0], F32), "tensor `x` has a dimension of length 0");
    refused(&file(&[0, u64::MAX], F32), "tensor `x` has a dimension of length 0");
    let large = "tensor `x` is larger than this machine can address";
    refused(&file(&[u64::MAX, 2], F32), large);
    refused(&file(&[1 << 32, 1 << 32], F32), large);
    refused(
        &file(&[1 << 62], F32),
        "tensor `x` has rows of 4611686018427387904 elements, not a whole number of F32 blocks",
    );
    refused(
        &file(&[33, 1], Q8_0),
        "tensor `x` has rows of 33 elements, not a whole number of Q8_0 blocks",
    );
    for id in [4, 5, 9, 24, 40, u32::MAX] {
        let reason = format!("tensor `x` has the unknown type id {id}: convert it to another type");
        refused(&file(&[32], id), &reason);
    }
}

#[test]
fn places() {
    let file = |offset, data| Raw::new().tensor("x", &[8], F32, offset).data(data).build();
    let cut = "the file is cut short or damaged";
    assert!(Gguf::from_bytes("m", file(32, 64)).is_ok());
    refused(&file(4, 64), "tensor `x` starts at offset 4, not a multiple of the alignment 32");
    refused(&file(64, 64), &format!("tensor `x` ends at byte 160, but the file has 128: {cut}"));
    let far = u64::MAX - 31;
    refused(&file(far, 64), "tensor `x` is larger than this machine can address");
    let two = |a, b| Raw::new().tensor("a", &[16], F32, a).tensor("b", &[16], F32, b).data(128);
    assert!(Gguf::from_bytes("m", two(64, 0).build()).is_ok());
    refused(&two(0, 32).build(), "tensor `b` overlaps tensor `a`");
    refused(&two(32, 0).build(), "tensor `a` overlaps tensor `b`");
    refused(&two(0, 0).build(), "tensor `b` overlaps tensor `a`");
    let twice = Raw::new().tensor("a", &[8], F32, 0).tensor("a", &[8], F32, 32).data(64).build();
    refused(&twice, "tensor `a` appears twice");
    let mut text = file(0, 64);
    text[32] = 0xff;
    refused(&text, "the name of tensor 1 is not valid UTF-8");
}

#[test]
fn a_part_cannot_come_from_memory() {
    let part = Raw::new().key("split.count", 2, &[3, 0]).key("split.no", 2, &[0, 0]).key(
        "general.name",
        8,
        &string("x"),
    );
    let error = Gguf::from_bytes("m.gguf", part.build()).unwrap_err().to_string();
    assert_eq!(error, "m.gguf is one of 3 parts: join them into one file first");
}
