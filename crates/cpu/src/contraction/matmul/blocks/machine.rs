//! The choice of a vector unit, a format and a class of formats at run time.
//!
//! Only the unpacking is compiled for each format. Products are compiled for classes of formats.

use super::format::{self, Class, Format, Unpacked};
#[cfg(target_arch = "x86_64")]
use super::unit::x86::{Avx2, Vnni};
use super::unit::{Portable, Tile, Unpack};
use crate::isa::Level;
#[cfg(target_arch = "x86_64")]
use crate::isa::has_vnni;
use kiln_ir::BlockFormat;

/// Work along unpacked rows of weights, compiled once per unit, length of groups and sign.
pub(super) trait RowWork {
    /// Runs the work. `GROUP` and `SIGNED` are those of the [`Class`]. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// The machine has the unit; and the conditions of the work's fields.
    unsafe fn run<U: Unpack, const GROUP: usize, const SIGNED: bool>(self);
}

/// Work on packed panels, compiled once per unit and class of formats.
pub(super) trait TileWork {
    /// Runs the work with `V` vectors per panel and tiles of `R` rows. `GROUP`, `RUN` and `SIGNED` are those of the
    /// [`Class`]. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// The machine has the unit; and the conditions of the work's fields.
    unsafe fn run<
        U: Tile,
        const V: usize,
        const R: usize,
        const GROUP: usize,
        const RUN: usize,
        const SIGNED: bool,
    >(
        self,
    );
}

/// The units for which kernels are compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Machine {
    /// Arrays, which the compiler maps to the target's vectors.
    Portable,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with VNNI.
    #[cfg(target_arch = "x86_64")]
    Vnni,
}

