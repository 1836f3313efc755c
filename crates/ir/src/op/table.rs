//! The table of ops: one row for each kind, with the facts that do not depend on attributes.
//!
//! `None` in a column means that the attributes decide; one `match` in the file that reads the column then does.
//! Gradients, expansions and inference are code, in [`vjp`](crate::vjp), [`expand`](crate::expand()) and
//! [`infer`](mod@crate::infer).

use super::{FunctionInfo, Op};
use crate::{Gradient, Saved};

/// The properties of every op of a kind: a row of [`OPS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// The kind that the row describes.
    pub kind: OpKind,
    /// The name in the text form, or the common stem of all names of the kind.
    pub name: &'static str,
    /// The group of ops that it belongs to.
    pub class: OpClass,
    /// The least and the greatest number of operands.
    pub operands: Option<(u8, u8)>,
    /// The kind of its gradient.
    pub gradient: Option<Gradient>,
    /// The operands and results that the gradient rule reads.
    pub saved: Option<Saved>,
    /// The operands in which the results are linear.
    pub linearity: Option<Linearity>,
    /// The operands that a result of the same type may overwrite.
    pub reuse: Option<Reuse>,
    /// Arithmetic operations.
    pub flops: Option<Flops>,
    /// Bytes read and written.
    pub traffic: Traffic,
    /// The precision under [mixed precision](Precision).
    pub precision: Option<Precision>,
    /// Its role in fused regions.
    pub role: Role,
    /// The attributes that depend on the lengths of tensors.
    pub lengths: Lengths,
    /// Further properties, as a union of constants such as [`CHEAP`].
    pub properties: u8,
}

impl OpInfo {
    /// Whether all these properties hold.
    #[inline]
    pub const fn is(&self, properties: u8) -> bool {
        self.properties & properties == properties
    }
}

/// A property: memory-bound, so that recomputing the result costs little more than reading it.
pub const CHEAP: u8 = 1;
/// A property: has no expansion. The kinds with it are [`MINIMAL`](crate::MINIMAL).
pub const PRIMITIVE: u8 = 2;
/// A property: the op may fail on operands without poison, because of an element out of range or a device error.
pub const FAILS: u8 = 4;
/// A property: the op may fail because an index is out of range along its axis.
pub const FAILS_BY_INDEX: u8 = 8;
/// A property: executes immediately, and is never recorded. The result shape of `NonZero` is known only after it has
/// run, custom ops run user code, and collectives wait for other members.
pub const IMMEDIATE: u8 = 16;
/// A property: runs even if an operand is poisoned, since poison does not propagate to all results.
pub const STOPS_POISON: u8 = 32;
/// A property: every tensor operand or result has at least one axis.
pub const NEEDS_AXIS: u8 = 64;
/// A property: a view that reorders or repeats the elements, and never drops any.
pub const REARRANGES: u8 = 128;

/// A group of ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Creates a tensor from numbers, or from nothing.
    Creation,
    /// Computes each element of the result from the elements at the same position.
    Elementwise,
    /// Reinterprets the same elements in another shape, order or dtype; free on engines with strides.
    View,
    /// Copies elements to other positions.
    Movement,
    /// Reduces elements, or scans along an axis.
    Reduction,
    /// Sorts elements.
    Sorting,
    /// Reads or writes at indices.
    Indexing,
    /// Checks data, or removes poison.
    Validity,
    /// Sums products: matmuls, convolutions.
    Contraction,
    /// Slides windows over spatial dimensions.
    Pooling,
    /// A named composite, which has an expansion.
    Composite,
    /// Communicates with the other members of a group.
    Collective,
    /// Contains foreign code, or a program.
    Opaque,
}

/// The operands in which results are linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linearity {
    /// None, though the result depends on the operands.
    Nonlinear,
    /// The result is constant, or piecewise constant.
    Constant,
    /// The operands at these places jointly, one bit each from the least significant; [`u32::MAX`] stands for all.
    Linear(u32),
    /// A sum or difference of two operands, each of which may be absent.
    Sum,
    /// Each of two operands while the other is fixed.
    Bilinear,
}

/// The operands that an engine may overwrite with a result of the same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// None of them.
    Never,
    /// The first.
    First,
    /// Each of them.
    Any,
}

