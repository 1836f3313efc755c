//! The builder of block kernels.

use super::expression::{Expression, Kind, Type, index};
use super::{
    ArrayType, Atomic, BlockKernel, BlockParam, BlockParamKind, LANES, Place, Statement, TileType,
    has_vectors,
};
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use kiln_ir::{Binary, DType};

/// Builds a [`BlockKernel`] statement by statement. Bodies of loops and branches are closures that call the same builder.
#[derive(Debug)]
pub struct Builder {
    name: &'static str,
    threads: u32,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    params: Vec<BlockParam>,
    shared: Vec<ArrayType>,
    tiles: Vec<TileType>,
    variables: u32,
    /// The statements of the open bodies, innermost last.
    open: Vec<Vec<Statement>>,
}

/// A tensor parameter.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub(super) param: u32,
    dtype: DType,
}

/// An array in shared memory or of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    pub(super) number: u32,
    pub(super) is_shared: bool,
    pub(super) ty: ArrayType,
}

/// A mutable variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub(super) number: u32,
    ty: Type,
}

impl Buffer {
    /// An element, as a value: 16-bit floats as `f32`.
    pub fn at(&self, at: &Expression) -> Expression {
        Expression::new(Kind::Load(self.param, at.to_index()), Type::Value(self.dtype))
    }

    /// The dtype of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

impl Array {
    /// An element.
    pub fn at(&self, at: &Expression) -> Expression {
        let load = if self.is_shared { Kind::LoadShared } else { Kind::LoadArray };
        Expression::new(load(self.number, at.to_index()), self.ty.ty)
    }

    /// An element of an array in shared memory, the same for all threads of the block. It is also a barrier, so all
    /// threads must evaluate it, in a statement of its own.
    ///
    /// # Panics
    /// When the array is atomic or of one thread.
    pub fn uniform_at(&self, at: &Expression) -> Expression {
        assert!(
            self.is_shared && !self.ty.is_atomic,
            "[block kernel] uniform loads read plain shared memory"
        );
        Expression::new(Kind::LoadUniform(self.number, at.to_index()), self.ty.ty)
    }

    /// The memory of its vectors.
    fn vectors(&self) -> Place {
        let is_plain = self.is_shared && !self.ty.is_atomic && self.ty.len.is_multiple_of(LANES);
        assert!(is_plain && self.ty.ty != Type::Index, "[block kernel] the array has no vectors: {self:?}");
        Place::Shared(self.number)
    }
}

impl Variable {
    /// The present value.
    pub fn get(&self) -> Expression {
        Expression::new(Kind::Variable(self.number), self.ty)
    }
}

impl Builder {
    /// Starts a kernel with that many threads per block.
    pub fn new(name: &'static str, threads: u32) -> Builder {
        let state = State { open: alloc::vec![Vec::new()], ..State::default() };
        Builder { name, threads, state: RefCell::new(state) }
    }

    /// Ends the kernel.
    pub fn finish(self) -> BlockKernel {
        let mut state = self.state.into_inner();
        let body = state.open.pop().unwrap_or_default();
        BlockKernel {
            name: self.name,
            threads: self.threads,
            params: state.params,
            shared: state.shared,
            tiles: state.tiles,
            body,
        }
    }

    fn param(&self, name: &str, kind: BlockParamKind, dtype: DType) -> u32 {
        let mut state = self.state.borrow_mut();
        state.params.push(BlockParam { name: String::from(name), kind, dtype });
        state.params.len() as u32 - 1
    }

    /// A tensor that is only read.
    pub fn input(&self, name: &str, dtype: DType) -> Buffer {
        Buffer { param: self.param(name, BlockParamKind::Input, dtype), dtype }
    }

    /// A tensor that is written; its elements may also be read.
    pub fn output(&self, name: &str, dtype: DType) -> Buffer {
        Buffer { param: self.param(name, BlockParamKind::Output, dtype), dtype }
    }

    /// A tensor with [atomic operations](Builder::atomic).
    pub fn atomic_output(&self, name: &str, dtype: DType) -> Buffer {
        Buffer { param: self.param(name, BlockParamKind::Atomic, dtype), dtype }
    }

