//! Stacks of matrices on the device, in the layouts that kernels/record.cuh and matmul_floats.cu
//! describe. The device repacks: stored rows are copied over in pieces and taken apart there.

use lapidary_core::{BlockType, Matrix, Unsupported};

use crate::cuda::{Cuda, args};
use crate::device::Shape;
use crate::kernels::Kernel;
use crate::pool::Buffer;

/// Outputs of a record or group.
pub(crate) const GROUP: usize = 32;
/// Inputs of a record.
pub(crate) const SEGMENT: usize = 256;
/// Most bytes of stored rows that are copied over at once.
const PIECE: usize = 64 << 20;

/// How elements are stored on the device; the values are those of `FORMAT` in kernels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    Q4_0 = 0,
    Q4_1 = 1,
    Q5_0 = 2,
    Q5_1 = 3,
    Q8_0 = 4,
    Q4K = 5,
    Q5K = 6,
    Q6K = 7,
    F32 = 8,
    F16 = 9,
    BF16 = 10,
    /// Codes of 8 bits with a float each 32: types with tables or factors of their own.
    Wide = 11,
    Q2K = 12,
}

impl Format {
    fn of(block: BlockType) -> Self {
        match block {
            BlockType::Q4_0 => Self::Q4_0,
            BlockType::Q4_1 => Self::Q4_1,
            BlockType::Q5_0 => Self::Q5_0,
            BlockType::Q5_1 => Self::Q5_1,
            BlockType::Q8_0 => Self::Q8_0,
            BlockType::Q4_K => Self::Q4K,
            BlockType::Q5_K => Self::Q5K,
            BlockType::Q6_K | BlockType::Q3_K => Self::Q6K,
            BlockType::Q2_K => Self::Q2K,
            BlockType::IQ4_NL | BlockType::IQ4_XS | BlockType::MXFP4 => Self::Wide,
            BlockType::F32 => Self::F32,
            BlockType::F16 => Self::F16,
            BlockType::BF16 => Self::BF16,
        }
    }

    /// The value of `FORMAT`.
    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    /// Whether elements are plain numbers.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Bytes of 32 outputs by 256 inputs.
    pub(crate) fn record_bytes(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4K => 4608,
            Self::Q4_1 => 5120,
            Self::Q5_0 | Self::Q5K => 5632,
            Self::Q5_1 => 6144,
            Self::Q6K => 6720,
            Self::Q8_0 => 8704,
            Self::Wide => 9216,
            Self::Q2K => 4736,
            Self::F16 | Self::BF16 => GROUP * SEGMENT * 2,
            Self::F32 => GROUP * SEGMENT * 4,
        }
    }

    /// Bytes that tensor core kernels keep of the factors of a record; ENDS_BYTES of
    /// kernels/tensor.cuh.
    pub(crate) fn ends_bytes(self) -> usize {
        match self {
            Self::Q6K | Self::Q2K => 4096,
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => 2048,
            _ => 1024,
        }
    }

    /// The kernels that serve a matrix of this format.
    fn kernels(self) -> &'static [Kernel] {
        if self.is_float() {
            &[Kernel::EmbedFloats, Kernel::Floats1]
        } else {
            &[Kernel::Embed, Kernel::Rows1, Kernel::Few1, Kernel::Many8, Kernel::Tiles8]
        }
    }
}

/// The kernel that brings a stored type into its format, and the `FORMAT` it is compiled for.
fn packer(block: BlockType) -> (Kernel, u32) {
    match block {
        BlockType::F32 | BlockType::F16 | BlockType::BF16 => {
            (Kernel::PackFloats, Format::of(block).number())
        }
        BlockType::Q3_K => (Kernel::Pack, 13),
        BlockType::IQ4_NL => (Kernel::Pack, 14),
        BlockType::IQ4_XS => (Kernel::Pack, 15),
        BlockType::MXFP4 => (Kernel::Pack, 16),
        _ => (Kernel::Pack, Format::of(block).number()),
    }
}

/// A stack of matrices on the device.
pub struct Weight {
    pub(crate) format: Format,
    pub(crate) stack: usize,
    /// Outputs of each matrix.
    pub(crate) rows: usize,
    /// Inputs of each matrix.
    pub(crate) cols: usize,
    pub(crate) data: Buffer,
}