/// The number of arithmetic operations as a function of the types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flops {
    /// This number of operations per element of the first result.
    PerResult(u64),
    /// This number of operations per element of the first operand.
    PerOperand(u64),
}

/// The bytes moved by an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// None.
    Free,
    /// Each tensor operand is read once, each result written once.
    All,
    /// Each tensor operand is read once.
    Read,
    /// The result is written once, as many bytes are read of the first operand, and the others are read once.
    Picked,
}

/// The precision in which an op runs under mixed precision. It applies to `f32` operands and results; others are
/// unaffected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// In 16 bits: operands are cast, and results are stored in 16 bits. For contractions, which dominate the work of a
    /// model and always accumulate in `f32`.
    Low,
    /// In `f32`: the op accumulates rounding errors, exceeds the range of 16 bits, or is visible to other members.
    Full,
    /// In 16 bits if all operands are stored in 16 bits; in `f32` if one is stored in `f32`, or if there is none.
    Widest,
    /// By the rules of the ops inside: for regions, bodies of loops, and custom ops that are
    /// [expressions](crate::CustomOp::is_expression).
    Inside,
}

/// The role of an op in fused regions. Whether its axes match is decided when the region is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A view, which is free by itself.
    View,
    /// A constant: cheaper to recompute in each kernel than to load.
    Constant,
    /// Can be part of a kernel.
    Fusable,
    /// The anchor op of a region: the engine's own kernel (matmul, convolution), with elementwise ops fused as its epilogue.
    Anchor,
    /// An op that only the engine's own kernel runs.
    Alone,
}

/// The dependence of attributes on the lengths of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// None.
    Independent,
    /// The lengths are those of the result's type.
    OfResult,
    /// Any other dependence.
    Other,
}

const RULE: Option<Gradient> = Some(Gradient::Rule);
const EXPANSION: Option<Gradient> = Some(Gradient::Expansion);
const CONSTANT: Option<Gradient> = Some(Gradient::Constant);
const RECOVERED: Option<Gradient> =
    Some(Gradient::Undefined("the result of a recovery has no gradient: detach the operands first"));

const NOTHING: Option<Saved> = Some(Saved::NONE);
const A: Option<Saved> = Some(Saved { inputs: 1, outputs: 0 });
const B: Option<Saved> = Some(Saved { inputs: 2, outputs: 0 });
const ALL_X: Option<Saved> = Some(Saved { inputs: u32::MAX, outputs: 0 });
const Y: Option<Saved> = Some(Saved { inputs: 0, outputs: 1 });
const AY: Option<Saved> = Some(Saved { inputs: 1, outputs: 1 });
const ORDER: Option<Saved> = Some(Saved { inputs: 0, outputs: 2 });
const SCALE_ZERO: Option<Saved> = Some(Saved { inputs: 0b101, outputs: 0 });
const ATTENTION: Option<Saved> = Some(Saved { inputs: 0b1111, outputs: 0b11 });

const NO: Option<Linearity> = Some(Linearity::Nonlinear);
const FLAT: Option<Linearity> = Some(Linearity::Constant);
const ALL: Option<Linearity> = Some(Linearity::Linear(u32::MAX));
const FIRST: Option<Linearity> = Some(Linearity::Linear(0b1));
const SECOND: Option<Linearity> = Some(Linearity::Linear(0b10));
const BRANCHES: Option<Linearity> = Some(Linearity::Linear(0b110));
const BILINEAR: Option<Linearity> = Some(Linearity::Bilinear);

const KEEP: Option<Reuse> = Some(Reuse::Never);
const BASE: Option<Reuse> = Some(Reuse::First);
const ANY: Option<Reuse> = Some(Reuse::Any);

const ZERO: Option<Flops> = Some(Flops::PerResult(0));
const Y1: Option<Flops> = Some(Flops::PerResult(1));
const Y2: Option<Flops> = Some(Flops::PerResult(2));
const Y5: Option<Flops> = Some(Flops::PerResult(5));
const X1: Option<Flops> = Some(Flops::PerOperand(1));
const X4: Option<Flops> = Some(Flops::PerOperand(4));

