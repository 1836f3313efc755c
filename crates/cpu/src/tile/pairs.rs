//! Two fused arithmetic functions in one pass over a tile: the first result stays in a register. Both round, as in two
//! passes.

use crate::isa::{Level, Widest, multiversion};
use crate::kernels::{Add, Loop3, Map2, Mul, Sub};
use kiln_ir::Binary;

/// A function of the preceding result, which is its left operand, and of another operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arithmetic {
    Add,
    Sub,
    /// Subtracts the left operand from the other.
    SubFrom,
    Mul,
}

impl Arithmetic {
    /// The function, with exchanged operands if requested. `None` for functions without a loop here.
    pub(super) fn of(function: Binary, exchanged: bool) -> Option<Arithmetic> {
        match function {
            Binary::Add => Some(Arithmetic::Add),
            Binary::Sub if exchanged => Some(Arithmetic::SubFrom),
            Binary::Sub => Some(Arithmetic::Sub),
            Binary::Mul => Some(Arithmetic::Mul),
            Binary::Div
            | Binary::Rem
            | Binary::Pow
            | Binary::Min
            | Binary::Max
            | Binary::Atan2
            | Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::Shl
            | Binary::Shr => None,
        }
    }
}

struct SubFrom;

impl Map2<f32, f32> for SubFrom {
    const WIDEST: Widest = Widest::Avx512;
    #[inline(always)]
    fn map(a: f32, b: f32) -> f32 {
        b - a
    }
}

/// Elements that are read together before their results are written.
const LANES: usize = 16;

/// The other operand of a function: a tile or a number.
trait Part: Copy {
    /// # Safety
    /// There is a number at the address, or a tile.
    unsafe fn new(address: *const u8) -> Self;

    /// # Safety
    /// A tile has elements `i..i + LANES`.
    unsafe fn lanes(self, i: usize) -> [f32; LANES];

    /// # Safety
    /// A tile has an element `i`.
    unsafe fn lane(self, i: usize) -> f32;
}

impl Part for f32 {
    #[inline(always)]
    unsafe fn new(address: *const u8) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { *address.cast() }
    }

    #[inline(always)]
    unsafe fn lanes(self, _: usize) -> [f32; LANES] {
        [self; LANES]
    }

    #[inline(always)]
    unsafe fn lane(self, _: usize) -> f32 {
        self
    }
}

impl Part for *const f32 {
    #[inline(always)]
    unsafe fn new(address: *const u8) -> Self {
        address.cast()
    }

    #[inline(always)]
    unsafe fn lanes(self, i: usize) -> [f32; LANES] {
        // SAFETY: as the caller promises.
        unsafe { self.add(i).cast::<[f32; LANES]>().read() }
    }

    #[inline(always)]
    unsafe fn lane(self, i: usize) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { self.add(i).read() }
    }
}

multiversion! {
    // Slices of operands and result would have to be disjoint.
    fn each[F: Map2<f32, f32>, G: Map2<f32, f32>, B: Part, C: Part]<F, G, B, C> in { Widest::Avx512 } (
        a: *const f32,
        b: B,
        c: C,
        y: *mut f32,
        n: usize,
    ) {
        let whole = n / LANES * LANES;
        for i in (0..whole).step_by(LANES) {
            // SAFETY: `pair` promises `n` elements.
            let (a, b, c) = unsafe { (a.lanes(i), b.lanes(i), c.lanes(i)) };
            let mut results = [0.0; LANES];
            for lane in 0..LANES {
                results[lane] = F::map(G::map(a[lane], b[lane]), c[lane]);
            }
            // SAFETY: as above.
            unsafe { y.add(i).cast::<[f32; LANES]>().write(results) };
        }
        for i in whole..n {
            // SAFETY: as above.
            unsafe { y.add(i).write(F::map(G::map(a.lane(i), b.lane(i)), c.lane(i))) };
        }
    }
}

/// `F(G(a, b), c)`. The result may be written to the memory of an operand.
unsafe fn pair<F: Map2<f32, f32>, G: Map2<f32, f32>, B: Part, C: Part>(
    level: Level,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    y: *mut u8,
    n: usize,
) {
    // SAFETY: as `Loop3` says, with one element where an operand is a number.
    let (b, c) = unsafe { (B::new(b), C::new(c)) };
    each::<F, G, B, C>(level, a.cast(), b, c, y.cast(), n);
}

/// The loop of `second(first(a, b), c)` in `f32`, where `b` and `c` may be numbers. The result may be exactly the
/// memory of an operand that is a tile: elements are read before their results are written.
pub(super) fn pair_of(first: Arithmetic, second: Arithmetic, numbers: [bool; 2]) -> Loop3 {
    match first {
        Arithmetic::Add => after::<Add>(second, numbers),
        Arithmetic::Sub => after::<Sub>(second, numbers),
        Arithmetic::SubFrom => after::<SubFrom>(second, numbers),
        Arithmetic::Mul => after::<Mul>(second, numbers),
    }
}

fn after<G: Map2<f32, f32>>(second: Arithmetic, numbers: [bool; 2]) -> Loop3 {
    match second {
        Arithmetic::Add => of::<Add, G>(numbers),
        Arithmetic::Sub => of::<Sub, G>(numbers),
        Arithmetic::SubFrom => of::<SubFrom, G>(numbers),
        Arithmetic::Mul => of::<Mul, G>(numbers),
    }
}

fn of<F: Map2<f32, f32>, G: Map2<f32, f32>>(numbers: [bool; 2]) -> Loop3 {
    match numbers {
        [false, false] => pair::<F, G, *const f32, *const f32>,
        [false, true] => pair::<F, G, *const f32, f32>,
        [true, false] => pair::<F, G, f32, *const f32>,
        [true, true] => pair::<F, G, f32, f32>,
    }
}
