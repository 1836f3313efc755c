//! A program with the data of its inputs, and its form as a filetest.

use kiln_ir::{DType, Elements, Op, Program, TensorData, TensorType, verify};
use std::fmt::Write;

/// A fuzz trial: a program and its input data.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The program.
    pub program: Program,
    /// The data of each input of the program.
    pub inputs: Vec<TensorData>,
    /// Whether gradients are compared with finite differences: all floats are `f64`.
    pub smooth: bool,
}

impl Trial {
    /// Returns the number of ops, including those in fused regions.
    pub fn num_ops(&self) -> usize {
        count(&self.program)
    }

    /// Returns the trial as a file of `filetests/run`: the comments, the inputs, the program.
    ///
    /// Numbers round-trip bit for bit, except for NaN payloads.
    pub fn to_filetest(&self, comments: &[String]) -> String {
        let mut text = String::from("; test run\n");
        for line in comments.iter().flat_map(|comment| comment.lines()) {
            let _ = writeln!(text, "; {line}");
        }
        if self.smooth {
            text += "; smooth\n";
        }
        for (place, data) in self.inputs.iter().enumerate() {
            let _ = writeln!(text, "; input {place} = {}", numbers(data));
        }
        text + &self.program.to_string() + "\n"
    }

    /// Reads a file of `filetests/run`.
    ///
    /// # Errors
    /// When the program does not parse or is invalid, or the inputs do not match it.
    pub fn from_filetest(text: &str) -> Result<Trial, String> {
        let program = Program::parse(text).map_err(|error| error.to_string())?;
        verify(&program).map_err(|error| error.to_string())?;
        let mut trial = Trial { program, inputs: Vec::new(), smooth: false };
        for line in text.lines().map_while(|line| line.strip_prefix("; ")) {
            trial.smooth |= line == "smooth";
            let Some((place, list)) = line.strip_prefix("input ").and_then(|rest| rest.split_once('='))
            else {
                continue;
            };
            let next = trial.inputs.len();
            if place.trim() != next.to_string() {
                return Err(format!("`{line}`: the data of input {next} should come here"));
            }
            let Some(ty) = trial.program.inputs.get(next) else {
                return Err(format!("`{line}`: the program has {next} inputs"));
            };
            trial.inputs.push(read(list, *ty).map_err(|problem| format!("`{line}`: {problem}"))?);
        }
        if trial.inputs.len() != trial.program.inputs.len() {
            let (given, wanted) = (trial.inputs.len(), trial.program.inputs.len());
            return Err(format!("data of {given} inputs for a program with {wanted}"));
        }
        Ok(trial)
    }
}

fn count(program: &Program) -> usize {
    let inside = |op: &Op| if let Op::Fused(fused) = op { count(fused.program()) } else { 0 };
    program.instructions.iter().map(|instruction| 1 + inside(&instruction.op)).sum()
}

/// The elements in order, separated by spaces.
fn numbers(data: &TensorData) -> String {
    let list: Vec<String> = match data.elements() {
        Elements::F64(_) | Elements::F32(_) | Elements::F16(_) | Elements::BF16(_) => {
            data.to_vec::<f64>().iter().map(|x| format!("{x:?}").to_lowercase()).collect()
        }
        Elements::U64(list) => list.iter().map(u64::to_string).collect(),
        Elements::Bool(list) => list.iter().map(bool::to_string).collect(),
        Elements::I64(_)
        | Elements::I32(_)
        | Elements::I16(_)
        | Elements::I8(_)
        | Elements::U32(_)
        | Elements::U16(_)
        | Elements::U8(_) => data.to_vec::<i64>().iter().map(i64::to_string).collect(),
    };
    list.join(" ")
}

fn read(list: &str, ty: TensorType) -> Result<TensorData, String> {
    let words = || list.split_whitespace();
    let bad = |word: &str| format!("`{word}` is no {}", ty.dtype);
    let data = if ty.dtype.is_float() {
        let number = |word: &str| word.parse::<f64>().map_err(|_| bad(word));
        TensorData::new(words().map(number).collect::<Result<Vec<_>, _>>()?, ty.shape)
    } else if ty.dtype == DType::U64 {
        let number = |word: &str| word.parse::<u64>().map_err(|_| bad(word));
        TensorData::new(words().map(number).collect::<Result<Vec<_>, _>>()?, ty.shape)
    } else if ty.dtype.is_bool() {
        let truth = |word: &str| word.parse::<bool>().map_err(|_| bad(word));
        TensorData::new(words().map(truth).collect::<Result<Vec<_>, _>>()?, ty.shape)
    } else {
        let number = |word: &str| word.parse::<i64>().map_err(|_| bad(word));
        TensorData::new(words().map(number).collect::<Result<Vec<_>, _>>()?, ty.shape)
    };
    data.map(|data| data.convert(ty.dtype)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filetests_round_trip() {
        let text = "; test run\n; why\n; smooth\n\
            ; input 0 = 1.5 nan -0.0 -inf 65504.0 6e-8\n; input 1 = 18446744073709551615\n; input 2 =\n\
            ; input 3 = true\n\
            program(%0: f16[6], %1: u64[], %2: i8[0], %3: bool[1]) {\n  return %0\n}\n";
        let trial = Trial::from_filetest(text).unwrap();
        assert!(trial.smooth);
        assert_eq!(trial.inputs[1].to_vec::<u64>(), [u64::MAX]);
        let again = Trial::from_filetest(&trial.to_filetest(&["why".into()])).unwrap();
        assert_eq!(again.program, trial.program);
        let bytes = |trial: &Trial| trial.inputs.iter().map(|x| x.bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(bytes(&again), bytes(&trial));
    }

    #[test]
    fn invalid_inputs_are_errors() {
        let program = "program(%0: f32[2]) {\n  return %0\n}\n";
        let problem = |line: &str| Trial::from_filetest(&format!("{line}\n{program}")).unwrap_err();
        assert!(problem("; test run").contains("data of 0 inputs"));
        assert!(problem("; input 0 = 1 x").contains("`x` is no f32"));
        assert!(problem("; input 1 = 1 2").contains("input 0 should come"));
        assert!(problem("; input 0 = 1").contains("input 0 = 1"));
    }
}
