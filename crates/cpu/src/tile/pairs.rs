//! Two fused arithmetic functions in one pass over a tile: the first result stays in a register. Both round, as in two
//! passes.

use crate::isa::Level;
use crate::kernels::Loop3;
use crate::math::vector::{self, Single, Work};
use core::marker::PhantomData;
use core::ops;
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

/// A function of floats, or of vectors of them.
trait Function {
    fn of<V: ops::Add<Output = V> + ops::Sub<Output = V> + ops::Mul<Output = V>>(a: V, b: V) -> V;
}

macro_rules! functions {
    ($($name:ident: |$a:ident, $b:ident| $result:expr;)*) => {$(
        struct $name;

        impl Function for $name {
            #[inline(always)]
            fn of<V: ops::Add<Output = V> + ops::Sub<Output = V> + ops::Mul<Output = V>>($a: V, $b: V) -> V {
                $result
            }
        }
    )*};
}

functions! {
    Add: |a, b| a + b;
    Sub: |a, b| a - b;
    SubFrom: |a, b| b - a;
    Mul: |a, b| a * b;
}

/// Elements that are read together before their results are written: at least a vector of each level.
const LANES: usize = 16;

/// The other operand of a function: a tile or a number.
trait Part: Copy {
    /// # Safety
    /// There is a number at the address, or a tile.
    unsafe fn new(address: *const u8) -> Self;

    /// # Safety
    /// The processor has the vectors, and a tile has elements from `i` on for one.
    unsafe fn vector<V: Single>(self, i: usize) -> V;

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
    unsafe fn vector<V: Single>(self, _: usize) -> V {
        V::splat(self)
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
    unsafe fn vector<V: Single>(self, i: usize) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load(self.add(i)) }
    }

    #[inline(always)]
    unsafe fn lane(self, i: usize) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { self.add(i).read() }
    }
}

/// `F(G(a, b), c)` of `n` elements. The result may be exactly the memory of an operand.
struct Pair<F, G, B, C> {
    a: *const f32,
    b: B,
    c: C,
    y: *mut f32,
    n: usize,
    functions: PhantomData<(F, G)>,
}

impl<F: Function, G: Function, B: Part, C: Part> Work for &Pair<F, G, B, C> {
    /// Explicit vectors: the compiler vectorizes loops over fixed numbers of lanes by gathers and scatters.
    #[inline(always)]
    unsafe fn run<V: Single>(self) {
        for i in (0..self.n / LANES * LANES).step_by(V::LANES) {
            // SAFETY: the pair has these elements, which are read before their results are written.
            unsafe {
                let result = G::of(V::load(self.a.add(i)), self.b.vector(i));
                F::of(result, self.c.vector(i)).store(self.y.add(i));
            }
        }
    }
}

impl<F: Function, G: Function, B: Part, C: Part> Pair<F, G, B, C> {
    /// # Safety
    /// The element exists.
    #[inline(always)]
    unsafe fn lane(&self, i: usize) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { F::of(G::of(*self.a.add(i), self.b.lane(i)), self.c.lane(i)) }
    }

    /// Computes whole groups of lanes where the level has no vectors.
    ///
    /// # Safety
    /// The elements exist.
    unsafe fn groups(&self) {
        for i in (0..self.n / LANES * LANES).step_by(LANES) {
            // SAFETY: as the caller promises.
            unsafe {
                let results: [f32; LANES] = core::array::from_fn(|lane| self.lane(i + lane));
                self.y.add(i).cast::<[f32; LANES]>().write(results);
            }
        }
    }
}

unsafe fn pair<F: Function, G: Function, B: Part, C: Part>(
    level: Level,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    y: *mut u8,
    n: usize,
) {
    // SAFETY: as `Loop3` says, with one element where an operand is a number.
    unsafe {
        let (b, c, y) = (B::new(b), C::new(c), y.cast::<f32>());
        let pair = Pair::<F, G, B, C> { a: a.cast(), b, c, y, n, functions: PhantomData };
        if let Err(pair) = vector::run(level, &pair) {
            pair.groups();
        }
        for i in n / LANES * LANES..n {
            y.add(i).write(pair.lane(i));
        }
    }
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

fn after<G: Function>(second: Arithmetic, numbers: [bool; 2]) -> Loop3 {
    match second {
        Arithmetic::Add => of::<Add, G>(numbers),
        Arithmetic::Sub => of::<Sub, G>(numbers),
        Arithmetic::SubFrom => of::<SubFrom, G>(numbers),
        Arithmetic::Mul => of::<Mul, G>(numbers),
    }
}

fn of<F: Function, G: Function>(numbers: [bool; 2]) -> Loop3 {
    match numbers {
        [false, false] => pair::<F, G, *const f32, *const f32>,
        [false, true] => pair::<F, G, *const f32, f32>,
        [true, false] => pair::<F, G, f32, *const f32>,
        [true, true] => pair::<F, G, f32, f32>,
    }
}
