//! Builds GGUF bytes by hand, right or wrong.

/// The pieces of a file. What is not set is derived from what was added.
#[derive(Clone)]
pub(crate) struct Raw {
    pub(crate) version: u32,
    pub(crate) tensor_count: Option<u64>,
    pub(crate) key_count: Option<u64>,
    pub(crate) alignment: usize,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) data: Vec<u8>,
}

impl Raw {
    pub(crate) fn new() -> Self {
        Self {
            version: 3,
            tensor_count: None,
            key_count: None,
            alignment: 32,
            keys: Vec::new(),
            tensors: Vec::new(),
            data: Vec::new(),
        }
    }

    pub(crate) fn key(mut self, name: &str, type_id: u32, value: &[u8]) -> Self {
        self.keys.push([&string(name), &type_id.to_le_bytes()[..], value].concat());
        self
    }

    /// `ne` is fastest first, as in the file.
    pub(crate) fn tensor(mut self, name: &str, ne: &[u64], type_id: u32, offset: u64) -> Self {
        let mut bytes = string(name);
        bytes.extend((ne.len() as u32).to_le_bytes());
        ne.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.extend(type_id.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        self.tensors.push(bytes);
        self
    }

    pub(crate) fn data(mut self, bytes: usize) -> Self {
        self.data = (0..bytes).map(|i| (i * 37 % 101) as u8).collect();
        self
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let mut out = self.header();
        out.extend(self.keys.concat());
        out.extend(self.tensors.concat());
        if !self.data.is_empty() {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&self.data);
        }
        out
    }

    fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        out
    }
}

/// A length and the text.
pub(crate) fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// An element type, a count, and the elements.
pub(crate) fn array(type_id: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    [&type_id.to_le_bytes()[..], &count.to_le_bytes(), elements].concat()
}

/// A valid file with every kind of value and four tensors; its last byte belongs to a tensor.
pub(crate) fn small() -> Vec<u8> {
    let texts = ["a", "", "ß"].map(string).concat();
    let nested = [array(4, 1, &7_u32.to_le_bytes()), array(7, 2, &[0, 1])].concat();
    Raw::new()
        .key("general.architecture", 8, &string("toy"))
        .key("u8", 0, &[200])
        .key("i8", 1, &[200])
        .key("u16", 2, &[1, 2])
        .key("i16", 3, &[255, 255])
        .key("u32", 4, &[1, 0, 0, 0])
        .key("i32", 5, &(-5_i32).to_le_bytes())
        .key("f32", 6, &1.5_f32.to_le_bytes())
        .key("bool", 7, &[1])
        .key("u64", 10, &(1_u64 << 40).to_le_bytes())
        .key("i64", 11, &(-1_i64).to_le_bytes())
        .key("f64", 12, &0.1_f64.to_le_bytes())
        .key("texts", 9, &array(8, 3, &texts))
        .key("flags", 9, &array(7, 3, &[1, 0, 1]))
        .key("bytes", 9, &array(0, 3, &[1, 2, 255]))
        .key("ints", 9, &array(5, 2, &[1, 0, 0, 0, 255, 255, 255, 255]))
        .key("floats", 9, &array(6, 1, &2.5_f32.to_le_bytes()))
        .key("doubles", 9, &array(12, 1, &0.1_f64.to_le_bytes()))
        .key("nested", 9, &array(9, 2, &nested))
        .tensor("vector", &[3], 0, 0)
        .tensor("matrix", &[32, 2], 8, 32)
        .tensor("stack", &[256, 1, 2], 12, 128)
        .tensor("halves", &[4, 4], 1, 416)
        .data(416 + 32)
        .build()
}