const LOW: Option<Precision> = Some(Precision::Low);
const FULL: Option<Precision> = Some(Precision::Full);
const WIDEST: Option<Precision> = Some(Precision::Widest);
const INSIDE: Option<Precision> = Some(Precision::Inside);

const NULLARY: Option<(u8, u8)> = Some((0, 0));
const ONE: Option<(u8, u8)> = Some((1, 1));
const TWO: Option<(u8, u8)> = Some((2, 2));
const THREE: Option<(u8, u8)> = Some((3, 3));
const FOUR: Option<(u8, u8)> = Some((4, 4));
const ONE_TO_THREE: Option<(u8, u8)> = Some((1, 3));
const TWO_OR_THREE: Option<(u8, u8)> = Some((2, 3));
const THREE_OR_FOUR: Option<(u8, u8)> = Some((3, 4));
const SIX_OR_SEVEN: Option<(u8, u8)> = Some((6, 7));

macro_rules! ops {
    ($($kind:ident $name:literal $class:ident $operands:ident, $properties:expr =>
        $gradient:ident $saved:ident $linearity:ident $reuse:ident $flops:ident $traffic:ident $precision:ident
        $role:ident $lengths:ident;)*) => {
        /// The variant of an [`Op`], without attributes: its row in [`OPS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum OpKind {
            $(#[doc = concat!("[`Op::", stringify!($kind), "`].")] $kind,)*
        }

        impl OpKind {
            /// Every kind, in declaration order.
            pub const ALL: [OpKind; OPS.len()] = [$(OpKind::$kind),*];
        }

        impl Op {
            /// The kind of the op.
            #[inline]
            pub fn kind(&self) -> OpKind {
                match self { $(Op::$kind { .. } => OpKind::$kind,)* }
            }
        }

        /// The row of each kind, at `kind as usize`.
        pub const OPS: [OpInfo; [$(stringify!($kind)),*].len()] = [$(OpInfo {
            kind: OpKind::$kind,
            name: $name,
            class: OpClass::$class,
            operands: $operands,
            gradient: $gradient,
            saved: $saved,
            linearity: $linearity,
            reuse: $reuse,
            flops: $flops,
            traffic: Traffic::$traffic,
            precision: $precision,
            role: Role::$role,
            lengths: Lengths::$lengths,
            properties: $properties,
        }),*];
    };
}

