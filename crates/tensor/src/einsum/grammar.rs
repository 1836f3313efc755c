//! The parser of equations, which checks them against the shapes of the operands.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_ir::{Error, MAX_RANK, OperandType, Shape};

/// The label of an axis. 0 to 51 are the letters `A-Za-z` in this order. The rest are axes of `...`, counted so that
/// the last axis has the last label everywhere.
pub(super) type Label = u8;

const LETTERS: usize = 52;
const LABELS: usize = LETTERS + MAX_RANK;

/// A set of labels: bit `i` is label `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelSet(u64);

const _: () = assert!(LABELS <= u64::BITS as usize);

impl LabelSet {
    pub(super) fn of(labels: &[Label]) -> LabelSet {
        LabelSet(labels.iter().fold(0, |set, &label| set | 1 << label))
    }

    pub(super) fn contains(self, label: Label) -> bool {
        self.0 >> label & 1 == 1
    }

    pub(super) fn union(self, other: LabelSet) -> LabelSet {
        LabelSet(self.0 | other.0)
    }

    pub(super) fn intersection(self, other: LabelSet) -> LabelSet {
        LabelSet(self.0 & other.0)
    }

    pub(super) fn without(self, other: LabelSet) -> LabelSet {
        LabelSet(self.0 & !other.0)
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Label> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let label = rest.trailing_zeros() as Label;
            (rest != 0).then(|| {
                rest &= rest - 1;
                label
            })
        })
    }
}

/// An equation, and the lengths of its labels for some operands.
#[derive(Clone, Debug)]
pub(super) struct Equation {
    /// The labels of each operand's axes that are not of length 1. An axis of length 1 is dropped: broadcasting it
    /// beside longer axes has the same result as leaving it out.
    pub(super) operands: Vec<Vec<Label>>,
    /// The label of each axis of the output.
    pub(super) output: Vec<Label>,
    lengths: [usize; LABELS],
}

/// An error of an equation, with a hint.
#[derive(Debug)]
pub(super) struct Problem {
    text: String,
    hint: &'static str,
}

impl Problem {
    fn new(text: impl Into<String>, hint: &'static str) -> Problem {
        Problem { text: text.into(), hint }
    }

    pub(super) fn into_error(self, operands: &[OperandType<'_>]) -> Error {
        Error::type_error("einsum", self.text, operands).hint(self.hint)
    }
}

impl Equation {
    pub(super) fn parse(text: &str, shapes: &[Shape]) -> Result<Equation, Problem> {
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text, None),
        };
        let terms = left.split(',').enumerate().map(|(number, term)| {
            Subscripts::parse(term).map_err(|problem| problem.of(&format!("operand {number}"), term))
        });
        let terms = terms.collect::<Result<Vec<Subscripts>, Problem>>()?;
        if terms.len() != shapes.len() {
            let problem = format!("`{text}` expects {} operands, got {}", terms.len(), shapes.len());
            return Err(Problem::new(problem, "operands are separated by commas"));
        }
        let covered = terms.iter().zip(shapes).enumerate().map(|(number, (term, shape))| {
            term.axes_of_ellipsis(shape).map_err(|problem| problem.of(&format!("operand {number}"), left))
        });
        let covered = covered.collect::<Result<Vec<usize>, Problem>>()?;
        let widest = covered.iter().copied().max().unwrap_or(0);
        let operands: Vec<Vec<Label>> =
            terms.iter().zip(&covered).map(|(term, &axes)| term.labels(axes)).collect();
        let lengths = lengths(&operands, shapes)?;
        let output = match right {
            Some(right) => {
                let output = Subscripts::parse(right).map_err(|problem| problem.of("the output", right))?;
                check_output(&output, &operands)?;
                output.labels(if output.ellipsis.is_some() { widest } else { 0 })
            }
            None => implicit_output(&operands, widest),
        };
        if output.len() > MAX_RANK {
            let problem = format!("the output of `{text}` has {} axes, more than {MAX_RANK}", output.len());
            return Err(Problem::new(problem, "sum over some axes"));
        }
        let operands = operands.iter().zip(shapes).map(|(labels, shape)| proper(labels, shape)).collect();
        Ok(Equation { operands, output, lengths })
    }

    pub(super) fn length(&self, label: Label) -> usize {
        self.lengths[label as usize]
    }

    /// Returns the number of elements over those labels.
    pub(super) fn elements(&self, labels: LabelSet) -> u128 {
        labels.iter().fold(1, |product: u128, label| product.saturating_mul(self.length(label) as u128))
    }

    /// Returns the labels of the output that are not of length 1.
    pub(super) fn proper_output(&self) -> Vec<Label> {
        self.output.iter().copied().filter(|&label| self.length(label) != 1).collect()
    }

    pub(super) fn output_shape(&self) -> Shape {
        self.output.iter().map(|&label| self.length(label)).collect()
    }
}

fn proper(labels: &[Label], shape: &Shape) -> Vec<Label> {
    labels.iter().zip(shape.iter()).filter(|&(_, &length)| length != 1).map(|(&label, _)| label).collect()
}

/// Returns the printed form of a label: its letter, or a Greek letter for an axis of `...`.
pub(super) fn letter(label: Label) -> char {
    match label {
        0..26 => (b'A' + label) as char,
        26..52 => (b'a' + label - 26) as char,
        _ => ['α', 'β', 'γ', 'δ', 'ε', 'ζ', 'η', 'θ', 'ι', 'κ', 'λ', 'μ']
            [(label as usize - LETTERS) % MAX_RANK],
    }
}

