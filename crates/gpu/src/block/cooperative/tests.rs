use super::interpret::run;
use super::*;
use crate::driver::{DevicePtr, Epilogue};
use kiln_kernel::print::{Dialect, Target, block};
use naga::back::{msl, spv};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use std::sync::Arc;

/// The cooperative matrices of that size with `f32` sums.
fn unit(size: usize, factors: DType, threads: usize) -> CooperativeMatrix {
    CooperativeMatrix { rows: size, columns: size, inner: size, factors, sums: DType::F32, threads }
}

/// Those of NVIDIA, of Apple (both dtypes), of lavapipe, and of GPUs with wide subgroups.
fn units() -> [CooperativeMatrix; 5] {
    [
        unit(16, DType::F16, 32),
        unit(8, DType::F16, 32),
        unit(8, DType::F32, 32),
        unit(8, DType::F16, 8),
        unit(16, DType::F16, 64),
    ]
}

fn info(units: &[CooperativeMatrix]) -> DeviceInfo {
    DeviceInfo { cooperative_matrices: units.to_vec(), ..DeviceInfo::absent("") }
}

/// Matmuls of contiguous matrices.
fn products(count: usize, [rows, columns, inner]: [usize; 3], transposed: [bool; 2]) -> Products<()> {
    let at = || DevicePtr::new(Arc::new(()), 0);
    let matrices = |[down, across]: [usize; 2], transposed: bool| Matrices {
        at: at(),
        transposed,
        leading_dim: if transposed { down } else { across },
        step: down * across,
    };
    Products {
        count,
        rows,
        columns,
        inner,
        dtype: DType::F16,
        result: DType::F16,
        float8: None,
        factors: [matrices([rows, inner], transposed[0]), matrices([inner, columns], transposed[1])],
        to: at(),
        epilogue: Epilogue::default(),
    }
}

/// All layouts and dtypes of results of a unit, on tiles of both extents.
fn kernels(unit: &CooperativeMatrix) -> Vec<(Tile, BlockKernel)> {
    let mut list = Vec::new();
    for (extent, result) in [(128, DType::F32), (64, DType::F32), (64, DType::F16)] {
        for (transposed, words) in
            [([false, false], 2), ([true, true], 2), ([false, true], 1), ([true, false], 1)]
        {
            let is_half = unit.factors == DType::F16;
            if result == DType::F16 && !is_half {
                continue;
            }
            let read = [if is_half { words } else { 1 }; 2];
            let written = if result == DType::F16 { words } else { 1 };
            let form = Form { dtype: unit.factors, result, transposed, read, written };
            let tile = Tile::new(extent, unit);
            list.push((tile, matmul(form, tile)));
        }
    }
    list
}

#[test]
fn kernels_are_valid_in_the_languages_of_apis_with_cooperative_matrices() {
    for unit in units() {
        for (_, kernel) in kernels(&unit) {
            let (text, entry) = block(&kernel, &Target::new(Dialect::Wgsl)).unwrap();
            assert_eq!(entry.parameters.len(), 10);
            let module = naga::front::wgsl::parse_str(&text)
                .unwrap_or_else(|error| panic!("{}\n{text}", error.emit_to_string(&text)));
            let info = Validator::new(ValidationFlags::all(), Capabilities::all())
                .validate(&module)
                .unwrap_or_else(|error| panic!("{}\n{text}", error.emit_to_string(&text)));
            let options = spv::Options { lang_version: (1, 6), ..spv::Options::default() };
            spv::write_vec(&module, &info, &options, None).unwrap();
            if unit.rows == 8 {
                let options = msl::Options { lang_version: (2, 4), ..msl::Options::default() };
                msl::write_string(&module, &info, &options, &msl::PipelineOptions::default()).unwrap();
            }
        }
    }
}

#[test]
fn tiles_need_no_more_shared_memory_than_they_say() {
    for unit in units() {
        for (tile, kernel) in kernels(&unit) {
            let sums: usize = kernel.shared.iter().map(|array| 4 * array.len).sum();
            let tiles: usize = kernel.tiles.iter().map(|tile| tile.bytes()).sum();
            assert!(sums + tiles <= tile.shared_bytes(unit.factors), "{tile:?}");
            assert_eq!(kernel.threads as usize, tile.threads());
        }
    }
    let bytes = |extent, unit: &CooperativeMatrix| Tile::new(extent, unit).shared_bytes(unit.factors);
    let [nvidia, _, apple, ..] = units();
    assert!(bytes(128, &nvidia) <= 32 << 10 && bytes(64, &nvidia) <= 16 << 10);
    assert!(bytes(64, &apple) <= 32 << 10);
}

/// An element of a factor; sums of products are exact in all dtypes.
fn element(number: usize) -> f64 {
    (number * 7 % 5) as f64 - 2.0
}

