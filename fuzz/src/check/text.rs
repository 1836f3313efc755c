//! Checks that programs round-trip through text.

use super::{Check, Failure};
use crate::trial::Trial;
use kiln_ir::{Program, verify};

/// The program is valid, and parsing the printed text returns the same program.
pub(super) fn check(trial: &Trial) -> Result<(), Failure> {
    let failed = |message: String| Failure::of_program(Check::Text, message);
    verify(&trial.program).map_err(|error| failed(format!("the program is invalid: {error}")))?;
    round_trip(&trial.program).map_err(failed)
}

/// Prints, parses and prints again.
pub(crate) fn round_trip(program: &Program) -> Result<(), String> {
    let text = program.to_string();
    let again =
        Program::parse(&text).map_err(|error| format!("what is printed does not parse: {error}\n{text}"))?;
    if again != *program {
        return Err(format!("what is printed reads back as another program\n{text}"));
    }
    if again.to_string() != text {
        return Err(format!("printing what was read gives another text\n{text}"));
    }
    Ok(())
}
