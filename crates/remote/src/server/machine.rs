//! The memory of the machine, which bounds that of all sessions by default.

use kiln_ir::SystemMemory;

/// Where the machine does not tell its memory.
const UNKNOWN: u64 = 4 << 30;

/// The bytes that all sessions may hold by default: seven eighths of the memory of a device that has its own, otherwise half of
/// the available memory of the system.
pub(super) fn memory(of_device: Option<u64>) -> u64 {
    match of_device {
        Some(bytes) => bytes / 8 * 7,
        None => SystemMemory::read().map_or(UNKNOWN, |memory| memory.available / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_within_the_memory_of_the_device() {
        assert_eq!(memory(Some(80 << 30)), 70 << 30);
        assert!(memory(None) > 0);
    }
}
