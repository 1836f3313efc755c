//! An interpreter of block kernels with cooperative matrices, for machines without a device that has them.
//!
//! All threads of a block execute a statement before the next one. Accesses of shared memory between two barriers are
//! recorded: threads that do not share a barrier must not exchange values.

use half::f16;
use kiln_ir::{Binary, Comparison, DType, Scalar};
use kiln_kernel::block::{
    BlockKernel, BlockParamKind, Cooperative, Expression, Function, Kind, MatrixMemory, MatrixPlace,
    MatrixType, Statement, Type,
};
use std::collections::HashMap;

/// An element of shared memory: whether it is in a tile, the number of the tile or array, and the index.
type Element = (bool, u32, usize);

/// A thread, or after the threads a subgroup.
type Agent = usize;

/// One value of each thread: indices, numbers and truth values.
type Lanes = Vec<f64>;

/// Executes all blocks. `arguments` are the elements of tensors, and single numbers, in the order of the parameters.
///
/// # Panics
/// When the kernel has other statements than those of matmuls, accesses an element out of range, has a data race in
/// shared memory, or breaks a rule of cooperative matrices.
pub(super) fn run(kernel: &BlockKernel, blocks: usize, lanes: usize, arguments: &mut [Vec<f64>]) {
    for number in 0..blocks {
        let mut block = Block {
            kernel,
            number,
            blocks,
            lanes,
            arguments: &mut *arguments,
            shared: kernel.shared.iter().map(|array| vec![f64::NAN; array.len]).collect(),
            tiles: kernel.tiles.iter().map(|tile| vec![f64::NAN; tile.len]).collect(),
            variables: HashMap::new(),
            packed: HashMap::new(),
            matrices: HashMap::new(),
            written: HashMap::new(),
            read: HashMap::new(),
        };
        block.statements(&kernel.body, &vec![true; kernel.threads as usize]);
    }
}

struct Block<'a> {
    kernel: &'a BlockKernel,
    number: usize,
    blocks: usize,
    /// Threads of a subgroup.
    lanes: usize,
    arguments: &'a mut [Vec<f64>],
    shared: Vec<Vec<f64>>,
    tiles: Vec<Vec<f64>>,
    variables: HashMap<u32, Lanes>,
    /// Fetched elements of each thread.
    packed: HashMap<u32, Vec<[f64; 2]>>,
    /// The elements of matrices of each subgroup, row-major.
    matrices: HashMap<u32, Vec<Vec<f64>>>,
    /// Who wrote an element since the last barrier.
    written: HashMap<Element, Agent>,
    /// Who read an element since the last barrier; `None` for several.
    read: HashMap<Element, Option<Agent>>,
}

