//! Numbers as little-endian bytes.

/// A number with a fixed little-endian form.
pub(super) trait Number: Copy {
    /// Bytes of the form.
    const BYTES: usize;
    /// From exactly [`Self::BYTES`] bytes.
    fn read(bytes: &[u8]) -> Self;
    /// Appends the form.
    fn write(self, out: &mut Vec<u8>);
}

macro_rules! number {
    ($($number:ty)*) => {$(
        impl Number for $number {
            const BYTES: usize = size_of::<Self>();

            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("a number comes with its own length"))
            }

            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

number!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);