ops! {
    // kind        name             class        operands, properties
    //     gradient  saved      linearity reuse flops traffic precision role     lengths
    Full          "full"           Creation     ONE, CHEAP | PRIMITIVE =>
        CONSTANT  NOTHING    FLAT      KEEP  ZERO  All     WIDEST    Constant OfResult;
    Iota          "iota"           Creation     NULLARY, CHEAP | PRIMITIVE | NEEDS_AXIS =>
        CONSTANT  NOTHING    FLAT      KEEP  ZERO  All     WIDEST    Constant OfResult;
    Random        "random"         Creation     ONE, 0 =>
        CONSTANT  NOTHING    FLAT      KEEP  Y1    All     WIDEST    Alone    Other;
    Unary         "unary"          Elementwise  ONE, CHEAP | PRIMITIVE =>
        None      None       None      ANY   Y1    All     None      Fusable  Independent;
    Binary        "binary"         Elementwise  TWO, CHEAP | PRIMITIVE =>
        None      None       None      ANY   Y1    All     None      Fusable  Independent;
    Compare       "compare"        Elementwise  TWO, CHEAP | PRIMITIVE =>
        CONSTANT  NOTHING    FLAT      ANY   Y1    All     WIDEST    Fusable  Independent;
    Select        "select"         Elementwise  THREE, CHEAP | PRIMITIVE | STOPS_POISON =>
        RULE      A          BRANCHES  ANY   Y1    All     WIDEST    Fusable  Independent;
    Cast          "cast"           Elementwise  ONE, CHEAP | PRIMITIVE =>
        None      NOTHING    ALL       ANY   Y1    All     WIDEST    Fusable  Independent;
    Bitcast       "bitcast"        View         ONE, CHEAP | PRIMITIVE =>
        None      NOTHING    FLAT      KEEP  ZERO  Free    FULL      Fusable  Independent;
    Reshape       "reshape"        View         ONE, CHEAP | PRIMITIVE | REARRANGES =>
        RULE      NOTHING    ALL       KEEP  ZERO  Free    WIDEST    View     OfResult;
    Permute       "permute"        View         ONE, CHEAP | PRIMITIVE | REARRANGES =>
        RULE      NOTHING    ALL       KEEP  ZERO  Free    WIDEST    View     Independent;
    Broadcast     "broadcast"      View         ONE, CHEAP | PRIMITIVE | REARRANGES =>
        RULE      NOTHING    ALL       KEEP  ZERO  Free    WIDEST    View     OfResult;
    Slice         "slice"          View         ONE, CHEAP | PRIMITIVE =>
        RULE      NOTHING    ALL       KEEP  ZERO  Free    WIDEST    View     Other;
    Pad           "pad"            Movement     TWO, CHEAP =>
        RULE      NOTHING    ALL       KEEP  ZERO  All     WIDEST    Fusable  Independent;
    Concat        "concat"         Movement     None, CHEAP | PRIMITIVE | NEEDS_AXIS =>
        RULE      NOTHING    ALL       KEEP  ZERO  All     WIDEST    Fusable  Independent;
    Windows       "windows"        View         ONE, CHEAP | NEEDS_AXIS =>
        RULE      NOTHING    ALL       KEEP  ZERO  Free    WIDEST    View     Other;
    Copy          "copy"           Movement     ONE, CHEAP | PRIMITIVE =>
        RULE      NOTHING    ALL       ANY   ZERO  All     WIDEST    Fusable  Independent;
    Reduce        "reduce"         Reduction    ONE, PRIMITIVE =>
        RULE      None       None      KEEP  X1    All     None      Fusable  Independent;
    ArgReduce     "argreduce"      Reduction    ONE, NEEDS_AXIS =>
        CONSTANT  NOTHING    FLAT      KEEP  X1    All     WIDEST    Alone    Independent;
    Scan          "scan"           Reduction    ONE, NEEDS_AXIS =>
        RULE      None       None      BASE  X1    All     None      Alone    Independent;
    Sort          "sort"           Sorting      ONE, NEEDS_AXIS =>
        RULE      ORDER      NO        KEEP  None  All     WIDEST    Alone    Independent;
    TopK          "topk"           Sorting      ONE, NEEDS_AXIS =>
        RULE      ORDER      NO        KEEP  None  All     WIDEST    Alone    Other;
    Take          "take"           Indexing     TWO, FAILS_BY_INDEX =>
        RULE      B          FIRST     KEEP  ZERO  Picked  WIDEST    Alone    Independent;
    Gather        "gather"         Indexing     TWO, FAILS_BY_INDEX | NEEDS_AXIS =>
        RULE      B          FIRST     KEEP  ZERO  Picked  WIDEST    Fusable  Independent;
    Put           "put"            Indexing     THREE, FAILS_BY_INDEX =>
        RULE      None       None      BASE  None  All     None      Alone    Independent;
    Scatter       "scatter"        Indexing     THREE, FAILS_BY_INDEX | NEEDS_AXIS =>
        RULE      None       None      BASE  None  All     None      Fusable  Independent;
    SliceUpdate   "slice_update"   Indexing     TWO, 0 =>
        RULE      None       None      BASE  None  All     WIDEST    Alone    Other;
    NonZero       "nonzero"        Indexing     ONE, FAILS | IMMEDIATE | PRIMITIVE =>
        CONSTANT  NOTHING    FLAT      KEEP  X1    All     WIDEST    Alone    Independent;
    CheckIndex    "check_index"    Validity     ONE, FAILS =>
        CONSTANT  NOTHING    FLAT      KEEP  X1    Read    WIDEST    Alone    Independent;
    Recover       "recover"        Validity     None, FAILS | STOPS_POISON =>
        RECOVERED NOTHING    FLAT      KEEP  ZERO  Free    WIDEST    Alone    Independent;
    MatMul        "matmul"         Contraction  TWO, NEEDS_AXIS =>
        RULE      None       BILINEAR  KEEP  None  All     LOW       Anchor     Independent;
    MatMulFloat8  "matmul_float8"  Contraction  FOUR, FAILS | NEEDS_AXIS =>
        EXPANSION ALL_X      NO        KEEP  None  All     LOW       Alone    Independent;
    MatMulBlocks  "matmul_blocks"  Contraction  TWO, NEEDS_AXIS =>
        RULE      B          FIRST     KEEP  None  All     LOW       Alone    Independent;
    Conv          "conv"           Contraction  TWO, NEEDS_AXIS =>
        RULE      None       BILINEAR  KEEP  None  All     LOW       Anchor     Other;
    Pool          "pool"           Pooling      ONE, NEEDS_AXIS =>
        RULE      None       None      KEEP  None  All     WIDEST    Alone    Other;
    PoolGrad      "pool_grad"      Pooling      None, NEEDS_AXIS =>
        RULE      None       FIRST     KEEP  None  All     WIDEST    Alone    Other;
    Softmax       "softmax"        Composite    ONE, NEEDS_AXIS =>
        RULE      Y          NO        BASE  Y5    All     FULL      Fusable  Independent;
    LogSumExp     "log_sum_exp"    Composite    ONE, NEEDS_AXIS =>
        RULE      AY         NO        KEEP  X4    All     FULL      Alone    Independent;
    Norm          "norm"           Composite    ONE_TO_THREE, NEEDS_AXIS =>
        RULE      None       NO        BASE  None  All     FULL      Fusable  Independent;
    Attention     "attention"      Composite    THREE_OR_FOUR, NEEDS_AXIS =>
        RULE      ATTENTION  NO        KEEP  None  All     LOW       Alone    Independent;
    AttentionGrad "attention_grad" Composite    SIX_OR_SEVEN, NEEDS_AXIS =>
        EXPANSION ALL_X      NO        KEEP  None  All     LOW       Alone    Independent;
    Resize        "resize"         Composite    ONE, NEEDS_AXIS =>
        EXPANSION NOTHING    ALL       KEEP  None  All     WIDEST    Alone    Other;
    Fft           "fft"            Composite    None, NEEDS_AXIS =>
        RULE      NOTHING    ALL       KEEP  None  All     FULL      Alone    Independent;
    Quantize      "quantize"       Composite    TWO_OR_THREE, 0 =>
        CONSTANT  NOTHING    FLAT      KEEP  None  All     FULL      Alone    Independent;
    Dequantize    "dequantize"     Composite    TWO_OR_THREE, CHEAP =>
        RULE      SCALE_ZERO SECOND    KEEP  None  All     WIDEST    Alone    Independent;
    DequantizeBlocks "dequantize_blocks" Composite ONE, CHEAP | NEEDS_AXIS =>
        CONSTANT  NOTHING    FLAT      KEEP  Y2    All     FULL      Alone    Independent;
    Collective    "collective"     Collective   None, FAILS | IMMEDIATE | PRIMITIVE =>
        None      None       None      None  None  All     FULL      Alone    Independent;
    Custom        "custom"         Opaque       None, FAILS | IMMEDIATE =>
        RULE      None       NO        KEEP  ZERO  All     None      Alone    Independent;
    Fused         "fused"          Opaque       None, FAILS =>
        EXPANSION ALL_X      NO        KEEP  None  All     INSIDE    Alone    Other;
    Loop          "loop"           Opaque       None, FAILS =>
        RULE      None       NO        KEEP  None  All     INSIDE    Alone    Other;
}

