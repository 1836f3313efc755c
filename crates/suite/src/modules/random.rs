//! Layers that draw random numbers in training mode. Each call of a row draws the same ones.

use super::{ModuleRow, Twin, row};
use crate::methods::normal;
use kiln_nn::*;

const DRAWN: Twin = Twin::None("its numbers are drawn by another generator; statistics are tested");

pub(super) fn rows() -> Vec<ModuleRow> {
    vec![
        row!("Dropout", DRAWN, |_| DropoutConfig::new(0.5).init().train(), 2, normal(&[3, 4])),
        row!("Dropout1d", DRAWN, |_| Dropout1dConfig::new(0.5).init().train(), 3, normal(&[2, 3, 4])),
        row!("Dropout2d", DRAWN, |_| Dropout2dConfig::new(0.5).init().train(), 4, normal(&[2, 3, 2, 2])),
        row!("Dropout3d", DRAWN, |_| Dropout3dConfig::new(0.5).init().train(), 5, normal(&[2, 3, 2, 1, 2])),
        row!("AlphaDropout", DRAWN, |_| AlphaDropoutConfig::new(0.5).init().train(), 2, normal(&[3, 4])),
        row!(
            "FeatureAlphaDropout",
            DRAWN,
            |_| FeatureAlphaDropoutConfig::new(0.5).init().train(),
            3,
            normal(&[2, 3, 4])
        ),
        row!("GaussianNoise", DRAWN, |_| GaussianNoiseConfig::new(0.5).init().train(), 2, normal(&[3, 4])),
        row!("DropPath", DRAWN, |_| DropPathConfig::new(0.5).init().train(), 3, normal(&[3, 2, 2])),
    ]
}
