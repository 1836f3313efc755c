//! The parser of kernels and launches.

use super::{MAX_INSTRUCTIONS, MAX_TEXT};
use crate::{
    Axis, Binding, Compute, Instruction, Kernel, KernelKind, Launch, Nest, Param, ParamKind, StrideClass,
    ValueId,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::text::lexer::{Token, Tokens, word_scalar};
use kiln_ir::{Binary, Comparison, DType, Reduction, Result, Scalar, Unary};

pub(super) fn kernel(text: &str) -> Result<Kernel> {
    let mut parser = Parser { tokens: Tokens::new(text, MAX_TEXT)? };
    let kernel = parser.kernel()?;
    parser.tokens.end(kernel)
}

pub(super) fn launch(text: &str) -> Result<Launch> {
    let mut parser = Parser { tokens: Tokens::new(text, MAX_TEXT)? };
    let launch = parser.launch()?;
    parser.tokens.end(launch)
}

struct Parser<'t> {
    tokens: Tokens<'t>,
}

impl Parser<'_> {
    fn kernel(&mut self) -> Result<Kernel> {
        self.tokens.keyword("kernel")?;
        let kind = self.kind()?;
        let axes =
            self.list(Nest::MAX_AXES, |parser| parser.named(&[("p", Axis::Parallel), ("r", Axis::Reduce)]))?;
        let params = self.params(Self::param)?;
        self.tokens.mark('{')?;
        let mut body = Vec::new();
        while self.tokens.token != Token::Mark('}') {
            if body.len() == MAX_INSTRUCTIONS {
                return Err(self.tokens.place.error(format!("more than {MAX_INSTRUCTIONS} instructions")));
            }
            let instruction = self.instruction(body.len())?;
            body.push(instruction);
        }
        self.tokens.mark('}')?;
        Ok(Kernel { kind, axes, params, body })
    }

    fn kind(&mut self) -> Result<KernelKind> {
        if self.tokens.token == Token::Word("matmul") {
            self.tokens.advance()?;
            return Ok(KernelKind::MatMul(self.value()?));
        }
        let kinds = [
            KernelKind::Map,
            KernelKind::Transpose,
            KernelKind::RowReduce,
            KernelKind::ColReduce,
            KernelKind::FullReduce,
            KernelKind::Scan,
        ];
        self.named(&kinds.map(|kind| (kind.name(), kind)))
    }

    /// `(%0: …, %1: …)`, numbered in order.
    fn params<T>(&mut self, each: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.tokens.mark('(')?;
        let mut list = Vec::new();
        while self.tokens.token != Token::Mark(')') {
            if list.len() == Nest::MAX_PARAMS {
                return Err(self.tokens.place.error(format!("more than {} parameters", Nest::MAX_PARAMS)));
            }
            if self.tokens.token != Token::Slot(list.len() as u64) {
                return Err(self.tokens.unexpected(&format!("`%{}`", list.len())));
            }
            self.tokens.advance()?;
            self.tokens.mark(':')?;
            list.push(each(self)?);
            if !self.tokens.accept(',')? {
                break;
            }
        }
        self.tokens.mark(')')?;
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
        let strides = if kind == ParamKind::Number && self.tokens.token != Token::Mark('[') {
            Vec::new()
        } else {
            self.list(Nest::MAX_AXES, |parser| parser.named(&classes))?
        };
        Ok(Param { kind, dtype, strides })
    }

    fn instruction(&mut self, number: usize) -> Result<Instruction> {
        self.tokens.keyword(&format!("v{number}"))?;
        self.tokens.mark(':')?;
        let dtype = self.dtype()?;
        self.tokens.mark('=')?;
        Ok(Instruction { compute: self.compute()?, dtype })
    }

    fn compute(&mut self) -> Result<Compute> {
        let place = self.tokens.place;
        let Token::Word(name) = self.tokens.token else {
            return Err(self.tokens.unexpected("an operation"));
        };
        self.tokens.advance()?;
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
        if let Some(reduction) = name.strip_prefix("column_reduce_").and_then(Reduction::from_name) {
            return Ok(Compute::ColumnReduce(reduction, self.value()?));
        }
        if let Some(reduction) = name.strip_prefix("scan_").and_then(Reduction::from_name) {
            let value = self.value()?;
            self.tokens.mark('{')?;
            let reverse = self.flag("reverse")?;
            self.tokens.mark(',')?;
            let exclusive = self.flag("exclusive")?;
            self.tokens.mark('}')?;
            return Ok(Compute::Scan { reduction, reverse, exclusive, value });
        }
        match name {
            "load" => Ok(Compute::Load(self.param_number()?)),
            "load_where" => {
                let param = self.param_number()?;
                self.tokens.mark(',')?;
                Ok(Compute::LoadWhere(param, self.value()?))
            }
            "load_at" => {
                let param = self.param_number()?;
                self.tokens.mark(',')?;
                let [offset, condition] = self.two()?;
                Ok(Compute::LoadAt { param, offset, condition })
            }
            "number" => Ok(Compute::Number(self.param_number()?)),
            "constant" => Ok(Compute::Constant(self.scalar()?)),
            "index" => Ok(Compute::Index(self.integer()?)),
            "select" => {
                let [condition, a] = self.two()?;
                self.tokens.mark(',')?;
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
                self.tokens.mark(',')?;
                Ok(Compute::Store(param, self.value()?))
            }
            _ => {
                let shown: String = name.chars().take(40).collect();
                Err(place.error(format!("kernels have no operation `{shown}`")))
            }
        }
    }

    fn launch(&mut self) -> Result<Launch> {
        self.tokens.keyword("launch")?;
        let extents = self.list(Nest::MAX_AXES, Self::integer)?;
        let bindings = self.params(|parser| {
            let place = parser.integer()?;
            let mut offset = 0;
            if parser.tokens.token == Token::Word("at") {
                parser.tokens.advance()?;
                offset = parser.integer()?;
            }
            let strided = parser.tokens.token == Token::Mark('[');
            let strides = if strided { parser.list(Nest::MAX_AXES, Self::integer)? } else { Vec::new() };
            Ok(Binding { place, offset, strides })
        })?;
        Ok(Launch { extents, bindings })
    }

    fn list<T>(&mut self, most: usize, each: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.tokens.mark('[')?;
        let mut list = Vec::new();
        while self.tokens.token != Token::Mark(']') {
            if list.len() == most {
                return Err(self.tokens.place.error(format!("a list of more than {most} entries")));
            }
            list.push(each(self)?);
            if !self.tokens.accept(',')? {
                break;
            }
        }
        self.tokens.mark(']')?;
        Ok(list)
    }

    fn two(&mut self) -> Result<[ValueId; 2]> {
        let a = self.value()?;
        self.tokens.mark(',')?;
        Ok([a, self.value()?])
    }

    fn value(&mut self) -> Result<ValueId> {
        let value = if let Token::Word(word) = self.tokens.token { value_number(word) } else { None };
        let value = value.ok_or_else(|| self.tokens.unexpected("a value such as `v0`"))?;
        self.tokens.advance()?;
        Ok(value)
    }

    fn param_number(&mut self) -> Result<u32> {
        let param = if let Token::Slot(slot) = self.tokens.token { u32::try_from(slot).ok() } else { None };
        let param = param.ok_or_else(|| self.tokens.unexpected("a parameter such as `%0`"))?;
        self.tokens.advance()?;
        Ok(param)
    }

    fn scalar(&mut self) -> Result<Scalar> {
        let scalar = match self.tokens.token {
            Token::Number(scalar) => Some(scalar),
            Token::Word(word) => word_scalar(word),
            Token::Slot(_) | Token::Text(_) | Token::Mark(_) | Token::End => None,
        };
        let scalar = scalar.ok_or_else(|| self.tokens.unexpected("a number"))?;
        self.tokens.advance()?;
        Ok(scalar)
    }

    fn integer<T: TryFrom<i64>>(&mut self) -> Result<T> {
        let place = self.tokens.place;
        match self.scalar()? {
            Scalar::Int(x) => T::try_from(x).map_err(|_| place.error(format!("{x} is out of range"))),
            Scalar::Float(_) | Scalar::UInt(_) | Scalar::Bool(_) => Err(place.error("expected an integer")),
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        self.tokens.keyword(name)?;
        self.tokens.mark('=')?;
        let place = self.tokens.place;
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
        let found = match self.tokens.token {
            Token::Word(word) => names.iter().find(|(name, _)| *name == word),
            Token::Slot(_) | Token::Number(_) | Token::Text(_) | Token::Mark(_) | Token::End => None,
        };
        let Some(&(_, value)) = found else {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            return Err(self.tokens.unexpected(&names.join(" or ")));
        };
        self.tokens.advance()?;
        Ok(value)
    }
}

/// Parses the number of a value from its name: `v3`.
fn value_number(word: &str) -> Option<ValueId> {
    let digits = word.strip_prefix('v')?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}
