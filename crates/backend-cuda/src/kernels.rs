//! The kernels: which file each is in, and the functions that have been loaded so far.

use std::sync::OnceLock;

use crate::compile::{Compiler, KernelError, Source};
use crate::device::{Device, Function};

/// The number of values that `FORMAT` takes in kernels.
pub(crate) const FORMATS: usize = 36;
/// The `FORMAT` of kernels that do not depend on one.
pub(crate) const ANY: u32 = 0;

macro_rules! kernels {
    ($($file:literal: $($kernel:ident = $name:literal),+;)+) => {
        /// A kernel.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub(crate) enum Kernel {
            $($(#[doc = concat!("`", $name, "` of ", $file)] $kernel,)+)+
        }

        const COUNT: usize = [$($(Kernel::$kernel,)+)+].len();

        /// Files, their texts, and what is in them.
        const FILES: &[(&str, &str, &[(Kernel, &str)])] = &[
            $(($file, include_str!(concat!("../kernels/", $file)),
               &[$((Kernel::$kernel, $name)),+]),)+
        ];
    };
}

kernels! {
    "add.cu": Add = "add";
    "attend.cu": Attend = "attend";
    "attend_merge.cu": AttendMerge = "attend_merge";
    "attend_plain.cu": AttendPlain = "attend_plain";
    "attend_tensor.cu":
        AttendTensor1 = "attend_tensor_1", AttendTensor2 = "attend_tensor_2",
        AttendTensorWide2 = "attend_tensor_wide_2";
    "clamp.cu": Clamp = "clamp";
    "combine.cu": Combine = "combine";
    "embed.cu": Embed = "embed";
    "embed_floats.cu": EmbedFloats = "embed_floats";
    "gelu_mul.cu": GeluMul = "gelu_mul", GeluMulRounded = "gelu_mul_rounded";
    "group.cu": Group = "group";
    "join.cu": Join = "join", JoinMany = "join_many";
    "kv_code.cu": KvCode = "kv_code";
    "kv_copy.cu": KvCopy = "kv_copy";
    "kv_move.cu": KvMove = "kv_move", KvFork = "kv_fork";
    "kv_write.cu": KvWrite = "kv_write";
    "matmul_few.cu":
        Few1 = "matmul_few_1", Few2 = "matmul_few_2", Few4 = "matmul_few_4";
    "matmul_floats.cu":
        Floats1 = "matmul_floats_1", FloatsSplit1 = "matmul_floats_split_1",
        Floats8 = "matmul_floats_8", FloatsSplit8 = "matmul_floats_split_8",
        FloatsSplit32 = "matmul_floats_split_32";
    "matmul_many.cu":
        Many4 = "matmul_many_4", Many6 = "matmul_many_6", Many8 = "matmul_many_8";
    "matmul_plain.cu": Plain = "matmul_plain";
    "matmul_rows.cu":
        Rows1 = "matmul_rows_1", Rows2 = "matmul_rows_2", Rows3 = "matmul_rows_3",
        Rows4 = "matmul_rows_4";
    "matmul_tiles.cu": Tiles4 = "matmul_tiles_4", Tiles8 = "matmul_tiles_8";
    "norm.cu":
        NormNarrow = "norm_narrow", NormWide3 = "norm_wide_3",
        NormWide12 = "norm_wide_12";
    "norm_rope.cu": NormRope = "norm_rope", NormHeads = "norm_heads";
    "pack.cu": Pack = "pack";
    "pack_floats.cu": PackFloats = "pack_floats";
    "quantise.cu": Quantise = "quantise";
    "rope.cu": Rope = "rope";
    "rotate.cu": Rotate = "rotate";
    "route.cu": Route = "route";
    "scale.cu": Scale = "scale";
    "select.cu": Select = "select";
    "softcap.cu": Softcap = "softcap";
    "top.cu": TopFirst = "top_first", TopNext = "top_next", TopLast = "top_last";
    "turn.cu": Turn = "turn";
}

impl Kernel {
    /// The name of the kernel's function.
    pub(crate) fn name(self) -> &'static str {
        let (.., names) = self.file();
        names.iter().find(|(kernel, _)| *kernel == self).map_or("", |(_, name)| name)
    }

    fn file(self) -> &'static (&'static str, &'static str, &'static [(Self, &'static str)]) {
        let holds = |file: &&(_, _, &[(Self, &str)])| file.2.iter().any(|(k, _)| *k == self);
        FILES.iter().find(holds).expect("every kernel is declared with its file")
    }
}

/// Functions that have been loaded, by kernel and format.
pub(crate) struct Kernels {
    compiler: Compiler,
    functions: Vec<OnceLock<Function>>,
}

impl Kernels {
    pub(crate) fn new(compiler: Compiler) -> Self {
        let functions = (0..COUNT * FORMATS).map(|_| OnceLock::new()).collect();
        Self { compiler, functions }
    }

    pub(crate) fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// A kernel for a format, compiled and loaded if this is the first time.
    pub(crate) fn get(
        &self,
        device: &Device,
        kernel: Kernel,
        format: u32,
    ) -> Result<Function, KernelError> {
        let place = |kernel: Kernel| &self.functions[kernel as usize * FORMATS + format as usize];
        if let Some(function) = place(kernel).get() {
            return Ok(*function);
        }
        let &(file, text, kernels) = kernel.file();
        let cubin = self.compiler.cubin(Source { file, text, format })?;
        let names: Vec<_> = kernels.iter().map(|(_, name)| *name).collect();
        let loaded = device.load(&cubin, &names);
        let loaded = loaded.map_err(|reason| KernelError::Load { file, reason })?;
        for ((kernel, _), function) in kernels.iter().zip(loaded) {
            // Another thread may have been first; both are the same kernel.
            let _ = place(*kernel).set(function);
        }
        Ok(*place(kernel).get().expect("every kernel of the file was just loaded"))
    }
}
