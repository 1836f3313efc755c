//! Computing values again instead of keeping them.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use kiln_ir::{CHEAP, Engine, Op, Operand, Operands, TensorType, Value};
use smallvec::SmallVec;

/// The longest chain of recipes: what lies deeper is kept, which bounds the work and the stack of computing again.
const MAX_DEPTH: u32 = 16;

/// How to compute a value again from values that are kept.
pub(crate) struct Recipe {
    op: Op,
    inputs: SmallVec<[Ingredient; 2]>,
    pub(crate) ty: TensorType,
    depth: u32,
    /// The bytes that stay in memory only for this recipe.
    cost: usize,
}

pub(crate) enum Ingredient {
    Operand(Operand),
    Recipe(Arc<Recipe>),
}

impl Recipe {
    /// A recipe for the only result of an op; `extra` is how many bytes of ingredients would otherwise be freed.
    /// `None` where computing again would not save memory, or costs too much.
    pub(crate) fn new(
        op: &Op,
        inputs: SmallVec<[Ingredient; 2]>,
        extra: usize,
        ty: TensorType,
    ) -> Option<Arc<Recipe>> {
        let recipes = || {
            inputs.iter().filter_map(|ingredient| match ingredient {
                Ingredient::Recipe(recipe) => Some(recipe),
                Ingredient::Operand(_) => None,
            })
        };
        let cost = recipes().map(|recipe| recipe.cost).fold(extra, usize::saturating_add);
        let depth = recipes().map(|recipe| recipe.depth + 1).max().unwrap_or(0);
        if cost >= ty.num_bytes() || depth > MAX_DEPTH {
            return None;
        }
        Some(Arc::new(Recipe { op: op.clone(), inputs, ty, depth, cost }))
    }
}

/// Values computed again during one backward pass, each once for all its uses.
#[derive(Default)]
pub(crate) struct Recomputed {
    values: BTreeMap<usize, Entry>,
}

struct Entry {
    value: Value,
    /// How many uses may still come; it is freed after the last.
    uses: usize,
    /// Keeps the recipe, and with it the address by which the entry is found.
    _recipe: Arc<Recipe>,
}

impl Recomputed {
    pub(crate) fn get(&mut self, engine: &dyn Engine, recipe: &Arc<Recipe>) -> Value {
        let key = Arc::as_ptr(recipe).addr();
        if let Some(entry) = self.values.get_mut(&key) {
            entry.uses -= 1;
            let value = entry.value.clone();
            if entry.uses == 0 {
                self.values.remove(&key);
            }
            return value;
        }
        let ingredient = |input: &Ingredient| match input {
            Ingredient::Operand(operand) => operand.clone(),
            Ingredient::Recipe(recipe) => self.get(engine, recipe).into(),
        };
        let inputs: Operands = recipe.inputs.iter().map(ingredient).collect();
        let value = engine.execute(&recipe.op, inputs, &[recipe.ty]).remove(0);
        // Every owner but the one asking is a possible later use.
        let uses = Arc::strong_count(recipe) - 1;
        if uses > 0 {
            self.values.insert(key, Entry { value: value.clone(), uses, _recipe: recipe.clone() });
        }
        value
    }
}

/// Whether an op is bound by memory, so that running it again costs little more than reading its result would.
pub(crate) fn is_cheap(op: &Op) -> bool {
    if let Op::Custom(custom) = op { custom.is_cheap() } else { op.is(CHEAP) }
}
