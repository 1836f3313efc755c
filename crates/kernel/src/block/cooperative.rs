//! Cooperative matrices: small square matrices that the threads of a subgroup hold together and multiply at once.
//!
//! They are the tensor cores of a GPU. Only WGSL has them here: C++ has libraries for matmuls. Factors are loaded from
//! [tiles](FactorTile) in shared memory, which threads fill by [`fetch`](Builder::fetch) and [`unpack`](Builder::unpack);
//! sums are loaded from and stored to ordinary arrays in shared memory. All threads of a block must execute an operation
//! of matrices, in uniform control flow as for [`Statement::Barrier`]. The threads of a block are a multiple of those of
//! a subgroup.

use super::builder::{Array, Buffer, Builder, Variable};
use super::expression::{Expression, Kind, Type, constant};
use super::{BlockKernel, Statement};
use kiln_ir::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

/// A statement about cooperative matrices. Matrices are variables.
#[derive(Clone, Debug)]
pub enum Cooperative {
    /// Defines an index as the number of the subgroup in its block.
    Subgroup(u32),
    /// Defines a matrix with elements from shared memory.
    Load {
        /// The defined variable; mutable if the matrix holds sums.
        matrix: u32,
        /// Its type.
        ty: MatrixType,
        /// The elements.
        from: MatrixPlace,
    },
    /// Adds the product of two factors to sums.
    MultiplyAdd {
        /// The left and the right factor.
        factors: [u32; 2],
        /// The sums.
        sums: u32,
    },
    /// Stores the elements of a matrix to shared memory.
    Store {
        /// The matrix.
        matrix: u32,
        /// Its place.
        to: MatrixPlace,
    },
    /// Reads neighbouring elements of a tensor as they are in memory, or zeros where the condition is false.
    Fetch {
        /// The mutable variable that holds them.
        variable: u32,
        /// The tensor.
        param: u32,
        /// The number of elements. Of several, the first one is at the start of a word of 32 bits.
        count: usize,
        /// The index of the first element.
        at: Expression,
        /// Whether they exist.
        condition: Expression,
    },
    /// Stores fetched elements to a tile.
    Unpack {
        /// The variable that holds them.
        variable: u32,
        /// The number of the tile.
        tile: u32,
        /// The number of elements.
        count: usize,
        /// The index of the first element in the tile.
        at: Expression,
    },
    /// Rounds two `f32` to neighbouring elements of a tensor of `f16`, of which the first is at the start of a word.
    StorePair {
        /// The tensor.
        param: u32,
        /// The index of the first element.
        at: Expression,
        /// The values.
        values: [Expression; 2],
    },
}

/// The role of a matrix in `sums += left * right`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixRole {
    /// The left factor.
    Left,
    /// The right factor.
    Right,
    /// The sums of products.
    Sums,
}

/// The type of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixType {
    /// Its role.
    pub role: MatrixRole,
    /// Its number of rows and of columns: 8 or 16.
    pub size: usize,
    /// The dtype of its elements.
    pub dtype: DType,
}

/// The elements of a matrix in shared memory.
#[derive(Clone, Debug)]
pub struct MatrixPlace {
    /// The memory.
    pub memory: MatrixMemory,
    /// The index of the first element. Its byte offset is a multiple of 16, like that of each row or column.
    pub at: Expression,
    /// Elements from one row to the next, or from one column to the next if column-major.
    pub pitch: usize,
    /// Whether the elements of a column are neighbours.
    pub is_column_major: bool,
}

/// The memory of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixMemory {
    /// A tile, by number.
    Tile(u32),
    /// An array in shared memory, by number.
    Shared(u32),
}

/// The elements of a tile of factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileType {
    /// The dtype of elements: `f16` or `f32`.
    pub dtype: DType,
    /// The number of elements.
    pub len: usize,
}

