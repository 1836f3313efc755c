//! The walk over statements and expressions, and the parts of them in which languages differ.

use super::variable_name;
use crate::Compute;
use crate::block::{
    ArrayType, Atomic, Cooperative, Expression, Function, Kind, LANES, Place, Statement, Type,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::{Binary, DType, Scalar};

/// A language. Operands of functions are literals, names, calls or parenthesized; other arguments are any expression.
pub(super) trait Syntax {
    /// The dtype of indices.
    const INDEX: DType;

    /// The name of a type.
    fn ty(&self, ty: Type) -> &'static str;
    /// A literal.
    fn constant(&self, scalar: Scalar, dtype: DType) -> String;
    /// The value of a parameter of kind number or length.
    fn number(&self, param: u32) -> String;
    /// An element of a tensor.
    fn load(&self, param: u32, at: &str) -> String;
    /// An element of an array in shared memory.
    fn load_shared(&self, array: u32, at: &str) -> String;
    /// The same, for all threads of the block, between barriers.
    fn load_uniform(&self, array: u32, at: &str) -> String;
    /// A function of values with their dtypes; `dtype` is that of the result.
    fn compute(&self, compute: &Compute, dtype: DType, operands: &[(String, DType)]) -> String;
    /// An integer as an index, saturated.
    fn to_index(&self, x: String, from: DType) -> String;
    /// The upper 32 bits of a product of two `u32`.
    fn mul_high(&self, a: &str, b: &str) -> String;

    /// Defines an immutable variable.
    fn define(&self, name: &str, ty: Type, value: &str) -> String;
    /// Defines a mutable variable.
    fn variable(&self, name: &str, ty: Type, value: &str) -> String;
    /// Defines an array of one thread.
    fn array(&self, name: &str, array: &ArrayType) -> String;
    /// An element of an array of one thread.
    fn load_array(&self, name: &str, at: &str, _ty: Type) -> String {
        format!("{name}[{at}]")
    }
    /// Stores to an element of an array of one thread.
    fn store_array(&self, name: &str, at: &str, _ty: Type, value: &str) -> String {
        format!("{name}[{at}] = {value};")
    }
    /// Stores to an element of a tensor.
    fn store(&self, param: u32, at: &str, value: &str) -> String;
    /// Stores to an element of an array in shared memory.
    fn store_shared(&self, array: u32, at: &str, value: &str) -> String;
    /// Defines variables as the elements of a vector, zeros where the condition is false.
    fn load_vector(&self, place: Place, at: &str, condition: Option<&str>, names: &[String; LANES])
    -> String;
    /// Stores to the elements of a vector.
    fn store_vector(&self, place: Place, at: &str, values: &[String; LANES]) -> String;
    /// An atomic operation; its value is that of the element before.
    fn atomic(&self, place: Place, at: &str, operation: Atomic, value: &str) -> String;
    /// Reports an index out of range to a flag.
    fn fail(&self, flag: u32, at: &str, point: &str) -> String;
    /// Waits for all threads of the block.
    fn barrier(&self) -> &'static str;
    /// A statement about cooperative matrices; `text` prints an expression.
    fn cooperative(&self, statement: &Cooperative, text: &dyn Fn(&Expression) -> String) -> String;
}

/// The statements as lines of the body of a function.
pub(super) fn body(syntax: &impl Syntax, statements: &[Statement]) -> String {
    let mut walk = Walk { syntax, text: String::new(), depth: 1 };
    walk.statements(statements);
    walk.text
}

struct Walk<'a, S> {
    syntax: &'a S,
    text: String,
    depth: usize,
}

