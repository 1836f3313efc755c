//! The parser of programs.

use super::attribute::Attribute;
use super::build::{ParsedOp, build};
use super::lexer::{Position, Token, Tokens, word_scalar};
use super::{MAX_NESTING, MAX_OPERANDS, MAX_TEXT};
use crate::{DType, Instruction, MAX_RANK, Program, ProgramOperand, Result, Scalar, Shape, TensorType};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

/// The maximum length of a list attribute.
const MAX_LIST: usize = 64;

pub(super) fn parse(text: &str) -> Result<Program> {
    let mut parser = Parser { tokens: Tokens::new(text, MAX_TEXT)?, depth: 0 };
    let program = parser.program()?;
    parser.tokens.end(program)
}

struct Parser<'t> {
    tokens: Tokens<'t>,
    /// The nesting depth of open programs and lists.
    depth: usize,
}

/// The slots defined so far, by their numbers in the text.
type Slots = BTreeMap<u64, usize>;

/// A slot being defined.
struct Definition {
    slot: u64,
    place: Position,
    ty: TensorType,
}

impl<'t> Parser<'t> {
    fn program(&mut self) -> Result<Program> {
        self.deeper()?;
        self.tokens.keyword("program")?;
        let mut slots = Slots::new();
        let mut program = Program::default();
        self.tokens.mark('(')?;
        if self.tokens.token != Token::Mark(')') {
            let inputs = self.definitions()?;
            program.inputs = define(&mut slots, inputs)?;
        }
        self.tokens.mark(')')?;
        self.tokens.mark('{')?;
        while self.tokens.token != Token::Word("return") {
            let instruction = self.instruction(&mut slots)?;
            program.instructions.push(instruction);
        }
        self.tokens.advance()?;
        program.outputs = self.operands(&slots)?;
        self.tokens.mark('}')?;
        self.depth -= 1;
        Ok(program)
    }

    fn instruction(&mut self, slots: &mut Slots) -> Result<Instruction> {
        let nothing = self.tokens.token == Token::Mark('=');
        let results = if nothing { Vec::new() } else { self.definitions()? };
        self.tokens.mark('=')?;
        let place = self.tokens.place;
        let Token::Word(name) = self.tokens.token else {
            return Err(self.tokens.unexpected("the name of an op"));
        };
        self.tokens.advance()?;
        // Results are defined after the operands are parsed: an op cannot use its own results.
        let operands = self.operands(slots)?;
        let attributes = self.attributes()?;
        let result = results.first().map(|definition| definition.ty);
        let op = build(&ParsedOp { name, place, result, attributes })?;
        Ok(Instruction { op, operands, results: define(slots, results)? })
    }

    fn definitions(&mut self) -> Result<Vec<Definition>> {
        let mut list = Vec::new();
        loop {
            let place = self.tokens.place;
            let Token::Slot(slot) = self.tokens.token else {
                return Err(self.tokens.unexpected("a slot such as `%0`"));
            };
            self.tokens.advance()?;
            self.tokens.mark(':')?;
            let dtype = self.dtype()?;
            list.push(Definition { slot, place, ty: self.tensor_type(dtype)? });
            if list.len() > MAX_OPERANDS {
                return Err(place.error(format!("more than {MAX_OPERANDS} slots at once")));
            }
            if !self.tokens.accept(',')? {
                return Ok(list);
            }
        }
    }

    fn operands(&mut self, slots: &Slots) -> Result<Vec<ProgramOperand>> {
        let mut list = Vec::new();
        if !self.at_operand() {
            return Ok(list);
        }
        loop {
            let operand = match &self.tokens.token {
                Token::Slot(slot) => match slots.get(slot) {
                    Some(&slot) => ProgramOperand::Slot(slot),
                    None => return Err(self.tokens.place.error(format!("%{slot} is not defined above"))),
                },
                Token::Number(scalar) => ProgramOperand::Scalar(*scalar),
                Token::Word(word) if word_scalar(word).is_some() => {
                    ProgramOperand::Scalar(word_scalar(word).unwrap_or(Scalar::Int(0)))
                }
                Token::Word(_) | Token::Text(_) | Token::Mark(_) | Token::End => {
                    return Err(self.tokens.unexpected("a slot or a number"));
                }
            };
            self.tokens.advance()?;
            list.push(operand);
            if list.len() > MAX_OPERANDS {
                return Err(self.tokens.place.error(format!("more than {MAX_OPERANDS} operands")));
            }
            if !self.tokens.accept(',')? {
                return Ok(list);
            }
        }
    }

    /// Whether the next slot is an operand, and not a definition of the next instruction.
    fn at_operand(&self) -> bool {
        match &self.tokens.token {
            Token::Slot(_) => !self.tokens.then(':'),
            Token::Word(word) => word_scalar(word).is_some(),
            Token::Number(_) => true,
            Token::Text(_) | Token::Mark(_) | Token::End => false,
        }
    }