/// The letters of one operand or of the output.
struct Subscripts {
    letters: Vec<Label>,
    /// The number of letters before `...`.
    ellipsis: Option<usize>,
}

/// An error in the letters of one operand, before the operand is known.
struct TermProblem(String, &'static str);

impl TermProblem {
    fn of(self, whose: &str, text: &str) -> Problem {
        Problem::new(format!("{whose} (in `{}`): {}", text.trim(), self.0), self.1)
    }
}

impl Subscripts {
    fn parse(text: &str) -> Result<Subscripts, TermProblem> {
        let mut subscripts = Subscripts { letters: Vec::new(), ellipsis: None };
        let compact: String = text.chars().filter(|c| *c != ' ').collect();
        let mut rest = compact.as_str();
        while let Some(next) = rest.chars().next() {
            let used = match next {
                'A'..='Z' => {
                    subscripts.letters.push(next as u8 - b'A');
                    1
                }
                'a'..='z' => {
                    subscripts.letters.push(next as u8 - b'a' + 26);
                    1
                }
                '.' if rest.starts_with("...") && subscripts.ellipsis.is_none() => {
                    subscripts.ellipsis = Some(subscripts.letters.len());
                    3
                }
                '.' if rest.starts_with("...") => {
                    return Err(TermProblem("`...` occurs twice".to_string(), "write it once"));
                }
                '.' => return Err(TermProblem("a single `.`".to_string(), "other axes are `...`")),
                other => {
                    let problem = format!("`{other}` names no axis");
                    return Err(TermProblem(problem, "axes are letters: `a` to `z` and `A` to `Z`"));
                }
            };
            rest = &rest[used..];
        }
        Ok(subscripts)
    }

    /// Returns the number of axes of this shape that `...` stands for.
    fn axes_of_ellipsis(&self, shape: &Shape) -> Result<usize, TermProblem> {
        let (letters, rank) = (self.letters.len(), shape.rank());
        match self.ellipsis {
            Some(_) if letters <= rank => Ok(rank - letters),
            None if letters == rank => Ok(0),
            Some(_) | None => {
                let problem = format!("{letters} letters for the {rank} axes of {shape}");
                Err(TermProblem(
                    problem,
                    "write one letter for each axis; `...` stands for axes without letters",
                ))
            }
        }
    }

    fn labels(&self, axes_of_ellipsis: usize) -> Vec<Label> {
        let at = self.ellipsis.unwrap_or(0);
        let mut labels = self.letters[..at].to_vec();
        labels.extend((LABELS - axes_of_ellipsis..LABELS).map(|label| label as Label));
        labels.extend_from_slice(&self.letters[at..]);
        labels
    }
}

fn describe(label: Label) -> String {
    match (label as usize) < LETTERS {
        true => format!("`{}`", letter(label)),
        false => format!("axis -{} of `...`", LABELS - label as usize),
    }
}

/// Returns the length of each label; a length of 1 broadcasts to any other.
fn lengths(operands: &[Vec<Label>], shapes: &[Shape]) -> Result<[usize; LABELS], Problem> {
    let mut lengths = [1; LABELS];
    let mut owner = [0; LABELS];
    for (number, (labels, shape)) in operands.iter().zip(shapes).enumerate() {
        for (axis, (&label, &length)) in labels.iter().zip(shape.iter()).enumerate() {
            let earlier = labels[..axis].iter().position(|&other| other == label);
            if let Some(earlier) = earlier.filter(|&earlier| shape[earlier] != length) {
                let problem = format!(
                    "{} has lengths {} and {length} in operand {number}",
                    describe(label),
                    shape[earlier]
                );
                return Err(Problem::new(problem, "a letter repeated in one operand selects its diagonal"));
            }
            let known = &mut lengths[label as usize];
            if *known != length && *known != 1 && length != 1 {
                let problem = format!(
                    "{} is {known} in operand {} and {length} in operand {number}",
                    describe(label),
                    owner[label as usize]
                );
                return Err(Problem::new(problem, "axes of one letter have equal lengths, or length 1"));
            }
            if length != 1 {
                (*known, owner[label as usize]) = (length, number);
            }
        }
    }
    Ok(lengths)
}

fn check_output(output: &Subscripts, operands: &[Vec<Label>]) -> Result<(), Problem> {
    for (place, &label) in output.letters.iter().enumerate() {
        let name = describe(label);
        if output.letters[..place].contains(&label) {
            let problem = format!("{name} occurs twice in the output");
            return Err(Problem::new(problem, "the output has each letter once"));
        }
        if !operands.iter().any(|labels| labels.contains(&label)) {
            let problem = format!("{name} is in the output but in no operand");
            return Err(Problem::new(problem, "each letter of the output must occur in an operand"));
        }
    }
    Ok(())
}

/// Returns `...`, then the letters that occur once.
fn implicit_output(operands: &[Vec<Label>], axes_of_ellipsis: usize) -> Vec<Label> {
    let count = |label: Label| operands.iter().flatten().filter(|&&other| other == label).count();
    let ellipsis = (LABELS - axes_of_ellipsis..LABELS).map(|label| label as Label);
    ellipsis.chain((0..LETTERS as Label).filter(|&label| count(label) == 1)).collect()
}
