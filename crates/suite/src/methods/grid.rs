//! Grids of coordinates, and sampling at them.

use super::{Method, normal, one, uniform};
use kiln_tensor::AnyTensor;
use kiln_tensor::grid::{GridPadding, GridSampleMode, GridSampleOptions, Indexing};

const STEPS: &str = "coordinates are rounded to few numbers in 16 bits";

pub(super) fn rows() -> Vec<Method> {
    [coordinates(), sampling()].concat()
}

fn coordinates() -> Vec<Method> {
    vec![
        Method::new("meshgrid", |x| AnyTensor::meshgrid(x.to_vec(), Indexing::Matrix))
            .on(&[normal(&[2]), normal(&[3]), normal(&[2])])
            .on(&[normal(&[2])]),
        Method::new("meshgrid", |x| AnyTensor::meshgrid(x.to_vec(), Indexing::Cartesian))
            .variant("xy")
            .on(&[normal(&[2]), normal(&[3]), normal(&[2])])
            .on(&[normal(&[2])]),
        Method::new("meshgrid_stack", |x| one(AnyTensor::meshgrid_stack(x.to_vec(), Indexing::Matrix, -1)))
            .on(&[normal(&[2]), normal(&[3])]),
        Method::new("cartesian_prod", |x| one(AnyTensor::cartesian_prod(x.to_vec())))
            .on(&[normal(&[2]), normal(&[3])])
            .on(&[normal(&[2]), normal(&[0])]),
        Method::new("combinations", |x| one(x[0].clone().combinations(2, false)))
            .on(&[normal(&[4])])
            .on(&[normal(&[1])]),
        Method::new("combinations", |x| one(x[0].clone().combinations(2, true)))
            .variant("replacement")
            .on(&[normal(&[3])]),
        Method::new("cartesian_grid", |x| one(AnyTensor::cartesian_grid([2, 3], x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient("made from nothing"),
        Method::new("affine_grid_2d", |x| one(x[0].clone().affine_grid_2d([2, 3], false)))
            .on(&[normal(&[2, 2, 3])]),
        Method::new("affine_grid_2d", |x| one(x[0].clone().affine_grid_2d([2, 3], true)))
            .variant("corners")
            .on(&[normal(&[2, 2, 3])]),
        Method::new("affine_grid_3d", |x| one(x[0].clone().affine_grid_3d([2, 1, 3], false)))
            .on(&[normal(&[2, 3, 4])]),
    ]
}

fn options(mode: GridSampleMode, padding: GridPadding, align_corners: bool) -> GridSampleOptions {
    GridSampleOptions { mode, padding, align_corners }
}

fn sampling() -> Vec<Method> {
    use GridPadding::{Border, Reflection, Zeros};
    use GridSampleMode::{Bicubic, Bilinear, Nearest};
    let picture = [normal(&[2, 2, 4, 3]), uniform(-1.6, 1.6, &[2, 2, 3, 2])];
    let volume = [normal(&[1, 2, 3, 2, 3]), uniform(-1.6, 1.6, &[1, 2, 2, 1, 3])];
    macro_rules! row {
        ($method:ident, $variant:literal, $mode:ident, $padding:ident, $corners:literal, $on:expr) => {
            Method::new(stringify!($method), |x| {
                one(x[0].clone().$method(x[1].clone(), options($mode, $padding, $corners)))
            })
            .variant($variant)
            .on(&$on)
            .within(64.0)
            .no_half(STEPS)
        };
    }
    vec![
        row!(grid_sample_2d, "", Bilinear, Zeros, false, picture),
        row!(grid_sample_2d, "border", Bilinear, Border, false, picture),
        row!(grid_sample_2d, "reflection", Bilinear, Reflection, false, picture),
        row!(grid_sample_2d, "corners", Bilinear, Reflection, true, picture),
        row!(grid_sample_2d, "nearest", Nearest, Zeros, false, picture),
        row!(grid_sample_2d, "nearest reflection", Nearest, Reflection, true, picture),
        row!(grid_sample_2d, "bicubic", Bicubic, Zeros, false, picture),
        row!(grid_sample_2d, "bicubic border", Bicubic, Border, true, picture),
        row!(grid_sample_2d, "bicubic reflection", Bicubic, Reflection, false, picture),
        row!(grid_sample_3d, "", Bilinear, Zeros, true, volume),
        row!(grid_sample_3d, "border", Bilinear, Border, false, volume),
        row!(grid_sample_3d, "nearest", Nearest, Reflection, false, volume),
    ]
}