impl Block<'_> {
    fn threads(&self) -> usize {
        self.kernel.threads as usize
    }

    fn statements(&mut self, statements: &[Statement], active: &[bool]) {
        for statement in statements {
            self.statement(statement, active);
        }
    }

    fn statement(&mut self, statement: &Statement, active: &[bool]) {
        let is_uniform = active.iter().all(|active| *active);
        if let Statement::Let(number, value) | Statement::Var(number, value) = statement {
            let values = self.values(value, active);
            self.variables.insert(*number, values);
        } else if let Statement::Store(param, at, value) = statement {
            let (places, values) = (self.values(at, active), self.values(value, active));
            for thread in threads_of(active) {
                self.store(*param, places[thread] as usize, values[thread]);
            }
        } else if let Statement::StoreShared(array, at, value) = statement {
            let (places, values) = (self.values(at, active), self.values(value, active));
            for thread in threads_of(active) {
                let at = places[thread] as usize;
                self.note_write((false, *array, at), thread);
                self.shared[*array as usize][at] = values[thread];
            }
        } else if let Statement::If(condition, then, otherwise) = statement {
            let chosen = self.values(condition, active);
            let of = |truth: bool| -> Vec<bool> {
                chosen.iter().zip(active).map(|(value, active)| *active && (*value != 0.0) == truth).collect()
            };
            self.statements(then, &of(true));
            self.statements(otherwise, &of(false));
        } else if let Statement::For { counter, range: [from, below, step], body } = statement {
            let [mut at, below, step] = [from, below, step].map(|value| self.values(value, active));
            loop {
                let active: Vec<bool> = at
                    .iter()
                    .zip(&below)
                    .zip(active)
                    .map(|((at, below), active)| *active && at < below)
                    .collect();
                if active.iter().all(|active| !active) {
                    break;
                }
                self.variables.insert(*counter, at.clone());
                self.statements(body, &active);
                at.iter_mut().zip(&step).for_each(|(at, step)| *at += step);
            }
        } else if let Statement::Barrier = statement {
            assert!(is_uniform, "a barrier in control flow that is not uniform");
            self.written.clear();
            self.read.clear();
        } else if let Statement::Cooperative(statement) = statement {
            self.cooperative(statement, active, is_uniform);
        } else {
            panic!("no such statement is interpreted: {statement:?}");
        }
    }

    fn cooperative(&mut self, statement: &Cooperative, active: &[bool], is_uniform: bool) {
        let (lanes, count) = (self.lanes, self.threads() / self.lanes);
        match statement {
            Cooperative::Subgroup(number) => {
                let subgroups = (0..self.threads()).map(|thread| (thread / lanes) as f64).collect();
                self.variables.insert(*number, subgroups);
            }
            Cooperative::Load { matrix, ty, from } => {
                assert!(is_uniform, "a matrix in control flow that is not uniform");
                let elements = |subgroup| self.load_matrix(subgroup, *ty, from);
                let matrices = (0..count).map(elements).collect();
                self.matrices.insert(*matrix, matrices);
            }
            Cooperative::MultiplyAdd { factors, sums } => {
                assert!(is_uniform, "a product in control flow that is not uniform");
                let [left, right] = factors.map(|factor| self.matrices[&factor].clone());
                for (subgroup, sums) in self.matrices.get_mut(sums).unwrap().iter_mut().enumerate() {
                    multiply_add(&left[subgroup], &right[subgroup], sums);
                }
            }
            Cooperative::Store { matrix, to } => {
                assert!(is_uniform, "a matrix in control flow that is not uniform");
                for subgroup in 0..count {
                    self.store_matrix(subgroup, *matrix, to);
                }
            }
            Cooperative::Fetch { variable, param, count, at, condition } => {
                let (places, inside) = (self.values(at, active), self.values(condition, active));
                let x = &self.arguments[*param as usize];
                let fetched = |thread: usize| {
                    if inside[thread] == 0.0 {
                        return [0.0; 2];
                    }
                    let at = places[thread] as usize;
                    assert!(at.is_multiple_of(*count), "{at} is not at the start of a word");
                    [x[at], if *count == 2 { x[at + 1] } else { 0.0 }]
                };
                self.packed.insert(*variable, (0..active.len()).map(fetched).collect());
            }
            Cooperative::Unpack { variable, tile, count, at } => {
                let places = self.values(at, active);
                for thread in threads_of(active) {
                    for (number, value) in self.packed[variable][thread].into_iter().take(*count).enumerate()
                    {
                        let at = places[thread] as usize + number;
                        self.note_write((true, *tile, at), thread);
                        self.tiles[*tile as usize][at] = value;
                    }
                }
            }
            Cooperative::StorePair { param, at, values: [a, b] } => {
                let places = self.values(at, active);
                let [a, b] = [a, b].map(|value| self.values(value, active));
                for thread in threads_of(active) {
                    let at = places[thread] as usize;
                    assert!(at.is_multiple_of(2), "{at} is not at the start of a word");
                    self.store(*param, at, a[thread]);
                    self.store(*param, at + 1, b[thread]);
                }
            }
        }
    }

    /// The memory of a matrix: of each of its elements, row-major.
    fn elements(&mut self, subgroup: usize, size: usize, place: &MatrixPlace) -> Vec<Element> {
        let MatrixPlace { memory, at, pitch, is_column_major } = place;
        let at = self.values(at, &vec![true; self.threads()]);
        let at = &at[subgroup * self.lanes..(subgroup + 1) * self.lanes];
        assert!(at.iter().all(|other| *other == at[0]), "the threads of a subgroup load other matrices");
        let (is_tile, number, bytes) = match memory {
            MatrixMemory::Tile(tile) => (true, *tile, self.kernel.tiles[*tile as usize].dtype.size()),
            MatrixMemory::Shared(array) => (false, *array, 4),
        };
        let first = at[0] as usize;
        let aligned = 16_usize.min(size * bytes);
        let is_aligned = (first * bytes).is_multiple_of(aligned) && (pitch * bytes).is_multiple_of(aligned);
        assert!(is_aligned, "a matrix at byte {} with rows of {} bytes", first * bytes, pitch * bytes);
        let element = |row: usize, column: usize| {
            let [slow, fast] = if *is_column_major { [column, row] } else { [row, column] };
            (is_tile, number, first + slow * pitch + fast)
        };
        (0..size * size).map(|number| element(number / size, number % size)).collect()
    }

    fn load_matrix(&mut self, subgroup: usize, ty: MatrixType, from: &MatrixPlace) -> Vec<f64> {
        let (agent, elements) = (self.threads() + subgroup, self.elements(subgroup, ty.size, from));
        let load = |element: Element| {
            self.note_read(element, agent);
            let (is_tile, number, at) = element;
            let memory = if is_tile { &self.tiles } else { &self.shared };
            memory[number as usize][at]
        };
        elements.into_iter().map(load).collect()
    }

    fn store_matrix(&mut self, subgroup: usize, matrix: u32, to: &MatrixPlace) {
        let agent = self.threads() + subgroup;
        let values = self.matrices[&matrix][subgroup].clone();
        let elements = self.elements(subgroup, values.len().isqrt(), to);
        for (element, value) in elements.into_iter().zip(values) {
            self.note_write(element, agent);
            let (is_tile, number, at) = element;
            assert!(!is_tile, "sums are stored to a tile");
            self.shared[number as usize][at] = value;
        }
    }

    fn note_write(&mut self, element: Element, agent: Agent) {
        let reader = self.read.get(&element).copied().unwrap_or(Some(agent));
        let writer = self.written.insert(element, agent).unwrap_or(agent);
        assert!(reader == Some(agent) && writer == agent, "a data race at {element:?}");
    }

    fn note_read(&mut self, element: Element, agent: Agent) {
        let writer = self.written.get(&element).copied().unwrap_or(agent);
        assert_eq!(writer, agent, "a data race at {element:?}");
        let readers = self.read.entry(element).or_insert(Some(agent));
        *readers = readers.filter(|reader| *reader == agent);
    }

    fn store(&mut self, param: u32, at: usize, value: f64) {
        let is_half = self.kernel.params[param as usize].dtype == DType::F16;
        let value = if is_half { f16::from_f64(value).to_f64() } else { value };
        self.arguments[param as usize][at] = value;
    }

    /// The values of an expression for the active threads; 0 for the others.
    fn values(&mut self, expression: &Expression, active: &[bool]) -> Lanes {
        let all = |value: f64| vec![value; active.len()];
        let operands: Vec<Lanes> =
            expression.operands().into_iter().map(|operand| self.values(operand, active)).collect();
        if let Kind::Index(value) = expression.kind() {
            all(*value as f64)
        } else if let Kind::Constant(Scalar::Float(value)) = expression.kind() {
            all(*value)
        } else if let Kind::Constant(Scalar::Int(value)) = expression.kind() {
            all(*value as f64)
        } else if let Kind::Variable(number) = expression.kind() {
            self.variables[number].clone()
        } else if let Kind::Param(param) = expression.kind() {
            assert_eq!(self.kernel.params[*param as usize].kind, BlockParamKind::Length);
            all(self.arguments[*param as usize][0])
        } else if let Kind::Thread = expression.kind() {
            (0..active.len()).map(|thread| thread as f64).collect()
        } else if let Kind::Block = expression.kind() {
            all(self.number as f64)
        } else if let Kind::Blocks = expression.kind() {
            all(self.blocks as f64)
        } else if let Kind::LoadShared(array, _) = expression.kind() {
            let mut values = all(0.0);
            for thread in threads_of(active) {
                let at = operands[0][thread] as usize;
                self.note_read((false, *array, at), thread);
                values[thread] = self.shared[*array as usize][at];
            }
            values
        } else if let Kind::Call(function, _) = expression.kind() {
            let of = |thread: usize| {
                let operand = |number: usize| operands[number][thread];
                call(*function, expression.ty(), &operand)
            };
            (0..active.len()).map(|thread| if active[thread] { of(thread) } else { 0.0 }).collect()
        } else {
            panic!("no such expression is interpreted: {expression:?}");
        }
    }
}