/// An array of factors in shared memory. Unlike those of an [`Array`], its elements have the size of their dtype.
#[derive(Clone, Copy, Debug)]
pub struct FactorTile {
    number: u32,
    dtype: DType,
}

/// A cooperative matrix.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    number: u32,
    ty: MatrixType,
}

/// Elements of a factor in the registers of one thread, as they are in memory.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    variable: Variable,
    dtype: DType,
    count: usize,
}

impl TileType {
    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.dtype.size() * self.len
    }
}

impl BlockKernel {
    /// Whether it has cooperative matrices.
    pub fn is_cooperative(&self) -> bool {
        let mut is_cooperative = false;
        self.for_each_statement(|statement| {
            is_cooperative |= matches!(statement, Statement::Cooperative(_));
        });
        is_cooperative
    }
}

impl Builder {
    /// An array of factors in shared memory.
    ///
    /// # Panics
    /// When the dtype is neither `f16` nor `f32`.
    pub fn factor_tile(&self, dtype: DType, len: usize) -> FactorTile {
        assert!(is_factor(dtype), "[block kernel] no cooperative matrices of {}", dtype.name());
        FactorTile { number: self.tile_of(TileType { dtype, len }), dtype }
    }

    /// The number of the subgroup in its block.
    pub fn subgroup(&self) -> Expression {
        let number = self.fresh();
        self.cooperate(Cooperative::Subgroup(number));
        Expression::new(Kind::Variable(number), Type::Index)
    }

    /// A factor of that many rows and columns, from a tile. See [`MatrixPlace`] for the place.
    ///
    /// # Panics
    /// When the role is that of sums, or there are no matrices of that size.
    pub fn load_factor(
        &self,
        role: MatrixRole,
        size: usize,
        from: &FactorTile,
        at: &Expression,
        pitch: usize,
        is_column_major: bool,
    ) -> Matrix {
        assert!(role != MatrixRole::Sums, "[block kernel] sums are loaded from an array");
        let memory = MatrixMemory::Tile(from.number);
        let place = MatrixPlace { memory, at: at.to_index(), pitch, is_column_major };
        self.load_matrix(MatrixType { role, size, dtype: from.dtype }, place)
    }

    /// Sums of that many rows and columns, row-major from an array of `f32` in shared memory.
    ///
    /// # Panics
    /// When the array is another one, or there are no matrices of that size.
    pub fn load_sums(&self, size: usize, from: &Array, at: &Expression, pitch: usize) -> Matrix {
        let ty = MatrixType { role: MatrixRole::Sums, size, dtype: DType::F32 };
        self.load_matrix(ty, sums_place(from, at, pitch))
    }

    fn load_matrix(&self, ty: MatrixType, from: MatrixPlace) -> Matrix {
        assert!(matches!(ty.size, 8 | 16), "[block kernel] no cooperative matrices of size {}", ty.size);
        let matrix = self.fresh();
        self.cooperate(Cooperative::Load { matrix, ty, from });
        Matrix { number: matrix, ty }
    }

    /// Adds the product of two factors to sums.
    ///
    /// # Panics
    /// When the matrices have other roles, or differ in size.
    pub fn multiply_add(&self, left: &Matrix, right: &Matrix, sums: &Matrix) {
        let of = |matrix: &Matrix, role| matrix.ty.role == role && matrix.ty.size == sums.ty.size;
        let are_factors = of(left, MatrixRole::Left) && of(right, MatrixRole::Right);
        assert!(are_factors && of(sums, MatrixRole::Sums), "[block kernel] no product: {left:?}, {right:?}");
        let factors = [left.number, right.number];
        self.cooperate(Cooperative::MultiplyAdd { factors, sums: sums.number });
    }

    /// Stores sums, row-major to an array of `f32` in shared memory.
    ///
    /// # Panics
    /// When the array is another one.
    pub fn store_sums(&self, sums: &Matrix, to: &Array, at: &Expression, pitch: usize) {
        let to = sums_place(to, at, pitch);
        self.cooperate(Cooperative::Store { matrix: sums.number, to });
    }

