//! The fusion mode: on, off or checked (`KILN_FUSION`).

/// The fusion mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Ops go straight to the engine below.
    Off,
    /// Ops are recorded and run together.
    #[default]
    On,
    /// As `On`, and each fused region also runs op by op; where the results differ, the values are poisoned with an
    /// error that names the first op that does. Slow: for finding bugs in kernels.
    Check,
}

impl Mode {
    /// The mode that `KILN_FUSION` names (`off`, `on`, `check`); [`Mode::On`] where it is unset or empty.
    ///
    /// # Panics
    /// When it holds anything else: a misspelt switch would go unnoticed.
    #[cfg(feature = "std")]
    pub fn from_environment() -> Mode {
        kiln_ir::setting("KILN_FUSION", "`off`, `on` or `check`", Mode::from_name).unwrap_or_default()
    }

    /// The mode where there is no environment: [`Mode::On`].
    #[cfg(not(feature = "std"))]
    pub fn from_environment() -> Mode {
        Mode::On
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Mode> {
        match name {
            "off" => Some(Mode::Off),
            "on" => Some(Mode::On),
            "check" => Some(Mode::Check),
            _ => None,
        }
    }
}
