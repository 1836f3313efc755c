//! The table of ops: one row for each kind, with its facts. Where the attributes decide, a row names the function that
//! reads them, which is in the file that reads the column.
//!
//! Gradients, expansions and inference are code, in [`vjp`](crate::vjp), [`expand`](crate::expand()) and
//! [`infer`](mod@crate::infer).

use super::fact::fact;
use super::{Fact, FunctionInfo, NameOf, Op, names, precision};
use crate::cost::{self, FlopsOf};
use crate::reuse;
use crate::vjp::{Gradient, Saved, SavedOf, gradient, linearity, saved};

/// The properties of every op of a kind: a row of [`OPS`].
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// The kind that the row describes.
    pub kind: OpKind,
    /// The name in the text form, or the common stem of all names of the kind.
    pub name: &'static str,
    /// The name of each op of the kind.
    pub names: Fact<&'static str, NameOf>,
    /// The group of ops that it belongs to.
    pub class: OpClass,
    /// The least and the greatest number of operands; `None` if [`infer`](mod@crate::infer) decides by attributes.
    pub operands: Option<(u8, u8)>,
    /// The kind of its gradient.
    pub gradient: Fact<Gradient>,
    /// The operands and results that the gradient rule reads.
    pub saved: Fact<Saved, SavedOf>,
    /// The operands in which the results are linear.
    pub linearity: Fact<Linearity>,
    /// The operands that a result of the same type may overwrite.
    pub reuse: Fact<Reuse>,
    /// Arithmetic operations.
    pub flops: Fact<Flops, FlopsOf>,
    /// Bytes read and written.
    pub traffic: Traffic,
    /// The precision under [mixed precision](Precision).
    pub precision: Fact<Precision>,
    /// Its role in fused regions.
    pub role: Role,
    /// The attributes that depend on the lengths of tensors.
    pub lengths: Lengths,
    /// Further properties, as a union of constants such as [`CHEAP`].
    pub properties: u16,
}

impl OpInfo {
    /// Returns whether all these properties hold.
    #[inline]
    pub const fn is(&self, properties: u16) -> bool {
        self.properties & properties == properties
    }
}

/// A property: memory-bound, so that recomputing the result costs little more than reading it.
pub const CHEAP: u16 = 1;
/// A property: has no expansion. The kinds with it are [`MINIMAL`](crate::MINIMAL).
pub const PRIMITIVE: u16 = 2;
/// A property: the op may fail on operands without poison, because of an element out of range or a device error.
pub const FAILS: u16 = 4;
/// A property: the op may fail because an index is out of range along its axis.
pub const FAILS_BY_INDEX: u16 = 8;
/// A property: executes immediately, and is never recorded. The result shape of `NonZero` is known only after it has
/// run, custom ops run user code, and collectives wait for other members.
pub const IMMEDIATE: u16 = 16;
/// A property: runs even if an operand is poisoned, since poison does not propagate to all results.
pub const STOPS_POISON: u16 = 32;
/// A property: every tensor operand or result has at least one axis.
pub const NEEDS_AXIS: u16 = 64;
/// A property: a view that reorders or repeats the elements, and never drops any.
pub const REARRANGES: u16 = 128;
/// A property: runs by its expansion on every engine that does not list it among its own kernels.
pub const EXPANDS: u16 = 256;

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

const RULE: Fact<Gradient> = Fact::Fixed(Gradient::Rule);
const EXPANSION: Fact<Gradient> = Fact::Fixed(Gradient::Expansion);
const CONSTANT: Fact<Gradient> = Fact::Fixed(Gradient::Constant);
const RECOVERED: Fact<Gradient> =
    Fact::Fixed(Gradient::Undefined("the result of a recovery has no gradient: detach the operands first"));

const NOTHING: Fact<Saved, SavedOf> = Fact::Fixed(Saved::NONE);
const A: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 1, outputs: 0 });
const B: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 2, outputs: 0 });
const ALL_X: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: u32::MAX, outputs: 0 });
const Y: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 0, outputs: 1 });
const AY: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 1, outputs: 1 });
const ORDER: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 0, outputs: 2 });
const SCALE_ZERO: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 0b101, outputs: 0 });
const ATTENTION: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 0b1111, outputs: 0b11 });

const NO: Fact<Linearity> = Fact::Fixed(Linearity::Nonlinear);
const FLAT: Fact<Linearity> = Fact::Fixed(Linearity::Constant);
const ALL: Fact<Linearity> = Fact::Fixed(Linearity::Linear(u32::MAX));
const FIRST: Fact<Linearity> = Fact::Fixed(Linearity::Linear(0b1));
const SECOND: Fact<Linearity> = Fact::Fixed(Linearity::Linear(0b10));
const BRANCHES: Fact<Linearity> = Fact::Fixed(Linearity::Linear(0b110));
const BILINEAR: Fact<Linearity> = Fact::Fixed(Linearity::Bilinear);

