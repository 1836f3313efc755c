//! `kiln devices`: the devices of this machine.

use kiln_backends::{Device, DeviceKind};

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
