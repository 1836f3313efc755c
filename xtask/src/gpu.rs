//! Engines of GPUs, and whether this machine can run them.

use std::path::Path;

use crate::process;
use crate::workspace::Workspace;

/// A package whose tests need a device.
pub(crate) struct GpuEngine {
    /// Its name.
    pub(crate) package: &'static str,
    /// The feature that enables its backend in other packages.
    pub(crate) feature: &'static str,
    /// The name of its device, for messages.
    device: &'static str,
    has_device: fn() -> bool,
}

/// All GPU engines.
const ENGINES: &[GpuEngine] = &[
    GpuEngine { package: "kiln-cuda", feature: "cuda", device: "NVIDIA GPU", has_device: has_nvidia_device },
    GpuEngine {
        package: "kiln-wgpu",
        feature: "wgpu",
        device: "GPU with a Vulkan driver",
        has_device: has_vulkan_gpu,
    },
];

/// Folders where Vulkan's loader looks for the descriptions of drivers.
const VULKAN_FOLDERS: [&str; 3] =
    ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

/// The GPU engines of the workspace.
pub(crate) fn engines(workspace: &Workspace) -> Vec<&'static GpuEngine> {
    ENGINES.iter().filter(|engine| workspace.package(engine.package).is_some()).collect()
}

/// The engines that this machine can run.
///
/// # Errors
/// When there are none: the missing device.
pub(crate) fn runnable(workspace: &Workspace) -> Result<Vec<&'static GpuEngine>, String> {
    let engines = engines(workspace);
    if engines.is_empty() {
        return Err("the workspace has no GPU engine".to_owned());
    }
    let (found, missing): (Vec<_>, Vec<_>) = engines.into_iter().partition(|engine| (engine.has_device)());
    if found.is_empty() {
        let wanted: Vec<&str> = missing.iter().map(|engine| engine.device).collect();
        return Err(format!("this machine has no {}", wanted.join(", nor ")));
    }
    Ok(found)
}

/// Whether Vulkan's loader finds a driver, which may be one for the CPU.
pub(crate) fn has_vulkan_driver() -> bool {
    let is_named =
        ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].iter().any(|name| std::env::var_os(name).is_some());
    let mut files = VULKAN_FOLDERS.iter().filter_map(|folder| std::fs::read_dir(folder).ok());
    is_named || files.any(|mut files| files.next().is_some())
}

/// Whether there is a Vulkan driver and a GPU. Drivers for the CPU run in the step `vulkan`.
fn has_vulkan_gpu() -> bool {
    let is_gpu = |name: &str| name.starts_with("renderD");
    let has_render_node = std::fs::read_dir("/dev/dri")
        .is_ok_and(|files| files.flatten().any(|file| is_gpu(&file.file_name().to_string_lossy())));
    has_vulkan_driver() && (has_render_node || has_nvidia_device())
}

/// Whether NVIDIA's driver runs and offers a device: its files are there, or its program lists one.
fn has_nvidia_device() -> bool {
    let listed = || {
        let listed = process::program("nvidia-smi", Path::new(".")).arg("-L").output();
        listed.is_ok_and(|done| done.status.success() && done.stdout.starts_with(b"GPU "))
    };
    let has_file = std::fs::read_dir("/dev")
        .is_ok_and(|files| files.flatten().any(|file| is_nvidia_device(&file.file_name().to_string_lossy())));
    has_file || listed()
}

/// Whether a file under `/dev` is an NVIDIA GPU, such as `nvidia0`, and not a control file of the driver, such as
/// `nvidiactl`.
fn is_nvidia_device(file: &str) -> bool {
    let number = file.strip_prefix("nvidia").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_workspace_has_no_gpu_engine() {
        assert!(runnable(&Workspace::default()).is_err_and(|reason| reason.contains("no GPU engine")));
    }

    #[test]
    fn control_files_of_the_driver_are_not_devices() {
        assert!(is_nvidia_device("nvidia0") && is_nvidia_device("nvidia15"));
        for other in ["nvidiactl", "nvidia-uvm", "nvidia", "card0", "renderD128"] {
            assert!(!is_nvidia_device(other), "{other}");
        }
    }
}