const KEEP: Fact<Reuse> = Fact::Fixed(Reuse::Never);
const BASE: Fact<Reuse> = Fact::Fixed(Reuse::First);
const ANY: Fact<Reuse> = Fact::Fixed(Reuse::Any);

const ZERO: Fact<Flops, FlopsOf> = Fact::Fixed(Flops::PerResult(0));
const Y1: Fact<Flops, FlopsOf> = Fact::Fixed(Flops::PerResult(1));
const Y2: Fact<Flops, FlopsOf> = Fact::Fixed(Flops::PerResult(2));
const Y5: Fact<Flops, FlopsOf> = Fact::Fixed(Flops::PerResult(5));
const X1: Fact<Flops, FlopsOf> = Fact::Fixed(Flops::PerOperand(1));
const X4: Fact<Flops, FlopsOf> = Fact::Fixed(Flops::PerOperand(4));

const LOW: Fact<Precision> = Fact::Fixed(Precision::Low);
const FULL: Fact<Precision> = Fact::Fixed(Precision::Full);
const WIDEST: Fact<Precision> = Fact::Fixed(Precision::Widest);
const INSIDE: Fact<Precision> = Fact::Fixed(Precision::Inside);

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
    ($($kind:ident $name:literal $(($names:path))? $class:ident $operands:ident, $properties:expr =>
        $gradient:tt $saved:tt $linearity:tt $reuse:tt $flops:tt $traffic:ident $precision:tt
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
            /// Returns the kind of the op.
            #[inline]
            pub fn kind(&self) -> OpKind {
                match self { $(Op::$kind { .. } => OpKind::$kind,)* }
            }
        }

        /// The row of each kind, at `kind as usize`.
        pub const OPS: [OpInfo; [$(stringify!($kind)),*].len()] = [$(OpInfo {
            kind: OpKind::$kind,
            name: $name,
            names: fact!($name $(($names))?),
            class: OpClass::$class,
            operands: $operands,
            gradient: fact!($gradient),
            saved: fact!($saved),
            linearity: fact!($linearity),
            reuse: fact!($reuse),
            flops: fact!($flops),
            traffic: Traffic::$traffic,
            precision: fact!($precision),
            role: Role::$role,
            lengths: Lengths::$lengths,
            properties: $properties,
        }),*];
    };
}