impl<S: Syntax> Walk<'_, S> {
    fn line(&mut self, line: &str) {
        for _ in 0..self.depth {
            self.text.push_str("  ");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
            // WGSL has no statements after these.
            if matches!(statement, Statement::Break | Statement::Continue) {
                return;
            }
        }
    }

    fn block(&mut self, statements: &[Statement]) {
        self.depth += 1;
        self.statements(statements);
        self.depth -= 1;
    }

    fn statement(&mut self, statement: &Statement) {
        let syntax = self.syntax;
        let text = |expression: &Expression| expression_text(syntax, expression);
        match statement {
            Statement::Let(number, value) => {
                self.line(&syntax.define(&variable_name(*number), value.ty(), &text(value)));
            }
            Statement::Var(number, value) => {
                self.line(&syntax.variable(&variable_name(*number), value.ty(), &text(value)));
            }
            Statement::Assign(number, value) => {
                self.line(&format!("{} = {};", variable_name(*number), text(value)));
            }
            Statement::Array(number, array) => self.line(&syntax.array(&variable_name(*number), array)),
            Statement::Store(param, at, value) => self.line(&syntax.store(*param, &text(at), &text(value))),
            Statement::StoreShared(array, at, value) => {
                self.line(&syntax.store_shared(*array, &text(at), &text(value)));
            }
            Statement::StoreArray(number, at, value) => {
                let name = variable_name(*number);
                self.line(&syntax.store_array(&name, &text(at), value.ty(), &text(value)));
            }
            Statement::LoadVector { place, at, condition, first } => {
                let condition = condition.as_ref().map(text);
                let mut names = (*first..).map(variable_name);
                let names = [(); LANES].map(|()| names.next().unwrap_or_default());
                self.line(&syntax.load_vector(*place, &text(at), condition.as_deref(), &names));
            }
            Statement::StoreVector { place, at, values } => {
                self.line(&syntax.store_vector(*place, &text(at), &values.each_ref().map(text)));
            }
            Statement::Atomic { place, at, operation, value, before } => {
                let call = syntax.atomic(*place, &text(at), *operation, &text(value));
                match before {
                    Some(number) => self.line(&syntax.define(&variable_name(*number), value.ty(), &call)),
                    None => self.line(&format!("{call};")),
                }
            }
            Statement::Fail(flag, at, point) => self.line(&syntax.fail(*flag, &text(at), &text(point))),
            Statement::If(condition, then, otherwise) => self.branch(&text(condition), then, otherwise),
            Statement::For { counter, range, body } => self.for_loop(*counter, range, body),
            Statement::While(condition, body) => {
                self.line(&format!("while ({}) {{", text(condition)));
                self.block(body);
                self.line("}");
            }
            Statement::Break => self.line("break;"),
            Statement::Continue => self.line("continue;"),
            Statement::Barrier => self.line(syntax.barrier()),
            Statement::Cooperative(statement) => self.line(&syntax.cooperative(statement, &text)),
        }
    }

    fn branch(&mut self, condition: &str, then: &[Statement], otherwise: &[Statement]) {
        self.line(&format!("if ({condition}) {{"));
        self.block(then);
        if !otherwise.is_empty() {
            self.line("} else {");
            self.block(otherwise);
        }
        self.line("}");
    }

    fn for_loop(&mut self, counter: u32, [from, below, step]: &[Expression; 3], body: &[Statement]) {
        let name = variable_name(counter);
        let below = self.once(&format!("{name}_end"), below);
        let step = self.once(&format!("{name}_step"), step);
        let start = self.syntax.variable(&name, Type::Index, &expression_text(self.syntax, from));
        self.line(&format!("for ({start} {name} < {below}; {name} += {step}) {{"));
        self.block(body);
        self.line("}");
    }

    /// An operand of the condition or of the step of a loop, evaluated once before the loop.
    fn once(&mut self, name: &str, value: &Expression) -> String {
        let syntax = self.syntax;
        match value.kind() {
            Kind::Index(_) | Kind::Param(_) | Kind::Thread | Kind::Block | Kind::Blocks => {
                expression_text(syntax, value)
            }
            Kind::Constant(_)
            | Kind::Variable(_)
            | Kind::Load(..)
            | Kind::LoadShared(..)
            | Kind::LoadUniform(..)
            | Kind::LoadArray(..)
            | Kind::Call(..) => {
                self.line(&syntax.define(name, Type::Index, &expression_text(syntax, value)));
                name.into()
            }
        }
    }
}

fn expression_text<S: Syntax>(syntax: &S, expression: &Expression) -> String {
    let text = |at: &Expression| expression_text(syntax, at);
    match expression.kind() {
        Kind::Index(value) => {
            let is_narrow = S::INDEX == DType::I32;
            let value = if is_narrow { (*value).clamp(i32::MIN.into(), i32::MAX.into()) } else { *value };
            syntax.constant(Scalar::Int(value), S::INDEX)
        }
        Kind::Constant(scalar) => syntax.constant(*scalar, expression.dtype()),
        Kind::Variable(number) => variable_name(*number),
        Kind::Param(param) => syntax.number(*param),
        Kind::Thread => "thread".into(),
        Kind::Block => "block".into(),
        Kind::Blocks => "blocks".into(),
        Kind::Load(param, at) => syntax.load(*param, &text(at)),
        Kind::LoadShared(array, at) => syntax.load_shared(*array, &text(at)),
        Kind::LoadUniform(array, at) => syntax.load_uniform(*array, &text(at)),
        Kind::LoadArray(number, at) => syntax.load_array(&variable_name(*number), &text(at), expression.ty()),
        Kind::Call(function, operands) => {
            let operands = operands.iter().flatten();
            let operands: Vec<(String, Type)> =
                operands.map(|operand| (primary(text(operand)), operand.ty())).collect();
            call(syntax, *function, &operands, expression.ty())
        }
    }
}

fn call<S: Syntax>(syntax: &S, function: Function, operands: &[(String, Type)], ty: Type) -> String {
    let at = |i: usize| operands[i].0.as_str();
    let is_index = operands[0].1 == Type::Index;
    let Some(compute) = function.compute() else { return syntax.mul_high(at(0), at(1)) };
    match (function, ty) {
        (Function::Cast, Type::Index) if !is_index => {
            syntax.to_index(operands[0].0.clone(), operands[0].1.dtype())
        }
        (Function::Binary(Binary::Add), Type::Index) => format!("{} + {}", at(0), at(1)),
        (Function::Binary(Binary::Sub), Type::Index) => format!("{} - {}", at(0), at(1)),
        (Function::Binary(Binary::Mul), Type::Index) => format!("{} * {}", at(0), at(1)),
        (Function::Binary(Binary::Div), Type::Index) => format!("{} / {}", at(0), at(1)),
        (Function::Binary(Binary::Rem), Type::Index) => format!("{} % {}", at(0), at(1)),
        (
            Function::Unary(_)
            | Function::Binary(_)
            | Function::Compare(_)
            | Function::Select
            | Function::Cast
            | Function::Bitcast
            | Function::MulHigh,
            _,
        ) => {
            let dtype = |ty: Type| match ty {
                Type::Index => S::INDEX,
                Type::Value(dtype) => dtype,
            };
            let typed: Vec<(String, DType)> =
                operands.iter().map(|(text, ty)| (text.clone(), dtype(*ty))).collect();
            syntax.compute(&compute, dtype(ty), &typed)
        }
    }
}

/// The expression, in parentheses unless it is a literal, a name, a call or an element.
pub(super) fn primary(text: String) -> String {
    let mut depth = 0_usize;
    let is_primary = text.bytes().all(|byte| {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            _ => return depth > 0 || byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.',
        }
        true
    });
    if is_primary { text } else { format!("({text})") }
}
