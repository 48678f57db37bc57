//! Why a picture cannot be read.

use thiserror::Error;

/// A file is not a picture that can be read, or not within its limits.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ImageError {
    /// The file is larger than anybody should send.
    #[error("the image has {bytes} bytes and at most {most} are read: send a smaller one")]
    Bytes {
        /// Its size.
        bytes: usize,
        /// The largest size allowed.
        most: usize,
    },
    /// The file begins like none of the known formats.
    #[error("the image is neither PNG, JPEG, WebP nor GIF: convert it to one of them")]
    Format,
    /// One side is longer than allowed.
    #[error(
        "the image is {width} × {height} pixels and no side may exceed {most}: scale it down or cut it"
    )]
    Side {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The longest side allowed.
        most: u32,
    },
    /// There are more pixels than allowed.
    #[error("the image is {width} × {height} pixels and at most {most} are read: scale it down")]
    Pixels {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The most pixels allowed.
        most: u64,
    },
    /// The file is cut short, contradicts itself, or uses what its decoder does not know.
    #[error("the {format} image cannot be decoded ({reason}): save it again as PNG or JPEG")]
    Damaged {
        /// What it claims to be.
        format: &'static str,
        /// In the decoder's words.
        reason: String,
    },
}