    /// The bounds-check flag of the launch, for [`fail`](Builder::fail).
    pub fn flag(&self, name: &str) -> Buffer {
        Buffer { param: self.param(name, BlockParamKind::Flag, DType::U32), dtype: DType::U32 }
    }

    /// A number, passed with each launch.
    pub fn number(&self, name: &str, dtype: DType) -> Expression {
        Expression::new(Kind::Param(self.param(name, BlockParamKind::Number, dtype)), Type::Value(dtype))
    }

    /// A length, passed with each launch.
    pub fn length(&self, name: &str) -> Expression {
        Expression::new(Kind::Param(self.param(name, BlockParamKind::Length, DType::U32)), Type::Index)
    }

    /// Several lengths.
    pub fn lengths<const N: usize>(&self, names: [&str; N]) -> [Expression; N] {
        names.map(|name| self.length(name))
    }

    /// The number of the thread in its block.
    pub fn thread(&self) -> Expression {
        Expression::new(Kind::Thread, Type::Index)
    }

    /// The number of the block.
    pub fn block(&self) -> Expression {
        Expression::new(Kind::Block, Type::Index)
    }

    /// The number of blocks of the launch.
    pub fn blocks(&self) -> Expression {
        Expression::new(Kind::Blocks, Type::Index)
    }

    /// An array in shared memory.
    pub fn shared(&self, dtype: DType, len: usize) -> Array {
        self.shared_of(ArrayType { ty: Type::Value(dtype), len, is_atomic: false })
    }

    /// An array in shared memory with atomic operations, of 32-bit elements.
    pub fn shared_atomic(&self, dtype: DType, len: usize) -> Array {
        self.shared_of(ArrayType { ty: Type::Value(dtype), len, is_atomic: true })
    }

    /// An array of indices in shared memory.
    pub fn shared_indices(&self, len: usize) -> Array {
        self.shared_of(ArrayType { ty: Type::Index, len, is_atomic: false })
    }

    fn shared_of(&self, ty: ArrayType) -> Array {
        let mut state = self.state.borrow_mut();
        state.shared.push(ty);
        Array { number: state.shared.len() as u32 - 1, is_shared: true, ty }
    }

    pub(super) fn tile_of(&self, ty: TileType) -> u32 {
        let mut state = self.state.borrow_mut();
        state.tiles.push(ty);
        state.tiles.len() as u32 - 1
    }

    /// An array of this thread, without values.
    pub fn array(&self, ty: Type, len: usize) -> Array {
        let ty = ArrayType { ty, len, is_atomic: false };
        let number = self.fresh();
        self.push(Statement::Array(number, ty));
        Array { number, is_shared: false, ty }
    }

    /// Evaluates an expression at this point, and returns its value as an immutable variable.
    pub fn bind(&self, value: &Expression) -> Expression {
        let number = self.fresh();
        self.push(Statement::Let(number, value.clone()));
        Expression::new(Kind::Variable(number), value.ty())
    }

    /// A mutable variable with its first value.
    pub fn var(&self, value: &Expression) -> Variable {
        let number = self.fresh();
        self.push(Statement::Var(number, value.clone()));
        Variable { number, ty: value.ty() }
    }

    /// Assigns to a variable.
    ///
    /// # Panics
    /// When the types differ.
    pub fn set(&self, variable: &Variable, value: &Expression) {
        assert_eq!(variable.ty, value.ty(), "[block kernel] an assignment of another type: {value:?}");
        self.push(Statement::Assign(variable.number, value.clone()));
    }

    /// Assigns a function of a variable's value and another value to it.
    pub fn update(&self, variable: &Variable, function: Binary, value: &Expression) {
        self.set(variable, &variable.get().binary(function, value));
    }

    /// Stores to an element of a tensor.
    ///
    /// # Panics
    /// When the value does not have the tensor's dtype.
    pub fn store(&self, to: &Buffer, at: &Expression, value: &Expression) {
        assert_eq!(Type::Value(to.dtype), value.ty(), "[block kernel] a store of another type: {value:?}");
        self.push(Statement::Store(to.param, at.to_index(), value.clone()));
    }

