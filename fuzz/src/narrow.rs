//! Programs for devices without dtypes of 64 bits.

use crate::trial::Trial;
use kiln_ir::{DType, DTypeSet};

/// Dtypes of 64 bits, and those that take their place.
const WIDE: [(DType, DType); 3] =
    [(DType::F64, DType::F32), (DType::I64, DType::I32), (DType::U64, DType::U32)];

/// The trial with dtypes of 32 bits in place of those of 64 bits that are not among these. A trial that is invalid then,
/// for example because a number does not fit, stays as it is.
pub(crate) fn narrowed(trial: Trial, dtypes: DTypeSet) -> Trial {
    let is_lacking = |dtype: DType| !dtypes.contains(dtype);
    if !trial.program.slot_types().iter().any(|ty| is_lacking(ty.dtype)) {
        return trial;
    }
    let mut text = trial.to_filetest(&[]);
    for (wide, narrow) in WIDE.into_iter().filter(|(wide, _)| is_lacking(*wide)) {
        text = text.replace(wide.name(), narrow.name());
    }
    Trial::from_filetest(&text).unwrap_or(trial)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{self, trial};

    /// The share of random programs with dtypes of 64 bits that a device without them runs nevertheless.
    #[test]
    fn most_programs_have_a_form_without_64_bits() {
        generate::Cubed::register();
        let kept: Vec<DType> = DType::ALL.into_iter().filter(|dtype| dtype.size() < 8).collect();
        let dtypes = DTypeSet::of(&kept);
        let has_wide = |trial: &Trial| trial.program.slot_types().iter().any(|ty| ty.dtype.size() == 8);
        let wide: Vec<Trial> = (0..200).map(|number| trial(1, number, None)).filter(has_wide).collect();
        assert!(!wide.is_empty());
        let count = wide.len();
        let still = wide.into_iter().filter(|trial| has_wide(&narrowed(trial.clone(), dtypes))).count();
        assert!(still * 2 < count, "{still} of {count} programs have no such form");
    }

    #[test]
    fn programs_stay_as_they_are_where_no_dtype_is_missing() {
        generate::Cubed::register();
        let before = trial(1, 0, None);
        assert_eq!(narrowed(before.clone(), DTypeSet::ALL), before);
    }
}
