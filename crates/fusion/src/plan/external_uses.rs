//! Live-out values of fusion groups, which must be stored.

use super::graph::{Graph, ValueNumber};
use super::group::Group;
use alloc::vec::Vec;

/// The number of uses of each value outside its group: by other groups or by the program.
pub(super) struct ExternalUses {
    uses: Vec<u32>,
}

impl ExternalUses {
    pub(super) fn new(graph: &Graph<'_>, groups: &[Group]) -> ExternalUses {
        let mut external_uses = ExternalUses { uses: alloc::vec![0; graph.types.len()] };
        for value in 0..graph.types.len() as ValueNumber {
            if graph.is_alive(value) {
                external_uses.uses[graph.roots[value as usize] as usize] += 1;
            }
        }
        groups.iter().for_each(|group| external_uses.add(graph, group));
        external_uses
    }

    /// Whether a value is used outside its group.
    pub(super) fn has(&self, value: ValueNumber) -> bool {
        self.uses[value as usize] > 0
    }

    /// Adds a group's uses of other groups' values.
    pub(super) fn add(&mut self, graph: &Graph<'_>, group: &Group) {
        foreign(graph, group).for_each(|root| self.uses[root as usize] += 1);
    }

    /// Removes the uses of a group that is about to change.
    pub(super) fn remove(&mut self, graph: &Graph<'_>, group: &Group) {
        foreign(graph, group).for_each(|root| self.uses[root as usize] -= 1);
    }
}

/// The values that the members of a group use but the group does not compute, once for each use.
fn foreign<'a>(graph: &'a Graph<'_>, group: &'a Group) -> impl Iterator<Item = ValueNumber> + 'a {
    let operands = group.members.iter().flat_map(|&entry| graph.operands(entry));
    let roots = operands.map(|value| graph.roots[value as usize]);
    roots.filter(|&root| !graph.producers[root as usize].is_some_and(|(maker, _)| group.has(maker)))
}
