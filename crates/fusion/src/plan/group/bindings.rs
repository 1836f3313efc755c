//! The limit on a kernel's buffer bindings, for machines that bind few.

use super::Finder;
use crate::plan::graph::ValueNumber;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use kiln_ir::Op;

impl Finder<'_> {
    /// Whether one kernel of these members binds no more tensors than the machine allows. `repeated` members,
    /// ascending, are computed and stored by other groups.
    ///
    /// A result counts as stored if a non-member uses it, or a member that the kernel only recomputes. The count is
    /// therefore an upper bound for the kernel in the plan, however other groups change.
    pub(super) fn binds_few(
        &self,
        members: impl IntoIterator<Item = u32>,
        repeated: &[u32],
    ) -> Result<(), String> {
        let Some(most) = self.limits.bindings else { return Ok(()) };
        let members: BTreeSet<u32> = members.into_iter().collect();
        if self.num_read(&members) + self.num_stored(&members, repeated) > most {
            return Err(format!("the region would read and write more than {most} tensors"));
        }
        Ok(())
    }

    fn num_read(&self, members: &BTreeSet<u32>) -> usize {
        let mut read: BTreeSet<ValueNumber> = BTreeSet::new();
        for &entry in members {
            for value in self.graph.operands(entry) {
                if self.graph.is_made_by(value, |maker| members.contains(&maker)) {
                    continue;
                }
                read.insert(value);
                // A matmul may fuse the op that dequantizes its weights.
                let maker = self.graph.producer(self.graph.roots[value as usize]);
                if let Some((maker, Op::Dequantize)) = maker
                    && self.graph.entry(entry).op == Op::MatMul
                {
                    read.extend(self.graph.operands(maker));
                }
            }
        }
        read.len()
    }

    fn num_stored(&self, members: &BTreeSet<u32>, repeated: &[u32]) -> usize {
        let is_own = |entry: u32| members.contains(&entry) && repeated.binary_search(&entry).is_err();
        let results = members.iter().filter(|&&entry| is_own(entry)).flat_map(|&entry| {
            let first = self.graph.first[entry as usize];
            first..first + self.graph.entry(entry).results.len() as ValueNumber
        });
        let is_stored = |value: &ValueNumber| {
            self.graph.is_alive(*value) || self.graph.users[*value as usize].iter().any(|&user| !is_own(user))
        };
        results.filter(is_stored).count()
    }
}
