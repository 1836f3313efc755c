//! The optimizer state of one parameter, on its device.

use crate::blockwise::{Blockwise, is_eligible};
use crate::error::Result;
use crate::guard::select;
use crate::{SlotCode, UpdateRule};
use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, Stack};

/// The optimizer state of one parameter: step count and named tensors.
#[derive(Clone, Debug, Default)]
pub struct ParameterState {
    steps: u64,
    slots: Vec<(&'static str, Slot)>,
}

/// A stored tensor.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// In full precision.
    Full(AnyTensor),
    /// In 8 bits.
    Blockwise(Blockwise),
}

impl ParameterState {
    /// Returns the number of updates of the parameter, including the current step.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Removes a tensor and returns it, so that it can be updated in place. `None` at the first step.
    pub fn take(&mut self, slot: &str) -> Option<AnyTensor> {
        let place = self.slots.iter().position(|(name, stored)| *name == slot && stored.full().is_some())?;
        match self.slots.swap_remove(place).1 {
            Slot::Full(tensor) => Some(tensor),
            // Decoded before a rule runs.
            Slot::Blockwise(_) => None,
        }
    }

    /// Returns a tensor. `None` before the first step.
    pub fn get(&self, slot: &str) -> Option<&AnyTensor> {
        self.slots.iter().find(|(name, _)| *name == slot)?.1.full()
    }

    /// Stores a tensor under a name, replacing the previous one.
    pub fn put(&mut self, slot: &'static str, tensor: AnyTensor) {
        self.put_slot(slot, Slot::Full(tensor));
    }

    pub(crate) fn put_slot(&mut self, slot: &'static str, stored: Slot) {
        self.slots.retain(|(name, _)| *name != slot);
        self.slots.push((slot, stored));
    }

    pub(crate) fn slots(&self) -> &[(&'static str, Slot)] {
        &self.slots
    }

    pub(crate) fn with_steps(steps: u64) -> ParameterState {
        ParameterState { steps, slots: Vec::new() }
    }

    /// Counts a step.
    pub(crate) fn count_step(&mut self) {
        self.steps += 1;
    }

    /// Moves the state to a stack if its parameter was moved.
    pub(crate) fn move_to(&mut self, stack: &Stack) -> Result<()> {
        let moved = |tensor: &mut AnyTensor| -> Result<()> {
            if !tensor.stack().same(stack) {
                *tensor = tensor.clone().to_stack(stack)?;
            }
            Ok(())
        };
        for (_, stored) in &mut self.slots {
            match stored {
                Slot::Full(tensor) => moved(tensor)?,
                Slot::Blockwise(Blockwise { codes, scales, .. }) => {
                    moved(codes)?;
                    moved(scales)?;
                }
            }
        }
        Ok(())
    }

    /// Decodes the tensors in 8 bits, for a rule.
    pub(crate) fn decode(&mut self) -> Result<()> {
        for (_, stored) in &mut self.slots {
            if let Slot::Blockwise(encoded) = stored {
                *stored = Slot::Full(encoded.clone().decode()?);
            }
        }
        Ok(())
    }

    /// Encodes the tensors that are large enough in 8 bits.
    pub(crate) fn encode(&mut self, rule: &dyn UpdateRule) -> Result<()> {
        for (name, stored) in &mut self.slots {
            let Slot::Full(tensor) = stored else { continue };
            let is_nonnegative = match rule.slot_code(name) {
                SlotCode::Exact => continue,
                SlotCode::Signed => false,
                SlotCode::NonNegative => true,
            };
            if is_eligible(*tensor.ty()) {
                *stored = Slot::Blockwise(Blockwise::encode(tensor.clone(), is_nonnegative)?);
            }
        }
        Ok(())
    }

    /// Undoes the count of a refused step and returns the remaining count.
    pub(crate) fn take_back_step(&mut self) -> u64 {
        self.steps = self.steps.saturating_sub(1);
        self.steps
    }

    /// Restores the previous tensors where the flag is false.
    pub(crate) fn keep_unless(&mut self, ok: &AnyTensor, mut before: ParameterState) -> Result<()> {
        for (slot, stored) in core::mem::take(&mut self.slots) {
            let place = before.slots.iter().position(|(name, _)| *name == slot);
            let old = place.map(|place| before.slots.swap_remove(place).1);
            self.slots.push((slot, stored.unless(ok, old)?));
        }
        Ok(())
    }
}

impl Slot {
    fn full(&self) -> Option<&AnyTensor> {
        match self {
            Slot::Full(tensor) => Some(tensor),
            Slot::Blockwise(_) => None,
        }
    }

    /// This tensor where the flag is true, otherwise the old one.
    fn unless(self, ok: &AnyTensor, old: Option<Slot>) -> Result<Slot> {
        match (self, old) {
            (Slot::Full(new), None) => Ok(Slot::Full(select(ok, new, None)?)),
            (Slot::Full(new), Some(Slot::Full(old))) => Ok(Slot::Full(select(ok, new, Some(old))?)),
            (Slot::Full(new), Some(Slot::Blockwise(old))) => {
                Ok(Slot::Full(select(ok, new, Some(old.decode()?))?))
            }
            (Slot::Blockwise(new), old) => {
                let old = match old {
                    None => None,
                    Some(Slot::Blockwise(old)) => Some(old),
                    Some(Slot::Full(old)) => Some(Blockwise::encode(old, new.is_nonnegative)?),
                };
                let (codes, scales) = match old {
                    Some(old) => (Some(old.codes), Some(old.scales)),
                    None => (None, None),
                };
                Ok(Slot::Blockwise(Blockwise {
                    codes: select(ok, new.codes, codes)?,
                    scales: select(ok, new.scales, scales)?,
                    ..new
                }))
            }
        }
    }
}
