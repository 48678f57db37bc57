//! From pixels to the patches of a Gemma 4 tower.

use lapidary_core::Patches;

use crate::budget::PATCH;
use crate::{Budget, Pixels, resize};

/// Scales a picture to its budget and cuts it into patches.
pub fn patches(picture: &Pixels, budget: Budget) -> Patches {
    let (width, height) = budget.size(picture.width(), picture.height());
    let scaled = resize(picture, width, height);
    let (columns, rows) = (width / PATCH, height / PATCH);
    let mut values = Vec::with_capacity(width * height * 3);
    for patch in 0..columns * rows {
        let (x, y) = (patch % columns * PATCH, patch / columns * PATCH);
        for line in y..y + PATCH {
            let first = (line * width + x) * 3;
            values.extend_from_slice(&scaled.rgb()[first..first + PATCH * 3]);
        }
    }
    Patches { columns, rows, side: PATCH, values }
}
