//! The memory of all members together.

use crate::member::native;
use crate::router::Router;
use kiln_ir::{Memory, MemoryConfig, MemoryUse};
use std::any::{Any, TypeId};

impl Router {
    /// Calls a function with the allocator of each device. Engines of one type with one name are on one device.
    fn each_memory(&self, mut f: impl FnMut(&dyn Memory)) {
        let mut seen: Vec<(TypeId, String)> = Vec::new();
        for member in self.members() {
            let engine = native(&**member.engine());
            let key = (Any::type_id(engine), engine.caps().name.clone());
            if let Some(memory) = member.engine().memory()
                && !seen.contains(&key)
            {
                seen.push(key);
                f(memory);
            }
        }
    }
}

/// Sums over the devices of all members; a limit or strategy applies to each of them.
impl Memory for Router {
    fn usage(&self) -> MemoryUse {
        let mut total = MemoryUse::default();
        self.each_memory(|memory| {
            let usage = memory.usage();
            total.live_bytes += usage.live_bytes;
            total.cached_bytes += usage.cached_bytes;
            total.peak_live_bytes += usage.peak_live_bytes;
            total.system_allocations += usage.system_allocations;
            total.reuses += usage.reuses;
        });
        total
    }

    fn reset_peak(&self) {
        self.each_memory(|memory| memory.reset_peak());
    }

    fn trim(&self) {
        self.each_memory(|memory| memory.trim());
    }

    fn configure(&self, config: MemoryConfig) {
        self.each_memory(|memory| memory.configure(config));
    }
}