    /// Registers for that many neighbouring elements of a factor, initially zeros.
    ///
    /// # Panics
    /// When it is not one `f32`, nor one or two `f16`.
    pub fn packed(&self, dtype: DType, count: usize) -> Packed {
        let is_word = is_factor(dtype) && matches!(count * dtype.size(), 2 | 4);
        assert!(is_word, "[block kernel] no registers for {count} {}", dtype.name());
        let zero = match dtype {
            DType::F32 => constant(Scalar::Float(0.0), DType::F32),
            DType::F64
            | DType::F16
            | DType::BF16
            | DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::Bool => constant(Scalar::Int(0), DType::U32),
        };
        Packed { variable: self.var(&zero), dtype, count }
    }

    /// Reads neighbouring elements of a tensor, or zeros where the condition is false. The first of two elements must be
    /// at the start of a word of 32 bits.
    ///
    /// # Panics
    /// When the tensor has another dtype.
    pub fn fetch(&self, into: &Packed, from: &Buffer, at: &Expression, condition: &Expression) {
        assert_eq!(from.dtype(), into.dtype, "[block kernel] a tensor of another dtype");
        let (at, condition) = (at.to_index(), condition.clone());
        self.cooperate(Cooperative::Fetch {
            variable: into.variable.number,
            param: from.param,
            count: into.count,
            at,
            condition,
        });
    }

    /// Stores fetched elements to a tile.
    ///
    /// # Panics
    /// When the tile has another dtype.
    pub fn unpack(&self, from: &Packed, to: &FactorTile, at: &Expression) {
        assert_eq!(from.dtype, to.dtype, "[block kernel] a tile of another dtype");
        self.cooperate(Cooperative::Unpack {
            variable: from.variable.number,
            tile: to.number,
            count: from.count,
            at: at.to_index(),
        });
    }

    /// Rounds two `f32` to neighbouring elements of a tensor of `f16`. The first must be at the start of a word of 32
    /// bits.
    ///
    /// # Panics
    /// When the dtypes are others.
    pub fn store_pair(&self, to: &Buffer, at: &Expression, values: [Expression; 2]) {
        let are_floats = values.iter().all(|value| value.ty() == Type::Value(DType::F32));
        assert!(are_floats && to.dtype() == DType::F16, "[block kernel] no pair of f16: {values:?}");
        self.cooperate(Cooperative::StorePair { param: to.param, at: at.to_index(), values });
    }

    fn cooperate(&self, statement: Cooperative) {
        self.push(Statement::Cooperative(statement));
    }
}

fn is_factor(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::F32)
}

/// # Panics
/// When the array is not of `f32` in shared memory.
fn sums_place(array: &Array, at: &Expression, pitch: usize) -> MatrixPlace {
    let is_place = array.is_shared && array.ty.ty == Type::Value(DType::F32) && !array.ty.is_atomic;
    assert!(is_place, "[block kernel] sums are in shared memory of f32: {array:?}");
    let memory = MatrixMemory::Shared(array.number);
    MatrixPlace { memory, at: at.to_index(), pitch, is_column_major: false }
}

impl Cooperative {
    /// The expressions of this statement.
    pub(super) fn expressions(&self) -> SmallVec<[&Expression; 3]> {
        match self {
            Cooperative::Subgroup(_) | Cooperative::MultiplyAdd { .. } => SmallVec::new(),
            Cooperative::Load { from: place, .. } | Cooperative::Store { to: place, .. } => {
                smallvec![&place.at]
            }
            Cooperative::Fetch { at, condition, .. } => smallvec![at, condition],
            Cooperative::Unpack { at, .. } => smallvec![at],
            Cooperative::StorePair { at, values: [a, b], .. } => smallvec![at, a, b],
        }
    }
}
