//! The approximation of the inverse Hessian by the last moves.

use super::space::Space;
use super::{NAME, dot};
use crate::OptimizerState;
use crate::clip::read;
use crate::error::Result;
use crate::state::invalid;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, TensorData};

/// The state of the optimizer between iterations.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) iterations: u64,
    pub(super) evaluations: u64,
    /// The last direction.
    pub(super) direction: Option<AnyTensor>,
    /// The length of the last move.
    pub(super) length: f64,
    gradient: Option<AnyTensor>,
    pairs: Vec<Pair>,
    /// The initial approximation of the inverse Hessian is this factor times the identity.
    scale: f64,
}

/// A move `s` of the parameters, the change `y` of the gradient by it, and `1 / (y · s)`.
#[derive(Clone, Debug)]
struct Pair {
    s: AnyTensor,
    y: AnyTensor,
    inverse: f64,
}

/// A pair of a smaller product `y · s` is not added.
const MIN_PRODUCT: f64 = 1e-10;

/// The names of the entries in a state.
const ITERATIONS: &str = "@lbfgs.iterations";
const EVALUATIONS: &str = "@lbfgs.evaluations";
const LENGTH: &str = "@lbfgs.length";
const SCALE: &str = "@lbfgs.scale";
const DIRECTION: &str = "@lbfgs.direction";
const GRADIENT: &str = "@lbfgs.gradient";
const MOVES: &str = "@lbfgs.moves";
const CHANGES: &str = "@lbfgs.gradient_changes";
const INVERSES: &str = "@lbfgs.inverse_products";

impl Memory {
    /// Counts an iteration, sets its direction and returns the first length to try.
    pub(super) fn plan(&mut self, gradient: &AnyTensor, rate: f64, history_size: u64) -> Result<f64> {
        self.iterations += 1;
        let direction = match (self.direction.take(), self.gradient.take()) {
            (Some(direction), Some(before)) => {
                self.remember(direction, before, gradient, history_size)?;
                self.direction_at(gradient)?
            }
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                self.scale = 1.0;
                gradient.clone().neg()?
            }
        };
        self.length = rate;
        if self.iterations == 1 {
            self.length = f64::min(1.0, 1.0 / read(gradient.clone().abs()?.sum()?)?) * rate;
        }
        self.direction = Some(direction);
        self.gradient = Some(gradient.clone());
        Ok(self.length)
    }

    /// Adds the last move.
    fn remember(
        &mut self,
        direction: AnyTensor,
        before: AnyTensor,
        gradient: &AnyTensor,
        history_size: u64,
    ) -> Result<()> {
        let y = gradient.clone().sub(before)?;
        let s = direction.mul_scalar(self.length)?;
        let product = dot(&y, &s)?;
        if product <= MIN_PRODUCT {
            return Ok(());
        }
        if self.pairs.len() as u64 >= history_size {
            self.pairs.remove(0);
        }
        self.scale = product / dot(&y, &y)?;
        self.pairs.push(Pair { s, y, inverse: 1.0 / product });
        Ok(())
    }

    /// The two-loop recursion: `-H g`.
    fn direction_at(&self, gradient: &AnyTensor) -> Result<AnyTensor> {
        let mut q = gradient.clone().neg()?;
        let mut alphas = Vec::with_capacity(self.pairs.len());
        for Pair { s, y, inverse } in self.pairs.iter().rev() {
            let alpha = dot(s, &q)? * inverse;
            q = q.add(y.clone().mul_scalar(-alpha)?)?;
            alphas.push(alpha);
        }
        let mut r = q.mul_scalar(self.scale)?;
        for (Pair { s, y, inverse }, alpha) in self.pairs.iter().zip(alphas.into_iter().rev()) {
            let beta = dot(y, &r)? * inverse;
            r = r.add(s.clone().mul_scalar(alpha - beta)?)?;
        }
        Ok(r)
    }

    /// The state as named tensors. Empty before the first iteration.
    pub(super) fn entries(&self) -> Result<Vec<(String, TensorData)>> {
        let mut entries = Vec::new();
        if self.iterations == 0 {
            return Ok(entries);
        }
        let mut add = |name: &str, data: TensorData| entries.push((name.to_string(), data));
        add(ITERATIONS, TensorData::scalar(self.iterations));
        add(EVALUATIONS, TensorData::scalar(self.evaluations));
        add(LENGTH, TensorData::scalar(self.length));
        add(SCALE, TensorData::scalar(self.scale));
        for (name, vector) in [(DIRECTION, &self.direction), (GRADIENT, &self.gradient)] {
            if let Some(vector) = vector {
                add(name, vector.to_data()?);
            }
        }
        if !self.pairs.is_empty() {
            let rows = |of: fn(&Pair) -> &AnyTensor| -> Result<TensorData> {
                let rows = self.pairs.iter().map(|pair| of(pair).clone()).collect();
                Ok(AnyTensor::stack_tensors(rows, 0)?.to_data()?)
            };
            add(MOVES, rows(|pair| &pair.s)?);
            add(CHANGES, rows(|pair| &pair.y)?);
            let inverses: Vec<f64> = self.pairs.iter().map(|pair| pair.inverse).collect();
            let count = inverses.len();
            add(INVERSES, TensorData::new(inverses, [count])?);
        }
        Ok(entries)
    }

    /// Reads the state that [`entries`](Memory::entries) returned.
    pub(super) fn from_state(state: &OptimizerState, space: &Space) -> Result<Memory> {
        let numbers =
            |name: &str| state.global_entry(name).map(TensorData::to_vec::<f64>).unwrap_or_default();
        let number = |name: &str| numbers(name).first().copied().unwrap_or(0.0);
        let mut memory = Memory {
            iterations: number(ITERATIONS) as u64,
            evaluations: number(EVALUATIONS) as u64,
            length: number(LENGTH),
            scale: number(SCALE),
            ..Memory::default()
        };
        let Some((ty, stack)) = space.vector() else { return Ok(memory) };
        let tensor = |name: &str, rows: Option<usize>| {
            let Some(data) = state.global_entry(name) else { return Ok(None) };
            let expected = match rows {
                Some(rows) => ty.with_shape([rows, ty.num_elements()]),
                None => ty,
            };
            if data.ty() == expected {
                return Ok(Some(AnyTensor::from_data(data.clone(), stack)));
            }
            Err(invalid(NAME, name, alloc::format!("it is {}, but should be {expected}", data.ty())))
        };
        memory.direction = tensor(DIRECTION, None)?;
        memory.gradient = tensor(GRADIENT, None)?;
        let inverses = numbers(INVERSES);
        let moves = tensor(MOVES, Some(inverses.len()))?;
        let changes = tensor(CHANGES, Some(inverses.len()))?;
        if let (Some(moves), Some(changes)) = (moves, changes) {
            let rows = moves.unbind(0)?.into_iter().zip(changes.unbind(0)?);
            let pairs = rows.zip(inverses).map(|((s, y), inverse)| Pair { s, y, inverse });
            memory.pairs = pairs.collect();
        }
        Ok(memory)
    }
}
