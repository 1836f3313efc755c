//! Instruction sets: those for which kernels are compiled, and those that this processor has.

/// An instruction set for which every kernel exists.
///
/// On other processors than x86-64 there is only the target's baseline (NEON on AArch64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The target's baseline instructions.
    Baseline,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL in addition.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The best level of this processor, or the level that `KILN_CPU_ISA` names (`scalar`, `avx2`, `avx512`) if the
    /// processor supports it.
    ///
    /// # Panics
    /// When the variable names no level of this processor architecture.
    pub(crate) fn detect() -> Level {
        let best = Level::of_processor();
        #[cfg(feature = "std")]
        if let Some(wanted) = kiln_ir::setting("KILN_CPU_ISA", Level::NAMES, Level::from_name) {
            return wanted.min(best);
        }
        best
    }

    /// The names of the levels, for messages.
    #[cfg(feature = "std")]
    const NAMES: &str =
        if cfg!(target_arch = "x86_64") { "`scalar`, `avx2` or `avx512`" } else { "`scalar`" };

    /// Parses the name of a level, as in `KILN_CPU_ISA`.
    pub(crate) fn from_name(name: &str) -> Option<Level> {
        match name {
            "scalar" => Some(Level::Baseline),
            #[cfg(target_arch = "x86_64")]
            "avx2" => Some(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            "avx512" => Some(Level::Avx512),
            _ => None,
        }
    }

    /// The name in text for users.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Level::Baseline if cfg!(target_arch = "aarch64") => "NEON",
            Level::Baseline => "baseline instructions",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "AVX-512",
        }
    }

    /// The best level of this processor.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn of_processor() -> Level {
        Level::Baseline
    }

    /// The best level of this processor.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of_processor() -> Level {
        macro_rules! has {
            ($($feature:tt),*) => {{
                #[cfg(feature = "std")]
                let has = $(std::arch::is_x86_feature_detected!($feature))&&*;
                #[cfg(not(feature = "std"))]
                let has = $(cfg!(target_feature = $feature))&&*;
                has
            }};
        }
        let avx2 = has!("avx2", "fma", "f16c");
        if avx2 && has!("avx512f", "avx512bw", "avx512dq", "avx512vl") {
            Level::Avx512
        } else if avx2 {
            Level::Avx2
        } else {
            Level::Baseline
        }
    }
}

/// The highest level with separate code for a kernel; processors beyond it run that code.
#[derive(Clone, Copy)]
pub(crate) enum Widest {
    /// Loops that call a function per element: vector instructions would not help.
    Baseline,
    /// Loops over integers and 16-bit floats: memory-bound.
    Avx2,
    /// Loops that compute in `f32` and `f64`.
    Avx512,
}

#[cfg(target_arch = "x86_64")]
impl Widest {
    pub(crate) const fn has_avx2(self) -> bool {
        matches!(self, Widest::Avx2 | Widest::Avx512)
    }

    pub(crate) const fn has_avx512(self) -> bool {
        matches!(self, Widest::Avx512)
    }
}

/// Whether the processor has the products of bytes of AVX-512 (VNNI).
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_vnni() -> bool {
    #[cfg(feature = "std")]
    return std::arch::is_x86_feature_detected!("avx512vnni");
    #[cfg(not(feature = "std"))]
    return cfg!(target_feature = "avx512vnni");
}

/// Defines functions that are compiled once per [`Level`] up to a [`Widest`]:
/// `fn name[generics]<names> in { widest } (arguments) -> result { body }` becomes `fn name(level, arguments)`. The
/// body and everything it calls must be `#[inline(always)]` to be compiled for the level's instructions; plain loops in
/// it are vectorized for them.
macro_rules! multiversion {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident [$($generics:tt)*] <$($param:ident),*> in $widest:block ($($arg:ident : $ty:ty),* $(,)?)
        $(-> $ret:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        #[inline]
        $vis fn $name<$($generics)*>(level: $crate::isa::Level, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$($generics)*>($($arg: $ty),*) $(-> $ret)? $body

            // One copy for all callers.
            #[cfg(target_arch = "x86_64")]
            #[inline(never)]
            fn baseline<$($generics)*>($($arg: $ty),*) $(-> $ret)? {
                body::<$($param),*>($($arg),*)
            }

            #[cfg(not(target_arch = "x86_64"))]
            use body as baseline;

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            fn avx2<$($generics)*>($($arg: $ty),*) $(-> $ret)? {
                body::<$($param),*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512<$($generics)*>($($arg: $ty),*) $(-> $ret)? {
                body::<$($param),*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            {
                if const { $crate::isa::Widest::has_avx512($widest) } && level == $crate::isa::Level::Avx512 {
                    // SAFETY: the level is chosen only where the processor has its instructions.
                    return unsafe { avx512::<$($param),*>($($arg),*) };
                }
                if const { $crate::isa::Widest::has_avx2($widest) } && level >= $crate::isa::Level::Avx2 {
                    // SAFETY: as above.
                    return unsafe { avx2::<$($param),*>($($arg),*) };
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = (level, $widest);
            baseline::<$($param),*>($($arg),*)
        }
    )*};
}
pub(crate) use multiversion;
