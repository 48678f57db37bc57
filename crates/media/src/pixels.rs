//! A picture in memory.

/// Rows of red, green and blue, 8 bits each, from the top left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pixels {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Pixels {
    /// A picture of at least one pixel.
    ///
    /// # Panics
    /// If `rgb` is not `width × height × 3` bytes, or none.
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> Self {
        assert!(width > 0 && height > 0, "a picture of {width} × {height}");
        assert_eq!(rgb.len(), width * height * 3, "bytes of {width} × {height} pixels");
        Self { width, height, rgb }
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows of pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Row after row, three bytes a pixel.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }
}
