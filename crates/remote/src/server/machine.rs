//! The memory of the machine, which bounds that of all sessions by default.

/// Where the machine does not tell its memory.
const UNKNOWN: u64 = 4 << 30;

/// The bytes that all sessions may hold by default: seven eighths of the memory of a device that has its own, otherwise half of
/// what the machine, or the group of processes with a limit of its own (cgroup), has available.
pub(super) fn memory(of_device: Option<u64>) -> u64 {
    match of_device {
        Some(bytes) => bytes / 8 * 7,
        None => available().map_or(UNKNOWN, |bytes| bytes / 2),
    }
}

fn available() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let number = |path: &str| read(path)?.trim().parse::<u64>().ok();
    let machine = read("/proc/meminfo").and_then(|text| of_meminfo(&text));
    let group = number("/sys/fs/cgroup/memory.max")
        .map(|most| most.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    machine.into_iter().chain(group).min()
}

fn of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        assert_eq!(of_meminfo("MemTotal: 9 kB\nMemAvailable:   16 kB\n"), Some(16 << 10));
        for text in ["", "MemAvailable: x kB", "MemAvailable: 18446744073709551615 kB"] {
            assert_eq!(of_meminfo(text), None, "{text}");
        }
        assert_eq!(memory(Some(80 << 30)), 70 << 30);
        assert!(memory(None) > 0);
    }
}
