//! The fusion mode: on, off or checked (`KILN_FUSION`).

/// The fusion mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Ops run immediately on the engine below.
    Off,
    /// Ops are recorded and run together.
    #[default]
    On,
    /// As `On`, and each fused region also runs op by op. Where the results differ, the values are poisoned with an
    /// error that names the first differing op. Slow: for finding bugs in kernels.
    Check,
}

impl Mode {
    /// Returns the mode that `KILN_FUSION` selects (`off`, `on`, `check`); [`Mode::On`] if it is unset or empty.
    ///
    /// # Panics
    /// When the variable has any other value, so that a misspelling does not go unnoticed.
    #[cfg(feature = "std")]
    pub fn from_environment() -> Mode {
        kiln_ir::setting("KILN_FUSION", "`off`, `on` or `check`", Mode::from_name).unwrap_or_default()
    }

    /// Returns the mode on targets without an environment: [`Mode::On`].
    #[cfg(not(feature = "std"))]
    pub fn from_environment() -> Mode {
        Mode::On
    }

    /// Parses the name of a mode.
    pub fn from_name(name: &str) -> Option<Mode> {
        match name {
            "off" => Some(Mode::Off),
            "on" => Some(Mode::On),
            "check" => Some(Mode::Check),
            _ => None,
        }
    }
}