fn threads_of(active: &[bool]) -> impl Iterator<Item = usize> {
    (0..active.len()).filter(move |thread| active[*thread])
}

/// The product of row-major square matrices is added to another one.
fn multiply_add(left: &[f64], right: &[f64], sums: &mut [f64]) {
    let size = sums.len().isqrt();
    for (number, sum) in sums.iter_mut().enumerate() {
        let (row, column) = (number / size, number % size);
        *sum += (0..size).map(|inner| left[row * size + inner] * right[inner * size + column]).sum::<f64>();
    }
}

/// A function of one thread's operands.
fn call(function: Function, ty: Type, operand: &dyn Fn(usize) -> f64) -> f64 {
    let is_index = ty == Type::Index;
    match function {
        Function::Binary(Binary::Add) => operand(0) + operand(1),
        Function::Binary(Binary::Mul) => operand(0) * operand(1),
        Function::Binary(Binary::Div) if is_index => (operand(0) / operand(1)).trunc(),
        Function::Binary(Binary::Rem) if is_index => operand(0) % operand(1),
        Function::Binary(Binary::And) if !is_index => f64::from(operand(0) != 0.0 && operand(1) != 0.0),
        Function::Compare(Comparison::Lt) => f64::from(operand(0) < operand(1)),
        // Stores round.
        Function::Cast => operand(0),
        Function::Unary(_)
        | Function::Binary(_)
        | Function::Compare(_)
        | Function::Select
        | Function::Bitcast
        | Function::MulHigh => panic!("no such function is interpreted: {function:?}"),
    }
}