    fn attributes(&mut self) -> Result<Vec<(&'t str, Attribute<'t>, Position)>> {
        let mut list: Vec<(&'t str, Attribute<'t>, Position)> = Vec::new();
        if !self.tokens.accept('{')? {
            return Ok(list);
        }
        loop {
            let place = self.tokens.place;
            let Token::Word(key) = self.tokens.token else {
                return Err(self.tokens.unexpected("the name of an attribute"));
            };
            if list.iter().any(|(other, ..)| *other == key) {
                return Err(place.error(format!("duplicate attribute `{key}`")));
            }
            self.tokens.advance()?;
            self.tokens.mark('=')?;
            list.push((key, self.attribute()?, place));
            if list.len() > MAX_LIST {
                return Err(place.error(format!("more than {MAX_LIST} attributes")));
            }
            if !self.tokens.accept(',')? {
                self.tokens.mark('}')?;
                return Ok(list);
            }
        }
    }

    fn attribute(&mut self) -> Result<Attribute<'t>> {
        let attribute = match &self.tokens.token {
            Token::Mark('[') => return self.list(),
            Token::Word("program") => return Ok(Attribute::Program(self.program()?.into())),
            Token::Word(word) => {
                let word = *word;
                self.tokens.advance()?;
                return match (DType::from_name(word), &self.tokens.token) {
                    (Some(dtype), Token::Mark('[')) => Ok(Attribute::from(&self.tensor_type(dtype)?)),
                    _ => Ok(word_scalar(word).map_or(Attribute::Word(word), Attribute::Number)),
                };
            }
            Token::Number(scalar) => Attribute::Number(*scalar),
            Token::Text(text) => Attribute::Text(text.clone()),
            Token::Slot(_) | Token::Mark(_) | Token::End => return Err(self.tokens.unexpected("a value")),
        };
        self.tokens.advance()?;
        Ok(attribute)
    }

    fn list(&mut self) -> Result<Attribute<'t>> {
        self.deeper()?;
        self.tokens.mark('[')?;
        let mut list = Vec::new();
        while self.tokens.token != Token::Mark(']') {
            list.push(self.attribute()?);
            if list.len() > MAX_LIST {
                return Err(self.tokens.place.error(format!("a list of more than {MAX_LIST} entries")));
            }
            if !self.tokens.accept(',')? {
                break;
            }
        }
        self.tokens.mark(']')?;
        self.depth -= 1;
        Ok(Attribute::List(list))
    }

    fn dtype(&mut self) -> Result<DType> {
        let dtype = match &self.tokens.token {
            Token::Word(word) => DType::from_name(word),
            Token::Slot(_) | Token::Number(_) | Token::Text(_) | Token::Mark(_) | Token::End => None,
        };
        let dtype = dtype.ok_or_else(|| self.tokens.unexpected("a type such as `f32[2, 3]`"))?;
        self.tokens.advance()?;
        Ok(dtype)
    }

    /// The lengths that follow a dtype.
    fn tensor_type(&mut self, dtype: DType) -> Result<TensorType> {
        self.tokens.mark('[')?;
        let mut lengths = Vec::new();
        while self.tokens.token != Token::Mark(']') {
            let length = match &self.tokens.token {
                Token::Number(Scalar::Int(n)) => usize::try_from(*n).ok(),
                Token::Number(Scalar::UInt(n)) => usize::try_from(*n).ok(),
                Token::Number(_)
                | Token::Slot(_)
                | Token::Word(_)
                | Token::Text(_)
                | Token::Mark(_)
                | Token::End => None,
            };
            lengths.push(length.ok_or_else(|| self.tokens.unexpected("the length of an axis"))?);
            if lengths.len() > MAX_RANK {
                return Err(self.tokens.place.error(format!("a tensor has at most {MAX_RANK} axes")));
            }
            self.tokens.advance()?;
            if !self.tokens.accept(',')? {
                break;
            }
        }
        self.tokens.mark(']')?;
        Ok(TensorType { shape: Shape::new(&lengths), dtype })
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.tokens.place.error(format!("nested more than {MAX_NESTING} deep")));
        }
        Ok(())
    }
}

/// Assigns the next slots to the definitions.
fn define(slots: &mut Slots, list: Vec<Definition>) -> Result<Vec<TensorType>> {
    let mut types = Vec::with_capacity(list.len());
    for Definition { slot, place, ty } in list {
        let next = slots.len();
        if slots.insert(slot, next).is_some() {
            return Err(place.error(format!("%{slot} is defined twice")));
        }
        types.push(ty);
    }
    Ok(types)
}
