//! How many allocations an eager op makes: one for the elements, one for the value.

use kiln_backends::Flex;
use kiln_tensor::Tensor;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator as it came; the counter is a plain cell without a
// destructor, so that counting neither allocates nor fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The allocations of one call, after one for warming up.
fn allocations<T>(mut op: impl FnMut() -> T) -> usize {
    drop(op());
    let before = COUNT.with(Cell::get);
    let result = op();
    let after = COUNT.with(Cell::get);
    drop(result);
    after - before
}

/// The most that an eager op may allocate.
const MOST: usize = 2;

#[test]
fn an_eager_op_allocates_twice_at_most() {
    let device = Default::default();
    let a = Tensor::<Flex, 1>::from_floats([1.0], &device);
    let b = Tensor::<Flex, 1>::from_floats([2.0], &device);
    let m = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    let large = Tensor::<Flex, 2>::ones([300, 300], &device);
    let counts = [
        ("add", allocations(|| &a + &b)),
        ("add a number", allocations(|| &a + 1.0)),
        ("exp", allocations(|| a.clone().exp())),
        ("equal", allocations(|| a.clone().equal(b.clone()))),
        ("reshape", allocations(|| a.clone().reshape([1, 1]))),
        ("transpose", allocations(|| m.clone().transpose())),
        ("sum over an axis", allocations(|| m.clone().sum_dim(1))),
        ("matmul", allocations(|| m.clone().matmul(m.clone()))),
        ("add, large", allocations(|| &large + &large)),
    ];
    println!("{counts:?}");
    for (name, count) in counts {
        assert!(count <= MOST, "{name}: {count} allocations, at most {MOST} expected");
    }
}

#[test]
fn an_op_on_an_unshared_tensor_reuses_its_buffer() {
    let device = Default::default();
    let b = Tensor::<Flex, 1>::from_floats([2.0], &device);
    let mut x = Some(Tensor::<Flex, 1>::from_floats([1.0], &device));
    let count = allocations(|| x = x.take().map(|x| x + &b));
    assert!(count <= 1, "{count} allocations in place");
}
