//! Files that are cut off or changed at every byte: an error or other tensors, never a panic.

use kiln_store::pytorch::PyTorchFile;

use crate::pytorch::{FILES, bytes};

/// Reads everything in a file.
fn read_all(bytes: Vec<u8>) -> bool {
    let Ok(file) = PyTorchFile::from_bytes(bytes) else { return false };
    for name in file.names() {
        let _ = file.info(name);
        let _ = file.read(name);
    }
    for key in file.keys().unwrap_or_default() {
        let _ = file.value(&key);
    }
    let _ = file.state_dict();
    let _ = file.constants();
    true
}

#[test]
fn truncation_at_every_byte() {
    for (name, _) in FILES {
        let whole = bytes(name);
        for length in 0..whole.len() {
            let is_read = read_all(whole[..length].to_vec());
            // Only the padding of tar archives may be missing.
            assert!(!is_read || name == "tar", "{name} of {length} bytes");
        }
        assert!(read_all(whole), "{name}");
    }
}

#[test]
fn every_byte_changed() {
    for (name, _) in FILES {
        let mut changed = bytes(name);
        for at in 0..changed.len() {
            let byte = changed[at];
            for other in [byte ^ 1, !byte] {
                changed[at] = other;
                read_all(changed.clone());
            }
            changed[at] = byte;
        }
    }
}
