//! The numbers by which GGUF names block types.

use lapidary_core::BlockType;

/// The type with this id, if it is one with a decoder.
pub(super) fn block_type(id: u32) -> Option<BlockType> {
    BlockType::ALL.into_iter().find(|&block| type_id(block) == id)
}

/// The id of a type.
pub(super) fn type_id(block: BlockType) -> u32 {
    match block {
        BlockType::F32 => 0,
        BlockType::F16 => 1,
        BlockType::Q4_0 => 2,
        BlockType::Q4_1 => 3,
        BlockType::Q5_0 => 6,
        BlockType::Q5_1 => 7,
        BlockType::Q8_0 => 8,
        BlockType::Q2_K => 10,
        BlockType::Q3_K => 11,
        BlockType::Q4_K => 12,
        BlockType::Q5_K => 13,
        BlockType::Q6_K => 14,
        BlockType::IQ4_NL => 20,
        BlockType::IQ4_XS => 23,
        BlockType::BF16 => 30,
        BlockType::MXFP4 => 39,
    }
}