    /// Stores to an element of an array.
    ///
    /// # Panics
    /// When the value does not have the array's type.
    pub fn put(&self, to: &Array, at: &Expression, value: &Expression) {
        assert_eq!(to.ty.ty, value.ty(), "[block kernel] a store of another type: {value:?}");
        let store = if to.is_shared { Statement::StoreShared } else { Statement::StoreArray };
        self.push(store(to.number, at.to_index(), value.clone()));
    }

    /// Reads a vector of a tensor by one access, as values; zeros where the condition is false. The tensor is accessed by
    /// vectors only, and its first element and the number of its elements are multiples of [`LANES`].
    ///
    /// # Panics
    /// When the dtype [has no vectors](has_vectors).
    pub fn load_vector(
        &self,
        from: &Buffer,
        number: &Expression,
        condition: &Expression,
    ) -> [Expression; LANES] {
        self.push_load(Place::Param(from.param), from.dtype, number, Some(condition.clone()))
    }

    /// Stores to a vector of a tensor by one access, see [`load_vector`](Builder::load_vector).
    ///
    /// # Panics
    /// When a value does not have the tensor's dtype, or the dtype [has no vectors](has_vectors).
    pub fn store_vector(&self, to: &Buffer, number: &Expression, values: [Expression; LANES]) {
        self.push_store(Place::Param(to.param), to.dtype, number, values);
    }

    /// Reads a vector of an array in shared memory by one access.
    ///
    /// # Panics
    /// When the array is atomic or of one thread, its length is no multiple of [`LANES`], or its dtype
    /// [has no vectors](has_vectors).
    pub fn load_shared_vector(&self, from: &Array, number: &Expression) -> [Expression; LANES] {
        self.push_load(from.vectors(), from.ty.ty.dtype(), number, None)
    }

    /// Stores to a vector of an array in shared memory by one access.
    ///
    /// # Panics
    /// As [`load_shared_vector`](Builder::load_shared_vector), or when a value does not have the array's dtype.
    pub fn put_vector(&self, to: &Array, number: &Expression, values: [Expression; LANES]) {
        self.push_store(to.vectors(), to.ty.ty.dtype(), number, values);
    }

    fn push_load(
        &self,
        place: Place,
        dtype: DType,
        number: &Expression,
        condition: Option<Expression>,
    ) -> [Expression; LANES] {
        assert!(has_vectors(dtype), "[block kernel] there are no vectors of {dtype:?}");
        let numbers = [(); LANES].map(|()| self.fresh());
        let at = number.to_index();
        self.push(Statement::LoadVector { place, at, condition, first: numbers[0] });
        numbers.map(|number| Expression::new(Kind::Variable(number), Type::Value(dtype)))
    }

    fn push_store(&self, place: Place, dtype: DType, number: &Expression, values: [Expression; LANES]) {
        assert!(has_vectors(dtype), "[block kernel] there are no vectors of {dtype:?}");
        for value in &values {
            let ty = Type::Value(dtype);
            assert_eq!(ty, value.ty(), "[block kernel] a store of another type: {value:?}");
        }
        self.push(Statement::StoreVector { place, at: number.to_index(), values });
    }

    /// An atomic operation on an element of an [atomic](Builder::atomic_output) tensor.
    ///
    /// # Panics
    /// When the value does not have the tensor's dtype.
    pub fn atomic(&self, to: &Buffer, at: &Expression, operation: Atomic, value: &Expression) {
        assert_eq!(Type::Value(to.dtype), value.ty(), "[block kernel] an operand of another type: {value:?}");
        self.push_atomic(Place::Param(to.param), at, operation, value, None);
    }

    /// As [`atomic`](Builder::atomic); returns the element's value before.
    ///
    /// # Panics
    /// When the value does not have the tensor's dtype.
    pub fn atomic_before(
        &self,
        to: &Buffer,
        at: &Expression,
        operation: Atomic,
        value: &Expression,
    ) -> Expression {
        assert_eq!(Type::Value(to.dtype), value.ty(), "[block kernel] an operand of another type: {value:?}");
        let before = self.fresh();
        self.push_atomic(Place::Param(to.param), at, operation, value, Some(before));
        Expression::new(Kind::Variable(before), value.ty())
    }

