//! MNIST from the checkout, and damaged copies of it.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use kiln_data::vision::{MnistDataset, MnistSplit};
use kiln_data::{DataError, Dataset};

const IMAGES: &str = "t10k-images-idx3-ubyte";
const LABELS: &str = "t10k-labels-idx1-ubyte";

fn idx(rank: u8, sizes: &[u32], elements: &[u8]) -> Vec<u8> {
    let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
    [0, 0, 8, rank].into_iter().chain(sizes).chain(elements.iter().copied()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The bundled files, independent of `KILN_DATA_DIR`.
fn checkout(split: MnistSplit) -> MnistDataset {
    MnistDataset::from_directory(Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist"), split).unwrap()
}

/// Three images and labels in a folder, plain.
fn small(directory: &Path) {
    let pixels: Vec<u8> = (0..3 * 784).map(|pixel| (pixel % 251) as u8).collect();
    fs::write(directory.join(IMAGES), idx(3, &[3, 28, 28], &pixels)).unwrap();
    fs::write(directory.join(LABELS), idx(1, &[3], &[7, 0, 9])).unwrap();
}

/// The error message of reading a folder of three images in which `bytes` replace the file `name`.
fn complaint(name: &str, bytes: &[u8]) -> String {
    let root = tempfile::tempdir().unwrap();
    small(root.path());
    fs::remove_file(root.path().join(name.trim_end_matches(".gz"))).unwrap();
    fs::write(root.path().join(name), bytes).unwrap();
    let error = MnistDataset::from_directory(root.path(), MnistSplit::Test).unwrap_err();
    let prefix = format!("{}{}", root.path().display(), std::path::MAIN_SEPARATOR);
    error.to_string().replace(&prefix, "")
}

#[test]
fn real_data() {
    let test = checkout(MnistSplit::Test);
    assert_eq!(test.len(), 10_000);
    assert_eq!(test.labels()[..10], [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]);
    let first = test.get(0).unwrap();
    assert_eq!(first.label, 7);
    assert_eq!(first.image, test.images()[0]);
    // The corners are background, the bar of the seven is foreground.
    assert_eq!(first.image[0], [0; 28]);
    assert!(first.image[8].iter().any(|pixel| *pixel > 200));
    assert_eq!(test.get(10_000), None);
    assert_eq!(format!("{test:?}"), "MnistDataset { len: 10000, .. }");
}

#[test]
fn mean_and_std_match_the_training_split() {
    let train = checkout(MnistSplit::Train);
    assert_eq!(train.len(), 60_000);
    let pixels = train.images().as_flattened().as_flattened();
    let count = pixels.len() as f64;
    let mean = pixels.iter().map(|pixel| f64::from(*pixel)).sum::<f64>() / count / 255.0;
    let squares = pixels.iter().map(|pixel| (f64::from(*pixel) / 255.0 - mean).powi(2)).sum::<f64>();
    assert!((mean - f64::from(MnistDataset::MEAN)).abs() < 1e-5, "{mean}");
    assert!(
        ((squares / count).sqrt() - f64::from(MnistDataset::STD)).abs() < 1e-5,
        "{}",
        (squares / count).sqrt()
    );
    for digit in 0..10 {
        assert!(train.labels().iter().filter(|label| **label == digit).count() > 5_000);
    }
}

#[test]
fn plain_and_gzipped_files_read_the_same() {
    let root = tempfile::tempdir().unwrap();
    small(root.path());
    let plain = MnistDataset::from_directory(root.path(), MnistSplit::Test).unwrap();
    assert_eq!(plain.labels(), [7, 0, 9]);
    assert_eq!(plain.get(1).unwrap().image[0][0], (784 % 251) as u8);
    assert_eq!(plain.get(0).unwrap().image[1][2], 30);
    for name in [IMAGES, LABELS] {
        let bytes = fs::read(root.path().join(name)).unwrap();
        fs::write(root.path().join(format!("{name}.gz")), gzip(&bytes)).unwrap();
        fs::remove_file(root.path().join(name)).unwrap();
        assert_eq!(MnistDataset::from_directory(root.path(), MnistSplit::Test).unwrap(), plain);
    }
}

#[test]
fn a_missing_file_error_lists_the_searched_folders() {
    let root = tempfile::tempdir().unwrap();
    small(root.path());
    let error = MnistDataset::from_directory(root.path(), MnistSplit::Train).unwrap_err();
    let expected = format!(
        "train-images-idx3-ubyte files not found; looked in:\n    {}\n  \
         hint: put train-images-idx3-ubyte.gz or train-images-idx3-ubyte there",
        root.path().display()
    );
    assert_eq!(error.to_string(), expected);
    fs::remove_file(root.path().join(LABELS)).unwrap();
    let error = MnistDataset::from_directory(root.path(), MnistSplit::Test).unwrap_err();
    assert!(error.to_string().starts_with("t10k-labels-idx1-ubyte files not found"), "{error}");
}

#[test]
fn truncation() {
    let labels = idx(1, &[10_000], &[1; 115]);
    let expected = "truncated at byte 123: expected 10008 bytes";
    assert_eq!(complaint(LABELS, &labels), format!("{LABELS}: {expected}"));
    let name = format!("{LABELS}.gz");
    assert_eq!(complaint(&name, &gzip(&labels)), format!("{name}: {expected}"));

    assert_eq!(complaint(IMAGES, &[]), format!("{IMAGES}: truncated at byte 0: expected 4 bytes"));
    assert_eq!(complaint(IMAGES, &[0, 0, 8]), format!("{IMAGES}: truncated at byte 3: expected 4 bytes"));
    let header = &idx(3, &[3, 28, 28], &[])[..9];
    assert_eq!(complaint(IMAGES, header), format!("{IMAGES}: truncated at byte 9: expected 16 bytes"));
}

/// A gzip file cut off at any byte is an error that names the file.
#[test]
fn truncated_gzip() {
    let name = format!("{LABELS}.gz");
    let whole = gzip(&idx(1, &[3], &[7, 0, 9]));
    for len in 0..whole.len() {
        let text = complaint(&name, &whole[..len]);
        assert!(text.starts_with(&format!("{name}: truncated at byte ")), "cut at {len}: {text}");
    }
}

#[test]
fn trailing_bytes_are_errors() {
    let long = idx(1, &[3], &[7, 0, 9, 1]);
    let expected = "unexpected data from byte 11 on: the header declares 11 bytes";
    assert_eq!(complaint(LABELS, &long), format!("{LABELS}: {expected}"));
    let name = format!("{LABELS}.gz");
    assert_eq!(complaint(&name, &gzip(&long)), format!("{name}: {expected}"));
    let mut garbage = gzip(&idx(1, &[3], &[7, 0, 9]));
    garbage.extend(b"garbage after the gzip stream");
    assert!(complaint(&name, &garbage).starts_with(&format!("{name}: at byte 11: corrupt gzip stream")));
}

#[test]
fn wrong_headers_are_errors() {
    assert_eq!(
        complaint(LABELS, b"PK\x03\x04 a zip file"),
        format!(
            "{LABELS}: at byte 0: not an IDX file: starts with [50, 4b, 03, 04] instead of [00, 00, type, rank]"
        )
    );
    assert_eq!(
        complaint(LABELS, &[0, 0, 0x0d, 1, 0, 0, 0, 0]),
        format!("{LABELS}: at byte 2: IDX element type 0x0d is not supported, only 0x08 (unsigned byte)")
    );
    assert_eq!(
        complaint(LABELS, &idx(3, &[3, 28, 28], &[])),
        format!("{LABELS}: at byte 3: labels have sizes [3, 28, 28], expected [count]")
    );
    assert_eq!(
        complaint(IMAGES, &idx(1, &[3], &[1, 2, 3])),
        format!("{IMAGES}: at byte 3: images have sizes [3], expected [count, 28, 28]")
    );
    assert!(complaint(IMAGES, &idx(3, &[3, 27, 28], &[])).contains("images have sizes [3, 27, 28]"));
    assert_eq!(
        complaint(IMAGES, &[0, 0, 8, 255]),
        format!("{IMAGES}: truncated at byte 4: expected 1024 bytes")
    );
}

#[test]
fn oversized_dims_are_refused_before_reading() {
    let expected = format!("{IMAGES}: at byte 4: declared sizes [4294967295, 28, 28] exceed the limit of ");
    assert!(complaint(IMAGES, &idx(3, &[u32::MAX, 28, 28], &[])).starts_with(&expected));
    assert!(complaint(LABELS, &idx(1, &[u32::MAX], &[])).contains("[4294967295] exceed the limit of 300000"));
    // Within the limit, but far more than the file holds.
    assert!(
        complaint(LABELS, &idx(1, &[300_000], &[])).contains("truncated at byte 8: expected 300008 bytes")
    );
}

/// A gzip stream that expands to a gigabyte is read no further than its header allows.
#[test]
fn decompression_is_bounded() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&idx(1, &[3], &[])).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..64 {
        encoder.write_all(&zeros).unwrap();
    }
    let name = format!("{LABELS}.gz");
    let text = complaint(&name, &encoder.finish().unwrap());
    assert_eq!(text, format!("{name}: unexpected data from byte 11 on: the header declares 11 bytes"));
}

#[test]
fn invalid_label_errors_name_the_byte() {
    assert_eq!(
        complaint(LABELS, &idx(1, &[3], &[7, 10, 255])),
        format!("{LABELS}: at byte 9: label 10 of image 1 is not a digit from 0 to 9")
    );
}

#[test]
fn counts_must_agree() {
    let text = complaint(LABELS, &idx(1, &[2], &[7, 0]));
    assert_eq!(text, format!("{LABELS}: at byte 4: 2 labels declared, but {IMAGES} holds 3 images"));
}

#[test]
fn corrupt_gzip() {
    let name = format!("{LABELS}.gz");
    let whole = gzip(&idx(1, &[3], &[7, 0, 9]));
    let mut bad_checksum = whole.clone();
    let crc = whole.len() - 8;
    bad_checksum[crc] ^= 1;
    let text = complaint(&name, &bad_checksum);
    assert!(text.starts_with(&format!("{name}: at byte 11: corrupt gzip stream: ")), "{text}");
    let mut bad_method = whole;
    bad_method[2] = 99;
    assert!(complaint(&name, &bad_method).starts_with(&format!("{name}: at byte 0: corrupt gzip stream: ")));
}

#[test]
fn an_unreadable_file_is_an_io_error() {
    let path = Path::new("no/such/file");
    let error = kiln_data::idx::IdxReader::open(path).unwrap_err();
    assert!(matches!(&error, DataError::Io { path: named, .. } if named == path), "{error:?}");
    let expected =
        "no/such/file: there is no such file or folder\n  hint: expected a file of the dataset; the folder ";
    assert!(error.to_string().starts_with(expected), "{error}");
}