impl Machine {
    /// The unit of a level. AVX-512 without VNNI has no advantage over AVX2 here.
    pub(super) fn of(level: Level) -> Machine {
        match level {
            Level::Baseline => Machine::Portable,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Machine::Avx2,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                if has_vnni() {
                    Machine::Vnni
                } else {
                    Machine::Avx2
                }
            }
        }
    }

    /// Columns per packed panel.
    pub(super) fn width(self) -> usize {
        match self {
            Machine::Portable => width::<Portable>(),
            #[cfg(target_arch = "x86_64")]
            Machine::Avx2 => width::<Avx2>(),
            #[cfg(target_arch = "x86_64")]
            Machine::Vnni => width::<Vnni>(),
        }
    }

    /// Whether weights are multiplied as pairs of 16-bit integers.
    pub(super) fn pairs(self, signed: bool) -> bool {
        match self {
            Machine::Portable => pairs::<Portable>(signed),
            #[cfg(target_arch = "x86_64")]
            Machine::Avx2 => pairs::<Avx2>(signed),
            #[cfg(target_arch = "x86_64")]
            Machine::Vnni => pairs::<Vnni>(signed),
        }
    }

    /// Unpacks adjacent blocks. AVX-512 has no advantage over AVX2 here.
    ///
    /// # Safety
    /// The blocks may be read, and the memory has room for them; the machine was returned by [`Machine::of`].
    pub(super) unsafe fn unpack(self, format: BlockFormat, blocks: *const u8, count: usize, to: Unpacked) {
        // SAFETY: as the caller promises.
        unsafe {
            match format {
                BlockFormat::Q4_0 => self.unpack_as::<format::Q4_0>(blocks, count, to),
                BlockFormat::Q4_1 => self.unpack_as::<format::Q4_1>(blocks, count, to),
                BlockFormat::Q5_0 => self.unpack_as::<format::Q5_0>(blocks, count, to),
                BlockFormat::Q5_1 => self.unpack_as::<format::Q5_1>(blocks, count, to),
                BlockFormat::Q8_0 => self.unpack_as::<format::Q8_0>(blocks, count, to),
                BlockFormat::Q2_K => self.unpack_as::<format::Q2_K>(blocks, count, to),
                BlockFormat::Q3_K => self.unpack_as::<format::Q3_K>(blocks, count, to),
                BlockFormat::Q4_K => self.unpack_as::<format::Q4_K>(blocks, count, to),
                BlockFormat::Q5_K => self.unpack_as::<format::Q5_K>(blocks, count, to),
                BlockFormat::Q6_K => self.unpack_as::<format::Q6_K>(blocks, count, to),
                BlockFormat::Q8_K => self.unpack_as::<format::Q8_K>(blocks, count, to),
                BlockFormat::IQ4_NL => self.unpack_as::<format::IQ4_NL>(blocks, count, to),
                BlockFormat::IQ4_XS => self.unpack_as::<format::IQ4_XS>(blocks, count, to),
            }
        }
    }

    /// # Safety
    /// As [`unpack`](Machine::unpack).
    unsafe fn unpack_as<F: Format>(self, blocks: *const u8, count: usize, to: Unpacked) {
        // SAFETY: the machine is chosen only where the processor has its instructions.
        unsafe {
            match self {
                Machine::Portable => format::unpack::<Portable, F>(blocks, count, to),
                #[cfg(target_arch = "x86_64")]
                Machine::Avx2 | Machine::Vnni => avx2_unpack::<F>(blocks, count, to),
            }
        }
    }

    /// Runs work on rows that were unpacked from blocks of a class of formats.
    ///
    /// # Safety
    /// The conditions of the work's fields; the machine was returned by [`Machine::of`].
    pub(super) unsafe fn run_rows<W: RowWork>(self, class: Class, work: W) {
        // SAFETY: as the caller promises.
        unsafe {
            match class {
                Class::Unsigned4 | Class::Unsigned5 => self.rows::<W, 32, false>(work),
                Class::Unsigned3By16 | Class::Unsigned6By16 => self.rows::<W, 16, false>(work),
                Class::Signed8 => self.rows::<W, 32, true>(work),
            }
        }
    }

    /// # Safety
    /// As [`run_rows`](Machine::run_rows).
    unsafe fn rows<W: RowWork, const GROUP: usize, const SIGNED: bool>(self, work: W) {
        // SAFETY: the machine is chosen only where the processor has its instructions.
        unsafe {
            match self {
                Machine::Portable => work.run::<Portable, GROUP, SIGNED>(),
                #[cfg(target_arch = "x86_64")]
                Machine::Avx2 => avx2_rows::<W, GROUP, SIGNED>(work),
                #[cfg(target_arch = "x86_64")]
                Machine::Vnni => vnni_rows::<W, GROUP, SIGNED>(work),
            }
        }
    }

    /// Runs work on panels packed from blocks of a class of formats.
    ///
    /// # Safety
    /// As [`run_rows`](Machine::run_rows).
    pub(super) unsafe fn run_tiles<W: TileWork>(self, class: Class, work: W) {
        // SAFETY: as the caller promises.
        unsafe {
            match class {
                Class::Unsigned4 => self.tiles::<W, 32, 8, false>(work),
                Class::Unsigned5 => self.tiles::<W, 32, 4, false>(work),
                Class::Unsigned3By16 => self.tiles::<W, 16, 4, false>(work),
                Class::Unsigned6By16 => self.tiles::<W, 16, 2, false>(work),
                Class::Signed8 => self.tiles::<W, 32, 1, true>(work),
            }
        }
    }

    /// # Safety
    /// As [`run_rows`](Machine::run_rows).
    unsafe fn tiles<W: TileWork, const GROUP: usize, const RUN: usize, const SIGNED: bool>(self, work: W) {
        // SAFETY: the machine is chosen only where the processor has its instructions.
        unsafe {
            match self {
                Machine::Portable => work.run::<Portable, 2, 4, GROUP, RUN, SIGNED>(),
                #[cfg(target_arch = "x86_64")]
                Machine::Avx2 => avx2_tiles::<W, GROUP, RUN, SIGNED>(work),
                #[cfg(target_arch = "x86_64")]
                Machine::Vnni => vnni_tiles::<W, GROUP, RUN, SIGNED>(work),
            }
        }
    }
}

const fn width<U: Tile>() -> usize {
    U::LANES * U::VECTORS
}

const fn pairs<U: Tile>(signed: bool) -> bool {
    if signed { U::SIGNED_PAIRS } else { U::UNSIGNED_PAIRS }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn avx2_unpack<F: Format>(blocks: *const u8, count: usize, to: Unpacked) {
    // SAFETY: the caller has detected the unit, and vouches for the memory.
    unsafe { format::unpack::<Avx2, F>(blocks, count, to) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn avx2_rows<W: RowWork, const GROUP: usize, const SIGNED: bool>(work: W) {
    // SAFETY: the caller has detected the unit, and vouches for the work.
    unsafe { work.run::<Avx2, GROUP, SIGNED>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
)]
unsafe fn vnni_rows<W: RowWork, const GROUP: usize, const SIGNED: bool>(work: W) {
    // SAFETY: the caller has detected the unit, and vouches for the work.
    unsafe { work.run::<Vnni, GROUP, SIGNED>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn avx2_tiles<W: TileWork, const GROUP: usize, const RUN: usize, const SIGNED: bool>(work: W) {
    // SAFETY: the caller has detected the unit, and vouches for the work.
    unsafe { work.run::<Avx2, { Avx2::VECTORS }, 4, GROUP, RUN, SIGNED>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
)]
unsafe fn vnni_tiles<W: TileWork, const GROUP: usize, const RUN: usize, const SIGNED: bool>(work: W) {
    // SAFETY: the caller has detected the unit, and vouches for the work.
    unsafe { work.run::<Vnni, { Vnni::VECTORS }, 8, GROUP, RUN, SIGNED>() }
}