    /// An atomic operation on an element of an array in shared memory; returns the element's value before.
    ///
    /// # Panics
    /// When the array is not [atomic](Builder::shared_atomic), or the value does not have its dtype.
    pub fn atomic_shared(
        &self,
        to: &Array,
        at: &Expression,
        operation: Atomic,
        value: &Expression,
    ) -> Expression {
        assert!(to.is_shared && to.ty.is_atomic, "[block kernel] the array has no atomic operations");
        assert_eq!(to.ty.ty, value.ty(), "[block kernel] an operand of another type: {value:?}");
        let before = self.fresh();
        self.push_atomic(Place::Shared(to.number), at, operation, value, Some(before));
        Expression::new(Kind::Variable(before), value.ty())
    }

    fn push_atomic(
        &self,
        place: Place,
        at: &Expression,
        operation: Atomic,
        value: &Expression,
        before: Option<u32>,
    ) {
        let (at, value) = (at.to_index(), value.clone());
        self.push(Statement::Atomic { place, at, operation, value, before });
    }

    /// Reports an index out of range, with the number of its point, of which the lowest is kept.
    pub fn fail(&self, flag: &Buffer, at: &Expression, point: &Expression) {
        self.push(Statement::Fail(flag.param, at.to_index(), point.to_index()));
    }

    /// Executes the body where the condition is true.
    pub fn when(&self, condition: &Expression, then: impl FnOnce()) {
        let then = self.body(then);
        self.push(Statement::If(condition.clone(), then, Vec::new()));
    }

    /// Executes the first body where the condition is true, else the second.
    pub fn when_else(&self, condition: &Expression, then: impl FnOnce(), otherwise: impl FnOnce()) {
        let (then, otherwise) = (self.body(then), self.body(otherwise));
        self.push(Statement::If(condition.clone(), then, otherwise));
    }

    /// A loop over an index from a start to an exclusive end by a step. The end plus the step must be an index, which has
    /// 31 bits in WGSL.
    pub fn for_range(
        &self,
        from: &Expression,
        below: &Expression,
        step: &Expression,
        body: impl FnOnce(Expression),
    ) {
        let counter = self.fresh();
        let body = self.body(|| body(Expression::new(Kind::Variable(counter), Type::Index)));
        let range = [from.to_index(), below.to_index(), step.to_index()];
        self.push(Statement::For { counter, range, body });
    }

    /// A loop over the indices below an end.
    pub fn for_each(&self, below: &Expression, body: impl FnOnce(Expression)) {
        self.for_range(&index(0), below, &index(1), body);
    }

    /// A loop over points below a total, shared among all threads of all blocks: each thread takes every n-th point.
    pub fn for_points(&self, total: &Expression, body: impl FnOnce(Expression)) {
        let threads = index(self.threads as usize);
        let first = self.block() * &threads + self.thread();
        let step = self.blocks() * &threads;
        self.for_range(&first, total, &step, body);
    }

    /// A loop over indices below an end, shared among the threads of the block.
    pub fn for_threads(&self, below: &Expression, body: impl FnOnce(Expression)) {
        self.for_range(&self.thread(), below, &index(self.threads as usize), body);
    }

    /// Repeats the body while the condition is true.
    pub fn while_true(&self, condition: &Expression, body: impl FnOnce()) {
        let body = self.body(body);
        self.push(Statement::While(condition.clone(), body));
    }

    /// Ends the innermost loop.
    pub fn break_loop(&self) {
        self.push(Statement::Break);
    }

    /// Starts the next iteration of the innermost loop.
    pub fn continue_loop(&self) {
        self.push(Statement::Continue);
    }

    /// Waits for all threads of the block, in uniform control flow: see [`Statement::Barrier`].
    pub fn barrier(&self) {
        self.push(Statement::Barrier);
    }

    fn body(&self, statements: impl FnOnce()) -> Vec<Statement> {
        self.state.borrow_mut().open.push(Vec::new());
        statements();
        self.state.borrow_mut().open.pop().unwrap_or_default()
    }

    pub(super) fn push(&self, statement: Statement) {
        if let Some(body) = self.state.borrow_mut().open.last_mut() {
            body.push(statement);
        }
    }

    pub(super) fn fresh(&self) -> u32 {
        let mut state = self.state.borrow_mut();
        state.variables += 1;
        state.variables - 1
    }
}