ops! {
    // kind        name (names)     class        operands, properties
    //     gradient  saved      linearity reuse flops traffic precision role     lengths
    Full          "full"           Creation     ONE, CHEAP | PRIMITIVE =>
        CONSTANT  NOTHING    FLAT      KEEP  ZERO  All     WIDEST    Constant OfResult;
    Iota          "iota"           Creation     NULLARY, CHEAP | PRIMITIVE | NEEDS_AXIS =>
        CONSTANT  NOTHING    FLAT      KEEP  ZERO  All     WIDEST    Constant OfResult;
    Random        "random" (names::random) Creation     ONE, 0 =>
        CONSTANT  NOTHING    FLAT      KEEP  Y1    All     WIDEST    Alone    Other;
    Unary         "unary" (names::unary) Elementwise  ONE, CHEAP | PRIMITIVE =>
        (gradient::function) (saved::function) (linearity::function)
            ANY Y1 All (precision::function) Fusable Independent;
    Binary        "binary" (names::binary) Elementwise  TWO, CHEAP | PRIMITIVE =>
        (gradient::function) (saved::function) (linearity::function)
            ANY Y1 All (precision::function) Fusable Independent;
    Compare       "compare" (names::compare) Elementwise  TWO, CHEAP | PRIMITIVE =>
        CONSTANT  NOTHING    FLAT      ANY   Y1    All     WIDEST    Fusable  Independent;
    Select        "select"         Elementwise  THREE, CHEAP | PRIMITIVE | STOPS_POISON =>
        RULE      A          BRANCHES  ANY   Y1    All     WIDEST    Fusable  Independent;
    Cast          "cast"           Elementwise  ONE, CHEAP | PRIMITIVE =>
        (gradient::cast) NOTHING    ALL       ANY   Y1    All     WIDEST    Fusable  Independent;
    Bitcast       "bitcast"        View         ONE, CHEAP | PRIMITIVE =>
        (gradient::bitcast) NOTHING    FLAT      KEEP  ZERO  Free    FULL      Fusable  Independent;
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
    Reduce        "reduce" (names::reduce) Reduction    ONE, PRIMITIVE =>
        RULE      (saved::reduce) (linearity::reduction)
            KEEP X1 All (precision::reduction) Fusable Independent;
    ArgReduce     "argreduce" (names::arg_reduce) Reduction    ONE, NEEDS_AXIS =>
        CONSTANT  NOTHING    FLAT      KEEP  X1    All     WIDEST    Alone    Independent;
    Scan          "scan" (names::scan) Reduction    ONE, NEEDS_AXIS =>
        RULE      (saved::scan) (linearity::reduction)
            BASE X1 All (precision::reduction) Alone Independent;
    Sort          "sort"           Sorting      ONE, NEEDS_AXIS =>
        RULE      ORDER      NO        KEEP  (cost::sort) All     WIDEST    Alone    Independent;
    TopK          "topk"           Sorting      ONE, NEEDS_AXIS =>
        RULE      ORDER      NO        KEEP  (cost::sort) All     WIDEST    Alone    Other;
    Take          "take"           Indexing     TWO, FAILS_BY_INDEX =>
        RULE      B          FIRST     KEEP  ZERO  Picked  WIDEST    Alone    Independent;
    Gather        "gather"         Indexing     TWO, FAILS_BY_INDEX | NEEDS_AXIS =>
        RULE      B          FIRST     KEEP  ZERO  Picked  WIDEST    Fusable  Independent;
    Put           "put"            Indexing     THREE, FAILS_BY_INDEX =>
        RULE      (saved::put) (linearity::update)
            BASE (cost::update) All (precision::update) Alone Independent;
    Scatter       "scatter"        Indexing     THREE, FAILS_BY_INDEX | NEEDS_AXIS =>
        RULE      (saved::put) (linearity::update)
            BASE (cost::update) All (precision::update) Fusable Independent;
    SliceUpdate   "slice_update"   Indexing     TWO, 0 =>
        RULE      (saved::slice_update) (linearity::update) BASE  (cost::update) All     WIDEST    Alone    Other;
    NonZero       "nonzero"        Indexing     ONE, FAILS | IMMEDIATE | PRIMITIVE =>
        CONSTANT  NOTHING    FLAT      KEEP  X1    All     WIDEST    Alone    Independent;
    CheckIndex    "check_index"    Validity     ONE, FAILS =>
        CONSTANT  NOTHING    FLAT      KEEP  X1    Read    WIDEST    Alone    Independent;
    Recover       "recover"        Validity     None, FAILS | STOPS_POISON =>
        RECOVERED NOTHING    FLAT      KEEP  ZERO  Free    WIDEST    Alone    Independent;
    MatMul        "matmul"         Contraction  TWO, NEEDS_AXIS =>
        RULE      (saved::product) BILINEAR  KEEP  (cost::matmul) All     LOW       Anchor   Independent;
    MatMulFloat8  "matmul_float8"  Contraction  FOUR, FAILS | NEEDS_AXIS =>
        EXPANSION ALL_X      NO        KEEP  (cost::matmul) All     LOW       Alone    Independent;
    MatMulBlocks  "matmul_blocks"  Contraction  TWO, NEEDS_AXIS =>
        RULE      B          FIRST     KEEP  (cost::matmul) All     LOW       Alone    Independent;
    Conv          "conv" (names::conv) Contraction  TWO, NEEDS_AXIS =>
        RULE      (saved::product) BILINEAR  KEEP  (cost::conv) All     LOW       Anchor   Other;
    Pool          "pool" (names::pool) Pooling      ONE, NEEDS_AXIS =>
        RULE      (saved::pool) (linearity::pool) KEEP  (cost::pool) All     WIDEST    Alone    Other;
    PoolGrad      "pool_grad" (names::pool_grad) Pooling      None, NEEDS_AXIS =>
        RULE      (saved::pool) FIRST     KEEP  (cost::pool) All     WIDEST    Alone    Other;
    Softmax       "softmax" (names::softmax) Composite    ONE, NEEDS_AXIS =>
        RULE      Y          NO        BASE  Y5    All     FULL      Fusable  Independent;
    LogSumExp     "log_sum_exp"    Composite    ONE, NEEDS_AXIS | EXPANDS =>
        RULE      AY         NO        KEEP  X4    All     FULL      Alone    Independent;
    Norm          "norm" (names::norm) Composite    ONE_TO_THREE, NEEDS_AXIS =>
        RULE      (saved::norm) NO        BASE  (cost::norm) All     FULL      Fusable  Independent;
    Attention     "attention"      Composite    THREE_OR_FOUR, NEEDS_AXIS =>
        RULE      ATTENTION  NO        KEEP  (cost::attention) All     LOW       Alone    Independent;
    AttentionGrad "attention_grad" Composite    SIX_OR_SEVEN, NEEDS_AXIS =>
        EXPANSION ALL_X      NO        KEEP  (cost::attention_grad) All     LOW       Alone    Independent;
    Resize        "resize"         Composite    ONE, NEEDS_AXIS =>
        EXPANSION NOTHING    ALL       KEEP  (cost::resize) All     WIDEST    Alone    Other;
    Fft           "fft" (names::fft) Composite    None, NEEDS_AXIS =>
        RULE      NOTHING    ALL       KEEP  (cost::fft) All     FULL      Alone    Independent;
    Quantize      "quantize"       Composite    TWO_OR_THREE, 0 =>
        CONSTANT  NOTHING    FLAT      KEEP  (cost::quantize) All     FULL      Alone    Independent;
    Dequantize    "dequantize"     Composite    TWO_OR_THREE, CHEAP =>
        RULE      SCALE_ZERO SECOND    KEEP  (cost::dequantize) All     WIDEST    Alone    Independent;
    DequantizeBlocks "dequantize_blocks" Composite    ONE, CHEAP | NEEDS_AXIS =>
        CONSTANT  NOTHING    FLAT      KEEP  Y2    All     FULL      Alone    Independent;
    Collective    "collective" (names::collective) Collective   None, FAILS | IMMEDIATE | PRIMITIVE =>
        (gradient::collective) (saved::collective) (linearity::collective)
            (reuse::collective) (cost::collective) All FULL Alone Independent;
    Custom        "custom" (names::custom) Opaque       None, FAILS | IMMEDIATE =>
        RULE      (saved::custom) NO        KEEP  ZERO  All     (precision::custom) Alone    Independent;
    Fused         "fused"          Opaque       None, FAILS =>
        EXPANSION ALL_X      NO        KEEP  (cost::program) All     INSIDE    Alone    Other;
    Loop          "loop"           Opaque       None, FAILS =>
        RULE      (saved::looped) NO        KEEP  (cost::program) All     INSIDE    Alone    Other;
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
    /// Returns the row of this kind.
    #[inline]
    pub fn info(self) -> &'static OpInfo {
        const TABLE: &[OpInfo; OPS.len()] = &OPS;
        &TABLE[self as usize]
    }
}

