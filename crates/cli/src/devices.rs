//! The devices of this machine.

use kiln_backends::{Device, DeviceKind};

/// Opens the device of a kind, such as `cpu` or `cuda`. `threads` is the number of threads of a CPU; 0 takes one for each
/// core.
///
/// # Errors
/// When there is no such device, or it has no threads.
#[cfg(any(feature = "chat", feature = "weights"))]
pub(crate) fn open(kind: &str, threads: usize) -> Result<Device, String> {
    match (kind, threads) {
        ("cpu", 0) => Ok(Device::cpu()),
        ("cpu", threads) => Ok(Device::cpu_with_threads(threads)),
        (kind, 0) => Device::open(kind, 0).map_err(|error| error.to_string()),
        (kind, _) => Err(format!("--threads applies to `--device cpu`, not to `{kind}`")),
    }
}

/// A line for each device, in columns: kind, index, description. For a kind without a device the reason, and a hint. Kinds
/// for which this program is not built share the last lines.
pub(crate) fn list() -> String {
    let (built, others): (Vec<DeviceKind>, Vec<DeviceKind>) =
        Device::list().into_iter().partition(|kind| kind.missing_feature.is_none());
    let mut text: String = built.iter().map(DeviceKind::to_string).collect();
    let features: Vec<&str> = others.iter().filter_map(|kind| kind.missing_feature).collect();
    if !features.is_empty() {
        let features = features.join(", ");
        text += &format!("\nThis program was built without: {features}\n");
        text += "  hint: `cargo install kiln-command --features NAME` adds one\n";
    }
    text
}
