//! `kiln devices`: the devices of this machine.

use kiln_backends::Device;

/// A line for each device, in columns: kind, index, description. For a kind without a device the reason, and a hint.
pub(crate) fn list() -> String {
    let mut text = String::new();
    for kind in Device::list() {
        text += &kind.to_string();
    }
    text += "\nA kind that this program was built without: `cargo install kiln-command --features NAME`.\n";
    text
}
