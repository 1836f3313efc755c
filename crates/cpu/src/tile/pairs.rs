//! Two fused arithmetic functions in one pass over a tile: the first result stays in a register. Both round, as in two
//! passes.

use crate::isa::{Level, Widest, multiversion};
use crate::kernels::{Add, Loop3, Map2, Mul, Sub, read, written};
use core::mem::MaybeUninit;
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

/// The other operand of a function: a tile or a number.
trait Part: Copy {
    /// # Safety
    /// There are `n` elements, or one for a number.
    unsafe fn at(address: *const u8, n: usize) -> Self;
    fn get(self, i: usize) -> f32;
}

impl Part for f32 {
    #[inline(always)]
    unsafe fn at(address: *const u8, _: usize) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { *address.cast() }
    }

    #[inline(always)]
    fn get(self, _: usize) -> f32 {
        self
    }
}

impl Part for &[f32] {
    #[inline(always)]
    unsafe fn at(address: *const u8, n: usize) -> Self {
        // SAFETY: as the caller promises.
        unsafe { read(address, n) }
    }

    #[inline(always)]
    fn get(self, i: usize) -> f32 {
        self[i]
    }
}

multiversion! {
    fn each[F: Map2<f32, f32>, G: Map2<f32, f32>, B: Part, C: Part]<F, G, B, C> in { Widest::Avx512 } (
        addresses: [*const u8; 3],
        y: &mut [MaybeUninit<f32>],
    ) {
        let n = y.len();
        let [a, b, c] = addresses;
        // SAFETY: `pair` promises that there are as many elements as in `y`.
        let (a, b, c) = unsafe { (read::<f32>(a, n), B::at(b, n), C::at(c, n)) };
        for i in 0..n {
            y[i].write(F::map(G::map(a[i], b.get(i)), c.get(i)));
        }
    }
}

/// `F(G(a, b), c)`
unsafe fn pair<F: Map2<f32, f32>, G: Map2<f32, f32>, B: Part, C: Part>(
    level: Level,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    y: *mut u8,
    n: usize,
) {
    // SAFETY: as `Loop3` says, with one element where an operand is a number.
    let y = unsafe { written(y, n) };
    each::<F, G, B, C>(level, [a, b, c], y);
}

/// The loop of `second(first(a, b), c)` in `f32`, where `b` and `c` may be numbers.
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
        [false, false] => pair::<F, G, &[f32], &[f32]>,
        [false, true] => pair::<F, G, &[f32], f32>,
        [true, false] => pair::<F, G, f32, &[f32]>,
        [true, true] => pair::<F, G, f32, f32>,
    }
}
