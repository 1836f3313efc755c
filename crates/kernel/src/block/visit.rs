//! Visits of all statements and expressions of a block kernel.

use super::{BlockKernel, Expression, Statement};
use smallvec::{SmallVec, smallvec};

impl BlockKernel {
    /// Calls a function with each statement, in order; those of a body follow the statement that holds the body.
    pub fn for_each_statement<'a>(&'a self, mut visit: impl FnMut(&'a Statement)) {
        each_statement(&self.body, &mut visit);
    }

    /// Calls a function with each expression of each statement; operands follow the expression that holds them.
    pub fn for_each_expression<'a>(&'a self, mut visit: impl FnMut(&'a Expression)) {
        self.for_each_statement(|statement| {
            for expression in statement.expressions() {
                each_expression(expression, &mut visit);
            }
        });
    }
}

fn each_statement<'a>(body: &'a [Statement], visit: &mut dyn FnMut(&'a Statement)) {
    for statement in body {
        visit(statement);
        for body in statement.bodies() {
            each_statement(body, visit);
        }
    }
}

fn each_expression<'a>(expression: &'a Expression, visit: &mut dyn FnMut(&'a Expression)) {
    visit(expression);
    for operand in expression.operands() {
        each_expression(operand, visit);
    }
}

impl Statement {
    /// The expressions of this statement, without those of its bodies.
    pub fn expressions(&self) -> SmallVec<[&Expression; 3]> {
        match self {
            Statement::Let(_, value)
            | Statement::Var(_, value)
            | Statement::Assign(_, value)
            | Statement::If(value, ..)
            | Statement::While(value, _) => smallvec![value],
            Statement::Store(_, at, value)
            | Statement::StoreShared(_, at, value)
            | Statement::StoreArray(_, at, value)
            | Statement::Atomic { at, value, .. } => smallvec![at, value],
            Statement::LoadVector { at, condition, .. } => core::iter::once(at).chain(condition).collect(),
            Statement::StoreVector { at, values, .. } => core::iter::once(at).chain(values).collect(),
            Statement::Fail(_, at, point) => smallvec![at, point],
            Statement::Cooperative(statement) => statement.expressions(),
            Statement::For { range, .. } => range.iter().collect(),
            Statement::Array(..) | Statement::Break | Statement::Continue | Statement::Barrier => {
                SmallVec::new()
            }
        }
    }

    /// The bodies of a branch or loop, possibly empty.
    pub fn bodies(&self) -> [&[Statement]; 2] {
        match self {
            Statement::If(_, then, otherwise) => [then, otherwise],
            Statement::For { body, .. } | Statement::While(_, body) => [body, &[]],
            Statement::Let(..)
            | Statement::Var(..)
            | Statement::Assign(..)
            | Statement::Array(..)
            | Statement::Store(..)
            | Statement::StoreShared(..)
            | Statement::StoreArray(..)
            | Statement::LoadVector { .. }
            | Statement::StoreVector { .. }
            | Statement::Atomic { .. }
            | Statement::Fail(..)
            | Statement::Break
            | Statement::Continue
            | Statement::Barrier
            | Statement::Cooperative(_) => [&[], &[]],
        }
    }
}
