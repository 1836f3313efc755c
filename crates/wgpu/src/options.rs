//! Settings of a device: the features and limits that it is opened with.

use kiln_ir::MemoryConfig;

/// The features and limits that a device is opened with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// Those of the adapter.
    #[default]
    Adapter,
    /// Those that every browser has: 8 storage buffers of up to 128 MiB and 256 threads with 16 KiB of shared memory, and
    /// no feature beyond `f16`. A program that runs with them on any machine also runs in a browser.
    WebGpu,
}

/// The least limit on the bytes of a binding: the alignment of bindings that every device accepts.
pub(crate) const MIN_BINDING_BYTES: u64 = 256;

/// Settings of a device.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WgpuOptions {
    /// The features and limits. Default: those of the adapter, unless `KILN_WGPU_LIMITS=webgpu` is in the environment.
    pub profile: Profile,
    /// Whether kernels use cooperative matrices (tensor cores), where the profile is that of the adapter and the adapter
    /// has them. They are an experimental feature of wgpu. Default: yes, unless `KILN_WGPU_COOPERATIVE=off` is in the
    /// environment.
    pub cooperative_matrices: bool,
    /// Whether two runs of a program with one seed have equal bits ([`kiln_ir::set_deterministic`]). Default: no, unless
    /// `KILN_DETERMINISTIC=on` is in the environment.
    pub deterministic: bool,
    /// The limits of its memory. Default: none.
    pub memory: MemoryConfig,
    /// The maximum number of bytes that a kernel binds at once, if less than that of the device; less than 256 count as
    /// 256. A larger tensor is bound in parts. Tests set it, so that small tensors have parts. Default: `None`, unless
    /// `KILN_WGPU_BINDING_BYTES` is in the environment.
    pub binding_bytes: Option<u64>,
}

impl Default for WgpuOptions {
    /// Reads the environment variables `KILN_WGPU_LIMITS`, `KILN_WGPU_COOPERATIVE`, `KILN_DETERMINISTIC` and
    /// `KILN_WGPU_BINDING_BYTES`.
    ///
    /// # Panics
    /// When the first is neither `adapter` nor `webgpu`, the next two are neither `on` nor `off`, or the last is no number
    /// of at least 256.
    fn default() -> Self {
        let parse = |text: &str| match text {
            "adapter" => Some(Profile::Adapter),
            "webgpu" => Some(Profile::WebGpu),
            _ => None,
        };
        let profile = kiln_ir::setting("KILN_WGPU_LIMITS", "`adapter` or `webgpu`", parse);
        let bytes = |text: &str| text.parse::<u64>().ok().filter(|bytes| *bytes >= MIN_BINDING_BYTES);
        let binding_bytes =
            kiln_ir::setting("KILN_WGPU_BINDING_BYTES", "a number of bytes, at least 256", bytes);
        WgpuOptions {
            profile: profile.unwrap_or_default(),
            cooperative_matrices: kiln_ir::switch("KILN_WGPU_COOPERATIVE", true),
            deterministic: kiln_ir::deterministic(),
            memory: MemoryConfig::new(),
            binding_bytes,
        }
    }
}

impl WgpuOptions {
    /// Sets the features and limits.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> WgpuOptions {
        self.profile = profile;
        self
    }

    /// Sets whether kernels use cooperative matrices.
    #[must_use]
    pub fn with_cooperative_matrices(mut self, enabled: bool) -> WgpuOptions {
        self.cooperative_matrices = enabled;
        self
    }

    /// Sets whether two runs of a program with one seed have equal bits.
    #[must_use]
    pub fn with_deterministic(mut self, on: bool) -> WgpuOptions {
        self.deterministic = on;
        self
    }

    /// The features to request from an adapter that has `available`.
    pub(crate) fn features(&self, available: wgpu::Features) -> wgpu::Features {
        let features = self.profile.features(available);
        if self.cooperative_matrices {
            features
        } else {
            features.difference(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
        }
    }

    /// Sets the limits of its memory.
    #[must_use]
    pub fn with_memory(mut self, memory: MemoryConfig) -> WgpuOptions {
        self.memory = memory;
        self
    }

    /// Sets the maximum number of bytes that a kernel binds at once.
    #[must_use]
    pub fn with_binding_bytes(mut self, bytes: u64) -> WgpuOptions {
        self.binding_bytes = Some(bytes);
        self
    }
}

impl Profile {
    /// The features to request from an adapter that has `available`.
    pub(crate) fn features(self, available: wgpu::Features) -> wgpu::Features {
        let wanted = match self {
            Profile::Adapter => {
                wgpu::Features::SHADER_F16
                    | wgpu::Features::SHADER_F64
                    | wgpu::Features::SHADER_I16
                    | wgpu::Features::SHADER_INT64
                    | wgpu::Features::SHADER_INT64_ATOMIC_MIN_MAX
                    | wgpu::Features::SHADER_INT64_ATOMIC_ALL_OPS
                    | wgpu::Features::SUBGROUP
                    | wgpu::Features::PIPELINE_CACHE
                    | wgpu::Features::TIMESTAMP_QUERY
                    | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
            }
            Profile::WebGpu => wgpu::Features::SHADER_F16,
        };
        wanted & available
    }

    /// The limits to request from an adapter that has `available`.
    pub(crate) fn limits(self, available: wgpu::Limits) -> wgpu::Limits {
        match self {
            Profile::Adapter => available,
            Profile::WebGpu => wgpu::Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cooperative_matrices_can_be_switched_off() {
        let matrices = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        let features = |options: WgpuOptions| options.features(wgpu::Features::all());
        let options = WgpuOptions::default().with_profile(Profile::Adapter);
        assert!(features(options.with_cooperative_matrices(true)).contains(matrices));
        assert!(!features(options.with_cooperative_matrices(false)).contains(matrices));
        let browser = options.with_cooperative_matrices(true).with_profile(Profile::WebGpu);
        assert!(!features(browser).contains(matrices));
        assert!(!options.features(wgpu::Features::empty()).contains(matrices));
    }

    #[test]
    fn the_profile_of_browsers_has_their_limits_and_no_dtypes_of_64_bits() {
        let features = Profile::WebGpu.features(wgpu::Features::all());
        assert_eq!(features, wgpu::Features::SHADER_F16);
        let limits = Profile::WebGpu.limits(wgpu::Limits::default());
        assert_eq!(limits.max_storage_buffers_per_shader_stage, 8);
        assert_eq!(limits.max_compute_workgroup_storage_size, 16 << 10);
        assert_eq!(limits.max_compute_invocations_per_workgroup, 256);
        assert_eq!(limits.max_storage_buffer_binding_size, 128 << 20);
    }
}