impl Op {
    /// Returns the row of this op's kind.
    #[inline]
    pub fn info(&self) -> &'static OpInfo {
        self.kind().info()
    }

    /// Returns the op's name: `exp`, `add`, `reduce_sum`, `conv_input`. It identifies the variant and the function within it;
    /// for a custom op it is the op's own name.
    pub fn name(&self) -> &str {
        match self.info().names {
            Fact::Fixed(name) => name,
            Fact::By(read) => read(self),
        }
    }

    /// Returns whether the kind has all these [properties](OpInfo::properties).
    #[inline]
    pub fn is(&self, properties: u16) -> bool {
        self.info().is(properties)
    }

    /// Returns whether the op only reorders or reshapes elements of the same dtype: free on an engine with strides.
    #[inline]
    pub fn is_view(&self) -> bool {
        self.info().role == Role::View
    }

    /// Returns the row of the scalar function that an elementwise op applies.
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

    /// Returns whether each element of the result is a function of the operands' elements at the same position.
    #[inline]
    pub fn is_elementwise(&self) -> bool {
        self.info().class == OpClass::Elementwise
    }

    /// Returns whether the host may need data from the device to run the op. True for [`Op::NonZero`], whose shape is
    /// data, and for custom ops that are no [expressions](crate::CustomOp::is_expression): they may run on the host.
    /// See [`execute_async`](crate::Engine::execute_async).
    pub fn may_need_host(&self) -> bool {
        if let Op::Custom(custom) = self {
            return !custom.is_expression();
        }
        self.kind() == OpKind::NonZero
    }

    /// Returns whether poison of the operands does not propagate to all results. The op must then run despite a
    /// poisoned operand.
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
            let is_constant = matches!(row.gradient, Fact::Fixed(Gradient::Constant));
            assert!(!is_constant || matches!(row.linearity, Fact::Fixed(Linearity::Constant)), "{row:?}");
        }
        for row in Unary::TABLE.iter().chain(Binary::TABLE) {
            assert!(row.gradient != Gradient::Constant || row.linearity == Linearity::Constant, "{row:?}");
            assert!(
                row.linearity != Linearity::Constant || matches!(row.saved, Fact::Fixed(Saved::NONE)),
                "{row:?}"
            );
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
