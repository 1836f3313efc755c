//! Fuzzing of the program parser with damaged texts.

use crate::check::{Check, Counts, Failure, guarded, round_trip};
use crate::random::Random;
use kiln_ir::{Program, verify};
use std::time::{Duration, Instant};

/// Timeout: parsing a text of a few kilobytes takes far less.
const PATIENCE: Duration = Duration::from_secs(2);

/// Parses damaged variants of a program's text. Each must return an error or a program that round-trips, and its
/// verification must not panic.
///
/// # Errors
/// When a variant does not. The message contains the text.
pub fn check(
    program: &Program,
    random: &mut Random,
    times: usize,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let text = program.to_string();
    for _ in 0..times {
        let damaged = damaged(&text, random);
        counts.texts += 1;
        let started = Instant::now();
        let result = guarded(|| match Program::parse(&damaged) {
            // The text may contain a type that is too large for any machine; it prints unchanged.
            Ok(program) => {
                let _ = verify(&program);
                round_trip(&program)
            }
            Err(_) => Ok(()),
        });
        let problem = match result {
            Ok(Ok(())) if started.elapsed() < PATIENCE => continue,
            Ok(Ok(())) => format!("took {:?}", started.elapsed()),
            Ok(Err(problem)) | Err(problem) => problem,
        };
        return Err(Failure::of_program(Check::Parser, format!("{problem}\nof the text:\n{damaged}")));
    }
    Ok(())
}

/// Fragments to insert: keywords, and numbers at range limits.
const PIECES: [&str; 40] = [
    "program(",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "%",
    "%0",
    "%99",
    "%18446744073709551616",
    ":",
    ",",
    "=",
    ";",
    "\n",
    "return",
    "f32",
    "bool",
    "f32[2, 3]",
    "f64[]",
    "[0, 9223372036854775807, 9223372036854775807]",
    "nan",
    "inf",
    "-inf",
    "-",
    "1e999",
    "1e-999",
    "5u",
    "-5u",
    "9223372036854775808",
    "-9223372036854775808",
    "99999999999999999999999999",
    "true",
    "none",
    "\"",
    "\\",
    "é",
    "\u{0}",
    "fused",
];

/// The text with a few random changes.
fn damaged(text: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..random.between(1, 4) {
        let at = random.below(chars.len() + 1);
        let end = (at + random.between(1, 12)).min(chars.len());
        match random.below(7) {
            0 => drop(chars.drain(at..end)),
            1 => drop(chars.splice(at..at, random.pick(&PIECES).chars())),
            2 => drop(chars.splice(at..end, random.pick(&PIECES).chars())),
            3 => chars.truncate(at),
            4 => {
                let from = random.below(chars.len() + 1);
                let copied: Vec<char> = chars[from..(from + random.between(1, 60)).min(chars.len())].to_vec();
                drop(chars.splice(at..at, copied));
            }
            5 => {
                if let Some(c) = chars.get_mut(at) {
                    *c = char::from_u32(random.between(1, 0x2FF) as u32).unwrap_or('?');
                }
            }
            _ => {
                let again: Vec<char> =
                    random.pick(&["[", "(", "{", "-", "fused {program() {"]).chars().collect();
                let times = random.pick(&[2, 20, 2000]);
                drop(chars.splice(at..at, again.repeat(times)));
            }
        }
    }
    chars.into_iter().collect()
}
