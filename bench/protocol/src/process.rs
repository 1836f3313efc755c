//! Memory and page-fault statistics of this process.

/// Memory of the process, in MiB.
#[derive(Debug)]
pub struct Memory {
    /// Resident now.
    pub resident_mib: f64,
    /// Peak resident memory.
    pub peak_mib: f64,
}

/// Page faults of all threads that needed no disk, so far; 0 if unknown.
///
/// They are the tenth field of [`/proc/self/stat`](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
pub fn minor_faults() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses, which may hold spaces.
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().nth(7).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Memory of the process; `None` if unknown.
pub fn memory() -> Option<Memory> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let mebibytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
    };
    Some(Memory { resident_mib: mebibytes("VmRSS:")?, peak_mib: mebibytes("VmHWM:")? })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn touched_memory_is_counted() {
        let (faults, before) = (minor_faults(), memory().unwrap());
        let pages = vec![1u8; 64 << 20];
        assert_eq!(pages[32 << 20], 1);
        assert!(minor_faults() > faults);
        assert!(memory().unwrap().peak_mib > before.resident_mib + 32.0);
    }
}
