//! Asking the engine's thread to look at a picture.

use lapidary_core::{Backend, DeviceError, Patches};
use lapidary_model::vision::{Tower, Unseen};
use thiserror::Error;

use crate::SoftRows;

/// Why there are no soft tokens of a picture.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum LookError {
    /// The model reads text alone.
    #[error("this model has no vision tower: give its mmproj file, or leave the image out")]
    NoTower,
    /// The tower cannot read this picture.
    #[error(transparent)]
    Unseen(#[from] Unseen),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The engine has broken down.
    #[error("the engine is down and must be started anew: {reason}")]
    Down {
        /// What happened to it.
        reason: String,
    },
}

/// What a tower, if there is one, makes of a picture.
pub(crate) fn look<B: Backend>(
    ops: &B,
    tower: Option<&dyn Tower<B>>,
    picture: &Patches,
) -> Result<SoftRows, LookError> {
    let tower = tower.ok_or(LookError::NoTower)?;
    let rows = tower.look(ops, picture)?;
    Ok(SoftRows::new(ops.read(&rows)?, tower.width()))
}
