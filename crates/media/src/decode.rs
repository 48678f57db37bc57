//! From a file's bytes to pixels, within limits.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader};

use crate::{ImageError, Pixels};

/// What a file may ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of the file.
    pub bytes: usize,
    /// Pixels along one side.
    pub side: u32,
    /// Pixels altogether.
    pub pixels: u64,
}

impl Default for Limits {
    /// Every camera's picture, and no bomb.
    fn default() -> Self {
        Self { bytes: 32 << 20, side: 1 << 15, pixels: 50_000_000 }
    }
}

/// What a decoder may need for a pixel at most: four channels of sixteen bits.
const PIXEL_BYTES: u64 = 8;
/// What a decoder may need besides.
const DECODER_BYTES: u64 = 16 << 20;
/// What shows through transparent pixels.
const PAPER: u32 = 255;

/// Reads a PNG, JPEG, WebP or GIF file, whatever its name says, the right way up. Of an animation
/// it is the first picture; transparent pixels lie on white paper.
///
/// # Errors
/// [`ImageError`]. Sizes are checked before pixels are unpacked, so memory and time are bounded by
/// `limits`.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Pixels, ImageError> {
    if bytes.len() > limits.bytes {
        return Err(ImageError::Bytes { bytes: bytes.len(), most: limits.bytes });
    }
    let guessed = image::guess_format(bytes).ok();
    let (kind, format) = guessed.and_then(known).ok_or(ImageError::Format)?;
    let damaged = |error: image::ImageError| ImageError::Damaged { format, reason: plain(&error) };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), kind);
    reader.limits(memory(limits));
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    check(width, height, limits)?;
    if width == 0 || height == 0 {
        let reason = format!("it is {width} × {height} pixels");
        return Err(ImageError::Damaged { format, reason });
    }
    let orientation = decoder.orientation().map_err(damaged)?;
    let mut picture = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    picture.apply_orientation(orientation);
    Ok(on_paper(picture))
}

fn known(format: ImageFormat) -> Option<(ImageFormat, &'static str)> {
    let name = match format {
        ImageFormat::Png => "PNG",
        ImageFormat::Jpeg => "JPEG",
        ImageFormat::WebP => "WebP",
        ImageFormat::Gif => "GIF",
        _ => return None,
    };
    Some((format, name))
}

fn memory(limits: &Limits) -> image::Limits {
    let mut memory = image::Limits::default();
    memory.max_alloc = Some(limits.pixels.saturating_mul(PIXEL_BYTES) + DECODER_BYTES);
    memory
}

fn check(width: u32, height: u32, limits: &Limits) -> Result<(), ImageError> {
    if width > limits.side || height > limits.side {
        return Err(ImageError::Side { width, height, most: limits.side });
    }
    if u64::from(width) * u64::from(height) > limits.pixels {
        return Err(ImageError::Pixels { width, height, most: limits.pixels });
    }
    Ok(())
}

/// One line of a decoder's complaint.
fn plain(error: &image::ImageError) -> String {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default().trim();
    text.trim_end_matches(['.', ':']).chars().take(200).collect()
}

fn on_paper(picture: DynamicImage) -> Pixels {
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    if !picture.color().has_alpha() {
        return Pixels::new(width, height, picture.into_rgb8().into_raw());
    }
    let mut bytes = picture.into_rgba8().into_raw();
    // In place: pixel `i` of three bytes never reaches into what has not been read.
    for i in 0..width * height {
        let [r, g, b, alpha] = [0, 1, 2, 3].map(|channel| u32::from(bytes[4 * i + channel]));
        let mixed = [r, g, b].map(|c| (c * alpha + PAPER * (255 - alpha) + 127) / 255);
        bytes[3 * i..3 * i + 3].copy_from_slice(&mixed.map(|c| c as u8));
    }
    bytes.truncate(width * height * 3);
    Pixels::new(width, height, bytes)
}