/// Interprets the kernel of a tile, and compares with the definition of a matmul.
fn assert_multiplies(products: &Products<()>, tile: Tile) {
    let form = Form::of(products);
    let Products { count, rows, columns, inner, .. } = *products;
    let [a, b] =
        [rows * inner, inner * columns].map(|length| (0..count * length).map(element).collect::<Vec<f64>>());
    let [left, right] = &products.factors;
    let numbers = [rows, columns, inner, left.leading_dim, left.step, right.leading_dim, right.step];
    let mut arguments = vec![a.clone(), b.clone(), vec![f64::NAN; count * rows * columns]];
    arguments.extend(numbers.map(|number| vec![number as f64]));
    run(&matmul(form, tile), tile.blocks(count, [rows, columns]), tile.lanes, &mut arguments);
    let at = |matrices: &Matrices<()>, batch: usize, row: usize, column: usize| {
        let [row, column] = if matrices.transposed { [column, row] } else { [row, column] };
        batch * matrices.step + row * matrices.leading_dim + column
    };
    for (number, sum) in arguments[2].iter().enumerate() {
        let (line, column) = (number / columns, number % columns);
        let (batch, row) = (line / rows, line % rows);
        let product = |inner| a[at(left, batch, row, inner)] * b[at(right, batch, inner, column)];
        let expected: f64 = (0..inner).map(product).sum();
        assert_eq!(*sum, expected, "{form:?} {tile:?}: row {row}, column {column} of matrix {batch}");
    }
}

#[test]
fn kernels_multiply_all_layouts_and_edges() {
    for unit in units() {
        for (sizes, transposed) in [
            ([33, 37, 17], [false, false]),
            ([40, 66, 34], [true, true]),
            ([64, 64, 32], [false, true]),
            ([70, 34, 18], [true, false]),
        ] {
            let products = Products { dtype: unit.factors, ..products(1, sizes, transposed) };
            let result = if unit.factors == DType::F16 { DType::F16 } else { DType::F32 };
            assert_multiplies(&Products { result, ..products }, Tile::new(64, &unit));
        }
    }
}

#[test]
fn large_tiles_and_batches_are_multiplied() {
    let nvidia = units()[0];
    let wide = Products { result: DType::F32, ..products(1, [130, 96, 40], [false, false]) };
    assert_multiplies(&wide, Tile::new(128, &nvidia));
    assert_multiplies(&products(3, [34, 36, 16], [true, false]), Tile::new(64, &nvidia));
    // The batch broadcasts one right factor.
    let mut broadcast = products(2, [32, 40, 20], [false, true]);
    broadcast.factors[1].step = 0;
    assert_multiplies(&broadcast, Tile::new(64, &nvidia));
}

#[test]
fn words_are_read_and_written_where_lines_have_whole_ones() {
    let of = |sizes, transposed| Form::of(&products(2, sizes, transposed));
    let even = of([32, 34, 36], [false, false]);
    assert_eq!((even.read, even.written), ([2, 2], 2));
    let odd_inner = of([32, 34, 37], [false, false]);
    assert_eq!((odd_inner.read, odd_inner.written), ([1, 2], 2));
    let odd_columns = of([32, 33, 36], [false, true]);
    assert_eq!((odd_columns.read, odd_columns.written), ([2, 2], 1));
    let odd_rows = of([33, 34, 36], [true, false]);
    assert_eq!(odd_rows.read, [1, 2]);
    let mut shifted = products(1, [32, 32, 32], [false, false]);
    shifted.factors[0].at.offset = 2;
    shifted.to.offset = 6;
    let shifted = Form::of(&shifted);
    assert_eq!((shifted.read, shifted.written), ([1, 2], 1));
    let single = Products { dtype: DType::F32, ..products(1, [32, 32, 32], [false, false]) };
    assert_eq!(Form::of(&single).read, [1, 1]);
}

#[test]
fn matrices_multiply_where_the_device_has_them() {
    let nvidia = info(&units()[..1]);
    let large = products(1, [2048, 2048, 512], [false, false]);
    let (_, tile) = choose(&large, &nvidia).unwrap();
    assert_eq!((tile.extent, tile.threads()), (128, 256));
    let (_, tile) = choose(&products(1, [256, 256, 512], [false, false]), &nvidia).unwrap();
    assert_eq!((tile.extent, tile.threads()), (64, 128));
    assert!(choose(&large, &info(&[])).is_none());
    for sizes in [[31, 64, 64], [64, 31, 64], [64, 64, 15]] {
        assert!(choose(&products(1, sizes, [false, false]), &nvidia).is_none(), "{sizes:?}");
    }
    let single = Products { dtype: DType::F32, result: DType::F32, ..products(1, [64; 3], [false; 2]) };
    assert!(choose(&single, &nvidia).is_none());
    assert!(choose(&single, &info(&units())).is_some());
    let brain = Products { result: DType::BF16, ..products(1, [64; 3], [false; 2]) };
    assert!(choose(&brain, &nvidia).is_none());
}

#[test]
fn devices_with_less_memory_or_fewer_threads_have_small_tiles() {
    let large = products(1, [2048, 2048, 512], [false, false]);
    let extent = |info: DeviceInfo| choose(&large, &info).map(|(_, tile)| tile.extent);
    let nvidia = info(&units()[..1]);
    assert_eq!(extent(DeviceInfo { shared_bytes: 16 << 10, ..nvidia.clone() }), Some(64));
    assert_eq!(extent(DeviceInfo { block_threads: 128, ..nvidia.clone() }), Some(64));
    assert_eq!(extent(DeviceInfo { shared_bytes: 8 << 10, ..nvidia }), None);
    let sums = CooperativeMatrix { sums: DType::F16, ..unit(16, DType::F16, 32) };
    let oblong = CooperativeMatrix { columns: 8, ..unit(16, DType::F16, 32) };
    assert_eq!(extent(info(&[sums, oblong])), None);
}
