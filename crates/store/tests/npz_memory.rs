//! Memory of the writer of `.npz` files: one array at a time.
//!
//! One test in this program, so that nothing else allocates while it measures.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use kiln_store::numpy::{self, Archive, Compression};
use kiln_store::{SaveOptions, Weights, save_tensors};
use kiln_tensor::TensorData;

static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

/// Counts the bytes that live, and their maximum.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn add(bytes: isize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came; counting neither allocates nor fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as isize - layout.size() as isize);
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The bytes that a function allocates at most at the same time.
fn peak(run: impl FnOnce()) -> isize {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    run();
    PEAK.load(Ordering::Relaxed) - before
}

const ARRAYS: usize = 16;
/// The length of an array in elements: 512 KiB of `f32`.
const LENGTH: usize = 1 << 17;
const BYTES: isize = 4 * LENGTH as isize;

/// Arrays that are computed when they are asked for.
fn arrays() -> impl Iterator<Item = (String, TensorData)> {
    (0..ARRAYS).map(|index| {
        let values: Vec<f32> = (0..LENGTH).map(|i| ((i * (index + 7)) % 251) as f32).collect();
        (format!("array{index}"), TensorData::new(values, [LENGTH]).unwrap())
    })
}

#[test]
fn one_array_is_in_memory_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    for compression in [Compression::Stored, Compression::Deflated] {
        let path = folder.path().join("computed.npz");
        let used = peak(|| numpy::write_archive(&path, arrays(), compression).unwrap());
        println!("{compression:?}: {} KiB at most, of {ARRAYS} arrays of 512 KiB", used >> 10);
        assert!(used < 4 * BYTES, "{compression:?}: {used} bytes");
        let archive = Archive::open(&path).unwrap();
        assert_eq!(archive.len(), ARRAYS);
        let (name, last) = arrays().last().unwrap();
        assert_eq!(archive.read(&name).unwrap(), last);
    }
    let source = folder.path().join("model.safetensors");
    save_tensors(&source, arrays(), &Default::default()).unwrap();
    let weights = Weights::open(&source).unwrap();
    let path = folder.path().join("converted.npz");
    let used = peak(|| weights.save(&path, &SaveOptions::new()).unwrap());
    println!("converted: {} KiB at most", used >> 10);
    assert!(used < 4 * BYTES, "{used} bytes");
    assert_eq!(Archive::open(&path).unwrap().read("array15").unwrap(), arrays().last().unwrap().1);
}
