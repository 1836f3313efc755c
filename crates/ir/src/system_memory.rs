//! The memory of the system.

use alloc::format;

/// The memory of the system in bytes, or that of the control group (cgroup v2) of this process where it is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemMemory {
    /// All memory, swap space included.
    pub total: u64,
    /// The memory that programs can still allocate without swapping.
    pub available: u64,
}

impl SystemMemory {
    /// Reads the memory of the system. `None` on systems other than Linux.
    ///
    /// ```
    /// if let Some(memory) = kiln_ir::SystemMemory::read() {
    ///     assert!(memory.available <= memory.total);
    /// }
    /// ```
    pub fn read() -> Option<SystemMemory> {
        let file = |path: &str| std::fs::read_to_string(path).ok();
        let group = |name: &str| file(&format!("/sys/fs/cgroup/memory.{name}")).unwrap_or_default();
        parse(&file("/proc/meminfo")?, [&group("max"), &group("swap.max"), &group("current")])
    }
}

/// Parses `/proc/meminfo`, and `memory.max`, `memory.swap.max` and `memory.current` of the group. A group without a limit has
/// `max` in the first two, and the root has no such files.
fn parse(meminfo: &str, group: [&str; 3]) -> Option<SystemMemory> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
        kibibytes.checked_mul(1024)
    };
    let [most, most_swap, current] = group.map(|text| text.trim().parse::<u64>().ok());
    let swap = field("SwapTotal:").unwrap_or(0).min(most_swap.unwrap_or(u64::MAX));
    let (total, available) = (field("MemTotal:")?, field("MemAvailable:")?);
    let most = most.unwrap_or(u64::MAX);
    Some(SystemMemory {
        total: total.min(most).saturating_add(swap),
        available: available.min(most.saturating_sub(current.unwrap_or(0))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:  64 kB\nMemFree:  1 kB\nMemAvailable:   16 kB\nSwapTotal: 8 kB\n";

    fn bytes(group: [&str; 3]) -> [u64; 2] {
        let memory = parse(MEMINFO, group).unwrap();
        [memory.total, memory.available]
    }

    #[test]
    fn groups_lower_the_memory_of_the_system() {
        assert_eq!(bytes([""; 3]), [72 << 10, 16 << 10]);
        assert_eq!(bytes(["max\n", "max\n", "4096\n"]), [72 << 10, 16 << 10]);
        assert_eq!(bytes(["32768\n", "max\n", "28672\n"]), [40 << 10, 4 << 10]);
        assert_eq!(bytes(["32768\n", "0\n", "40000\n"]), [32 << 10, 0]);
    }

    #[test]
    fn damaged_texts_give_nothing() {
        for text in ["", "MemTotal: 8 kB", "MemTotal: x kB\nMemAvailable: 1 kB"] {
            assert_eq!(parse(text, [""; 3]), None, "{text}");
        }
        assert_eq!(parse("MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB", [""; 3]), None);
    }
}