/// The kinds that are [`PRIMITIVE`].
pub(crate) const PRIMITIVES: [OpKind; count(PRIMITIVE)] = {
    let mut kinds = [OpKind::Full; count(PRIMITIVE)];
    let (mut i, mut found) = (0, 0);
    while i < OPS.len() {
        if OPS[i].is(PRIMITIVE) {
            kinds[found] = OPS[i].kind;
            found += 1;
        }
        i += 1;
    }
    kinds
};

const fn count(properties: u8) -> usize {
    let (mut i, mut count) = (0, 0);
    while i < OPS.len() {
        count += OPS[i].is(properties) as usize;
        i += 1;
    }
    count
}

// Checks that each row is at the index of its kind.
const _: () = {
    let mut i = 0;
    while i < OPS.len() {
        assert!(OPS[i].kind as usize == i);
        i += 1;
    }
};

impl OpKind {
    /// The row of this kind.
    #[inline]
    pub fn info(self) -> &'static OpInfo {
        const TABLE: &[OpInfo; OPS.len()] = &OPS;
        &TABLE[self as usize]
    }
}

impl Op {
    /// The row of this op's kind.
    #[inline]
    pub fn info(&self) -> &'static OpInfo {
        self.kind().info()
    }

    /// Whether the kind has all these [properties](OpInfo::properties).
    #[inline]
    pub fn is(&self, properties: u8) -> bool {
        self.info().is(properties)
    }

    /// Whether the op only reorders or reshapes elements of the same dtype: free on an engine with strides.
    #[inline]
    pub fn is_view(&self) -> bool {
        self.info().role == Role::View
    }

    /// The row of the scalar function that an elementwise op applies.
    #[inline]
    pub fn function(&self) -> Option<&'static FunctionInfo> {
        if let Op::Unary(function) = self {
            Some(function.info())
        } else if let Op::Binary(function) = self {
            Some(function.info())
        } else {
            None
        }
    }

    /// Whether each element of the result is a function of the operands' elements at the same position.
    #[inline]
    pub fn is_elementwise(&self) -> bool {
        self.info().class == OpClass::Elementwise
    }

    /// The value of a column of the table.
    ///
    /// # Panics
    /// When the row leaves it to attributes. A match over those kinds must come first.
    #[inline]
    pub fn row<T>(&self, column: impl FnOnce(&OpInfo) -> Option<T>) -> T {
        column(self.info()).unwrap_or_else(|| {
            panic!("[{}] the attributes decide this column; add a match before it", self.info().name)
        })
    }

    /// Whether the host may need data from the device to run the op. True for [`Op::NonZero`], whose shape is data, and
    /// for custom ops that are no [expressions](crate::CustomOp::is_expression): they may run on the host. See
    /// [`execute_async`](crate::Engine::execute_async).
    pub fn may_need_host(&self) -> bool {
        if let Op::Custom(custom) = self {
            return !custom.is_expression();
        }
        self.kind() == OpKind::NonZero
    }

    /// Whether poison of the operands does not propagate to all results. The op must then run despite a poisoned
    /// operand.
    #[inline]
    pub fn stops_poison(&self) -> bool {
        self.is(STOPS_POISON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Number;
    use crate::{Binary, DType, Unary};
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    #[test]
    fn op_names_are_unique() {
        let names: BTreeSet<&str> = OPS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), OPS.len());
    }

    #[test]
    fn linearity_and_gradient_columns_agree() {
        for row in &OPS {
            let is_constant = row.gradient.is_some_and(|gradient| gradient == Gradient::Constant);
            assert!(!is_constant || row.linearity == Some(Linearity::Constant), "{row:?}");
        }
        for row in Unary::TABLE.iter().chain(Binary::TABLE) {
            assert!(row.gradient != Gradient::Constant || row.linearity == Linearity::Constant, "{row:?}");
            assert!(row.linearity != Linearity::Constant || row.saved == Some(Saved::NONE), "{row:?}");
        }
    }

    #[test]
    fn rearranging_ops_are_views() {
        let rearranging: Vec<_> = OPS.iter().filter(|row| row.is(REARRANGES)).collect();
        assert_eq!(rearranging.len(), 3);
        assert!(rearranging.iter().all(|row| row.role == Role::View && row.traffic == Traffic::Free));
    }

    #[test]
    fn functions_evaluate_all_dtypes_of_their_domains() {
        for dtype in DType::ALL {
            for function in Unary::ALL.iter().filter(|function| function.info().domain.contains(dtype)) {
                if dtype.is_float() {
                    let _ = 0.5f64.unary(*function, dtype);
                } else {
                    let _ = 1i128.unary(*function, dtype);
                }
            }
            for function in Binary::ALL.iter().filter(|function| function.info().domain.contains(dtype)) {
                if dtype.is_float() {
                    let _ = 0.5f64.binary(*function, 0.25, dtype);
                } else {
                    let _ = 1i128.binary(*function, 1, dtype);
                }
            }
        }
    }
}