impl Weight {
    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.data.bytes()
    }

    /// Groups of 32 outputs per matrix.
    pub(crate) fn groups(&self) -> usize {
        self.rows.div_ceil(GROUP)
    }

    /// Segments of 256 inputs.
    pub(crate) fn segments(&self) -> usize {
        self.cols.div_ceil(SEGMENT)
    }

    /// Brings a stored stack onto the device.
    pub(crate) fn upload(cuda: &Cuda, stored: &Matrix<'_>) -> Result<Self, Unsupported> {
        let &Matrix { block, stack, rows, cols, .. } = stored;
        let format = Format::of(block);
        let row_bytes = block
            .row_bytes(cols)
            .ok_or_else(|| Unsupported(format!("rows of {cols} are not whole {block} blocks")))?;
        assert_eq!(stored.bytes.len(), stack * rows * row_bytes, "bytes of a stored stack");
        let packer = packer(block);
        let kernels = format.kernels().iter().map(|kernel| (*kernel, format.number()));
        for (kernel, format) in kernels.chain([packer]) {
            cuda.prepare(kernel, format).map_err(|e| Unsupported(e.to_string()))?;
        }
        let mut weight = Self { format, stack, rows, cols, data: cuda.pool.get(0) };
        let bytes = weight.needed_bytes();
        weight.data = cuda.pool.try_get(bytes).ok_or_else(|| full(cuda, bytes))?;
        weight.data.zero();
        weight.pack(cuda, packer, &stored.bytes, row_bytes)?;
        Ok(weight)
    }

    fn needed_bytes(&self) -> usize {
        let groups = self.stack * self.groups();
        if self.format.is_float() {
            let element = self.format.record_bytes() / (GROUP * SEGMENT);
            groups * self.cols.next_multiple_of(4) * GROUP * element
        } else {
            groups * self.segments() * self.format.record_bytes()
        }
    }

    fn pack(
        &self,
        cuda: &Cuda,
        packer: (Kernel, u32),
        stored: &[u8],
        row_bytes: usize,
    ) -> Result<(), Unsupported> {
        let rows_at_once = (PIECE / row_bytes).max(1);
        let piece_bytes = (rows_at_once * row_bytes).min(stored.len());
        let piece = cuda.pool.try_get(piece_bytes).ok_or_else(|| full(cuda, piece_bytes))?;
        for (i, bytes) in stored.chunks(rows_at_once * row_bytes).enumerate() {
            piece.write(bytes);
            let rows = (i * rows_at_once, bytes.len() / row_bytes);
            self.pack_piece(cuda, packer, &piece, rows, row_bytes);
        }
        // Products read weights without waiting for the kernels before them.
        cuda.device.wait();
        Ok(())
    }

    /// Packs `count` stored rows that lie at `piece`, from row `first` of the stack on.
    fn pack_piece(
        &self,
        cuda: &Cuda,
        (kernel, stored): (Kernel, u32),
        piece: &Buffer,
        (first, count): (usize, usize),
        row_bytes: usize,
    ) {
        let (first, rows, height) = (first as u64, count as u64, self.rows as u32);
        if self.format.is_float() {
            let shape = Shape::each(count * self.cols);
            let cols = self.cols as u32;
            let args = args![piece, self.data, first, rows, height, cols];
            // SAFETY: the piece holds `count` rows, which are rows `first..` of the stack.
            unsafe { cuda.launch(kernel, stored, shape, &args) };
        } else {
            let shape = Shape::each(count * self.segments());
            let (stride, blocks) = (row_bytes as u64, (self.cols / 32) as u32);
            let args = args![piece, self.data, first, rows, stride, height, blocks];
            // SAFETY: as above.
            unsafe { cuda.launch(kernel, stored, shape, &args) };
        }
    }
}

fn full(cuda: &Cuda, bytes: usize) -> Unsupported {
    let free = cuda.device.memory().map_or(0, |(free, _)| free);
    Unsupported(format!(
        "{} has {} MiB free, but {} MiB are needed; use a smaller model or fewer slots",
        cuda.device.name,
        free >> 20,
        bytes.div_ceil(1 << 20)
    ))
}
