//! From tokens to kernels and launches.

use super::lexer::{Lexer, Place, Token};
use super::{MAX_INSTRUCTIONS, MAX_TEXT};
use crate::{
    Axis, Binding, Compute, Hero, Instruction, Kernel, Launch, Nest, Param, ParamKind, StrideClass, ValueId,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, DType, Error, Reduction, Result, Scalar, Unary};

pub(super) fn kernel(text: &str) -> Result<Kernel> {
    let mut parser = Parser::new(text)?;
    let kernel = parser.kernel()?;
    parser.end(kernel)
}

pub(super) fn launch(text: &str) -> Result<Launch> {
    let mut parser = Parser::new(text)?;
    let launch = parser.launch()?;
    parser.end(launch)
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The token that comes next, and where it starts.
    token: Token<'t>,
    place: Place,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Parser<'t>> {
        if text.len() > MAX_TEXT {
            let problem = format!("the text has {} bytes; at most {MAX_TEXT} are read", text.len());
            return Err(Place { line: 1, column: 1 }.error(problem));
        }
        let mut lexer = Lexer::new(text);
        let (token, place) = lexer.next()?;
        Ok(Parser { lexer, token, place })
    }

    fn end<T>(&self, parsed: T) -> Result<T> {
        if self.token == Token::End { Ok(parsed) } else { Err(self.unexpected("the end of the text")) }
    }

    fn kernel(&mut self) -> Result<Kernel> {
        self.keyword("kernel")?;
        let hero = self.hero()?;
        let axes =
            self.list(Nest::MAX_AXES, |parser| parser.named(&[("p", Axis::Parallel), ("r", Axis::Reduce)]))?;
        let params = self.params(Self::param)?;
        self.mark('{')?;
        let mut body = Vec::new();
        while self.token != Token::Mark('}') {
            if body.len() == MAX_INSTRUCTIONS {
                return Err(self.place.error(format!("more than {MAX_INSTRUCTIONS} instructions")));
            }
            let instruction = self.instruction(body.len())?;
            body.push(instruction);
        }
        self.mark('}')?;
        Ok(Kernel { hero, axes, params, body })
    }

    fn hero(&mut self) -> Result<Hero> {
        if self.token == Token::Word("matmul") {
            self.advance()?;
            return Ok(Hero::MatMul(self.value()?));
        }
        let heroes =
            [Hero::Map, Hero::Transpose, Hero::RowReduce, Hero::ColReduce, Hero::FullReduce, Hero::Scan];
        self.named(&heroes.map(|hero| (hero.name(), hero)))
    }

    /// `(%0: …, %1: …)`, numbered in order.
    fn params<T>(&mut self, each: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.mark('(')?;
        let mut list = Vec::new();
        while self.token != Token::Mark(')') {
            if list.len() == Nest::MAX_PARAMS {
                return Err(self.place.error(format!("more than {} parameters", Nest::MAX_PARAMS)));
            }
            if self.token != Token::Param(list.len() as u32) {
                return Err(self.unexpected(&format!("`%{}`", list.len())));
            }
            self.advance()?;
            self.mark(':')?;
            list.push(each(self)?);
            if !self.accept(',')? {
                break;
            }
        }
        self.mark(')')?;
        Ok(list)
    }

    fn param(&mut self) -> Result<Param> {
        let dtype = self.dtype()?;
        let kind = self.named(&[
            ("in", ParamKind::Input),
            ("number", ParamKind::Number),
            ("out", ParamKind::Output),
        ])?;
        let classes = [("zero", StrideClass::Zero), ("one", StrideClass::One), ("any", StrideClass::Any)];
        let strides = match (kind, self.token) {
            (ParamKind::Number, token) if token != Token::Mark('[') => Vec::new(),
            _ => self.list(Nest::MAX_AXES, |parser| parser.named(&classes))?,
        };
        Ok(Param { kind, dtype, strides })
    }

    fn instruction(&mut self, number: usize) -> Result<Instruction> {
        if self.token != Token::Value(number as u32) {
            return Err(self.unexpected(&format!("`v{number}`")));
        }
        self.advance()?;
        self.mark(':')?;
        let dtype = self.dtype()?;
        self.mark('=')?;
        Ok(Instruction { compute: self.compute()?, dtype })
    }

    fn compute(&mut self) -> Result<Compute> {
        let place = self.place;
        let Token::Word(name) = self.token else { return Err(self.unexpected("what is computed")) };
        self.advance()?;
        if let Some(function) = Unary::from_name(name) {
            return Ok(Compute::Unary(function, self.value()?));
        }
        if let Some(function) = Binary::from_name(name) {
            let [a, b] = self.two()?;
            return Ok(Compute::Binary(function, a, b));
        }
        if let Some(comparison) = Comparison::from_name(name) {
            let [a, b] = self.two()?;
            return Ok(Compute::Compare(comparison, a, b));
        }
        if let Some(reduction) = name.strip_prefix("reduce_").and_then(Reduction::from_name) {
            return Ok(Compute::Reduce(reduction, self.value()?));
        }
        if let Some(reduction) = name.strip_prefix("across_").and_then(Reduction::from_name) {
            return Ok(Compute::Across(reduction, self.value()?));
        }
        if let Some(reduction) = name.strip_prefix("scan_").and_then(Reduction::from_name) {
            let value = self.value()?;
            self.mark('{')?;
            let reverse = self.flag("reverse")?;
            self.mark(',')?;
            let exclusive = self.flag("exclusive")?;
            self.mark('}')?;
            return Ok(Compute::Scan { reduction, reverse, exclusive, value });
        }
        match name {
            "load" => Ok(Compute::Load(self.param_number()?)),
            "load_where" => {
                let param = self.param_number()?;
                self.mark(',')?;
                Ok(Compute::LoadWhere(param, self.value()?))
            }
            "number" => Ok(Compute::Number(self.param_number()?)),
            "constant" => Ok(Compute::Constant(self.scalar()?)),
            "index" => Ok(Compute::Index(self.integer()?)),
            "select" => {
                let [condition, a] = self.two()?;
                self.mark(',')?;
                Ok(Compute::Select(condition, a, self.value()?))
            }
            "cast" => Ok(Compute::Cast(self.value()?)),
            "bitcast" => Ok(Compute::Bitcast(self.value()?)),
            "checked" => {
                let [a, bound] = self.two()?;
                Ok(Compute::Checked(a, bound))
            }
            "store" => {
                let param = self.param_number()?;
                self.mark(',')?;
                Ok(Compute::Store(param, self.value()?))
            }
            _ => {
                let shown: String = name.chars().take(40).collect();
                Err(place.error(format!("kernels do not know `{shown}`")))
            }
        }
    }

    fn launch(&mut self) -> Result<Launch> {
        self.keyword("launch")?;
        let extents = self.list(Nest::MAX_AXES, Self::integer)?;
        let bindings = self.params(|parser| {
            let place = parser.integer()?;
            let mut offset = 0;
            if parser.token == Token::Word("at") {
                parser.advance()?;
                offset = parser.integer()?;
            }
            let strides = match parser.token {
                Token::Mark('[') => parser.list(Nest::MAX_AXES, Self::integer)?,
                Token::Mark(_)
                | Token::Param(_)
                | Token::Value(_)
                | Token::Word(_)
                | Token::Number(_)
                | Token::End => Vec::new(),
            };
            Ok(Binding { place, offset, strides })
        })?;
        Ok(Launch { extents, bindings })
    }

    fn list<T>(&mut self, most: usize, each: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.mark('[')?;
        let mut list = Vec::new();
        while self.token != Token::Mark(']') {
            if list.len() == most {
                return Err(self.place.error(format!("a list of more than {most} entries")));
            }
            list.push(each(self)?);
            if !self.accept(',')? {
                break;
            }
        }
        self.mark(']')?;
        Ok(list)
    }

    fn two(&mut self) -> Result<[ValueId; 2]> {
        let a = self.value()?;
        self.mark(',')?;
        Ok([a, self.value()?])
    }

    fn value(&mut self) -> Result<ValueId> {
        let Token::Value(value) = self.token else { return Err(self.unexpected("a value such as `v0`")) };
        self.advance()?;
        Ok(value)
    }

    fn param_number(&mut self) -> Result<u32> {
        let Token::Param(param) = self.token else { return Err(self.unexpected("a parameter such as `%0`")) };
        self.advance()?;
        Ok(param)
    }

    fn scalar(&mut self) -> Result<Scalar> {
        let Token::Number(scalar) = self.token else { return Err(self.unexpected("a number")) };
        self.advance()?;
        Ok(scalar)
    }

    fn integer<T: TryFrom<i64>>(&mut self) -> Result<T> {
        let place = self.place;
        match self.scalar()? {
            Scalar::Int(x) => T::try_from(x).map_err(|_| place.error(format!("{x} is out of range"))),
            Scalar::Float(_) | Scalar::UInt(_) | Scalar::Bool(_) => Err(place.error("expected an integer")),
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        self.keyword(name)?;
        self.mark('=')?;
        let place = self.place;
        match self.scalar()? {
            Scalar::Bool(flag) => Ok(flag),
            Scalar::Float(_) | Scalar::Int(_) | Scalar::UInt(_) => {
                Err(place.error("expected `true` or `false`"))
            }
        }
    }

    fn dtype(&mut self) -> Result<DType> {
        self.named(&DType::ALL.map(|dtype| (dtype.name(), dtype)))
    }

    fn named<T: Copy>(&mut self, names: &[(&str, T)]) -> Result<T> {
        let found = match self.token {
            Token::Word(word) => names.iter().find(|(name, _)| *name == word),
            Token::Param(_) | Token::Value(_) | Token::Number(_) | Token::Mark(_) | Token::End => None,
        };
        let Some(&(_, value)) = found else {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            return Err(self.unexpected(&names.join(" or ")));
        };
        self.advance()?;
        Ok(value)
    }

    fn keyword(&mut self, word: &str) -> Result<()> {
        if self.token == Token::Word(word) {
            self.advance()
        } else {
            Err(self.unexpected(&format!("`{word}`")))
        }
    }

    fn advance(&mut self) -> Result<()> {
        (self.token, self.place) = self.lexer.next()?;
        Ok(())
    }

    fn accept(&mut self, mark: char) -> Result<bool> {
        let here = self.token == Token::Mark(mark);
        if here {
            self.advance()?;
        }
        Ok(here)
    }

    fn mark(&mut self, mark: char) -> Result<()> {
        if self.accept(mark)? { Ok(()) } else { Err(self.unexpected(&format!("`{mark}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let found: String = match self.token {
            Token::Param(param) => format!("`%{param}`"),
            Token::Value(value) => format!("`v{value}`"),
            Token::Word(word) => format!("`{}`", word.chars().take(40).collect::<String>()),
            Token::Number(scalar) => format!("the number {scalar}"),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::End => "the end of the text".into(),
        };
        self.place.error(format!("expected {wanted}, found {found}"))
    }
}
