//! The stack machine and its opcodes.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use kiln_tensor::SharedBytes;

use super::globals::{Kind, resolve};
use super::text::{raw_unicode, string_literal};
use super::{Id, MAX_NODES, Node, Origin, Pickle, Span};
use crate::error::{Result, StoreError};

/// The newest protocol.
const MAX_PROTOCOL: u8 = 5;

/// Limit on the globals that an error names.
const MAX_REFUSED: usize = 32;

/// Number of arguments that are searched for the items of a container.
const MAX_ARGUMENTS: usize = 4;

/// Nodes that every pickle has, since their opcodes have no operand: `None`, `False`, `True` and `()`.
const NONE: Id = Id::NONE;
const FALSE: Id = Id(1);
const TRUE: Id = Id(2);
const EMPTY_TUPLE: Id = Id(3);

/// Reads the pickle at the start of `bytes`. More bytes may follow it.
///
/// `allowed`: full names of classes to accept as plain data, besides those of [`resolve`].
///
/// # Errors
/// When the pickle is truncated or damaged, has a global that is not allowed, or has too many values.
pub(in crate::pytorch) fn read(
    bytes: SharedBytes,
    origin: Origin,
    allowed: &BTreeSet<String>,
) -> Result<Pickle> {
    let mut machine = Machine {
        bytes: bytes.as_slice(),
        origin: &origin,
        allowed,
        at: 0,
        opcode_at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        nodes: vec![Node::None, Node::Bool(false), Node::Bool(true), Node::Tuple(Box::new([]))],
        offsets: vec![0; 4],
        names: Vec::new(),
        known_names: HashMap::new(),
        refused: Vec::new(),
    };
    let root = loop {
        match machine.step() {
            Ok(Some(root)) => break Ok(root),
            Ok(None) => {}
            Err(error) => break Err(error),
        }
    };
    // The names of the refused globals explain errors after them.
    let root = machine.refusal().map_or(root, Err)?;
    let Machine { at, nodes, offsets, names, .. } = machine;
    Ok(Pickle { root, length: at as u64, nodes, offsets, names, bytes, origin })
}

struct Machine<'a> {
    bytes: &'a [u8],
    origin: &'a Origin,
    allowed: &'a BTreeSet<String>,
    at: usize,
    /// Offset of the current opcode.
    opcode_at: usize,
    stack: Vec<Id>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    nodes: Vec<Node>,
    offsets: Vec<u32>,
    names: Vec<String>,
    known_names: HashMap<String, u32>,
    /// The offsets of the first opcode of each global that is not allowed, and the names. They stand for plain data while
    /// the others are found.
    refused: Vec<(usize, String)>,
}

impl Machine<'_> {
    /// Runs one opcode; returns the value of the pickle after `STOP`.
    fn step(&mut self) -> Result<Option<Id>> {
        self.opcode_at = self.at;
        let opcode = self.byte()?;
        match opcode {
            b'.' => return self.pop().map(Some),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => self.discard()?,
            b'1' => drop(self.pop_mark()?),
            b'2' => self.top().map(|id| self.stack.push(id))?,
            // PROTO and FRAME.
            0x80 => self.protocol()?,
            0x95 => drop(self.take(8)?),
            b'N' => self.stack.push(NONE),
            0x89 => self.stack.push(FALSE),
            0x88 => self.stack.push(TRUE),
            b'I' | b'J' | b'K' | b'L' | b'M' | b'F' | b'G' | 0x8a | 0x8b => self.number(opcode)?,
            b'S' | b'V' | b'U' | b'T' | b'X' | 0x8c | 0x8d | b'C' | b'B' | 0x8e | 0x96 => {
                self.string(opcode)?
            }
            b')' | b't' | b'l' | b'd' | b']' | b'}' | 0x8f | 0x91 | 0x85..=0x87 => self.container(opcode)?,
            b'a' | b'e' | b's' | b'u' | 0x90 => self.insert(opcode)?,
            b'p' | b'q' | b'r' | 0x94 | b'g' | b'h' | b'j' => self.memoize(opcode)?,
            b'c' | 0x93 | b'R' | b'i' | b'o' | 0x81 | 0x92 | b'b' => self.object(opcode)?,
            b'P' | b'Q' => self.persistent(opcode)?,
            0x82..=0x84 => {
                return Err(self.error("extension codes of `copyreg` name no global and are not supported"));
            }
            0x97 | 0x98 => {
                return Err(self.error("out-of-band buffers are not in the file and are not supported"));
            }
            _ => return Err(self.error(format!("byte {opcode:#04x} is not an opcode of pickles"))),
        }
        Ok(None)
    }

    fn protocol(&mut self) -> Result<()> {
        match self.byte()? {
            0..=MAX_PROTOCOL => Ok(()),
            newer => Err(self.error(format!("protocol {newer} is newer than {MAX_PROTOCOL}"))),
        }
    }

    fn number(&mut self, opcode: u8) -> Result<()> {
        let node = match opcode {
            b'J' => Node::Int(i64::from(i32::from_le_bytes(self.array()?))),
            b'K' => Node::Int(i64::from(self.byte()?)),
            b'M' => Node::Int(i64::from(u16::from_le_bytes(self.array()?))),
            b'G' => Node::Float(f64::from_be_bytes(self.array()?)),
            0x8a => {
                let length = u64::from(self.byte()?);
                self.long(length)?
            }
            0x8b => {
                let length = u64::from(u32::from_le_bytes(self.array()?));
                self.long(length)?
            }
            b'F' => {
                let line = self.line()?;
                match self.ascii(line).and_then(|text| text.parse().ok()) {
                    Some(number) => Node::Float(number),
                    None => return Err(self.error("a float is not a number")),
                }
            }
            // I and L, which are decimal.
            _ => self.decimal()?,
        };
        self.push(node)
    }

    fn decimal(&mut self) -> Result<Node> {
        let line = self.line()?;
        let text = self.ascii(line).unwrap_or_default();
        let digits = text.strip_suffix('L').unwrap_or(text);
        match text {
            // The booleans of protocols 0 and 1.
            "00" => return Ok(Node::Bool(false)),
            "01" => return Ok(Node::Bool(true)),
            _ => {}
        }
        if let Ok(number) = digits.parse() {
            return Ok(Node::Int(number));
        }
        let unsigned = digits.strip_prefix('-').unwrap_or(digits);
        if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.error("an integer is not a number"));
        }
        Ok(Node::LargeInt(line))
    }

    /// Reads an integer in little-endian two's complement.
    fn long(&mut self, length: u64) -> Result<Node> {
        let span = self.take(length)?;
        let bytes = self.slice(span);
        if bytes.len() > 8 {
            return Ok(Node::LargeInt(span));
        }
        let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xFF } else { 0 };
        let mut extended = [sign; 8];
        extended[..bytes.len()].copy_from_slice(bytes);
        Ok(Node::Int(i64::from_le_bytes(extended)))
    }

    fn string(&mut self, opcode: u8) -> Result<()> {
        let node = match opcode {
            b'S' => {
                let line = self.line()?;
                let text = self.ascii(line).and_then(string_literal);
                Node::Unescaped(text.ok_or_else(|| self.error("a string is not a literal of UTF-8"))?.into())
            }
            b'V' => {
                let line = self.line()?;
                let text = raw_unicode(self.slice(line));
                Node::Unescaped(text.ok_or_else(|| self.error("a string has a damaged escape"))?.into())
            }
            _ => {
                let length = match opcode {
                    b'U' | b'C' | 0x8c => u64::from(self.byte()?),
                    b'T' | b'X' | b'B' => u64::from(u32::from_le_bytes(self.array()?)),
                    // BINUNICODE8, BINBYTES8 and BYTEARRAY8.
                    _ => u64::from_le_bytes(self.array()?),
                };
                let span = self.take(length)?;
                if matches!(opcode, b'X' | 0x8c | 0x8d) { Node::Text(span) } else { Node::Bytes(span) }
            }
        };
        self.push(node)
    }

    fn container(&mut self, opcode: u8) -> Result<()> {
        let node = match opcode {
            b')' => {
                self.stack.push(EMPTY_TUPLE);
                return Ok(());
            }
            b']' => Node::List(Vec::new()),
            b'}' => Node::Dict(Vec::new()),
            0x8f => Node::Set(Vec::new()),
            b't' => Node::Tuple(self.pop_mark()?.into()),
            b'l' => Node::List(self.pop_mark()?),
            0x91 => Node::Set(self.pop_mark()?),
            b'd' => {
                let values = self.pop_mark()?;
                Node::Dict(self.pairs(&values)?)
            }
            // TUPLE1, TUPLE2 and TUPLE3.
            _ => {
                let count = usize::from(opcode - 0x84);
                let start = self.stack.len().checked_sub(count).filter(|&start| start >= self.floor());
                let start = start.ok_or_else(|| self.underflow())?;
                Node::Tuple(self.stack.drain(start..).collect())
            }
        };
        self.push(node)
    }

    fn pairs(&self, values: &[Id]) -> Result<Vec<(Id, Id)>> {
        if !values.len().is_multiple_of(2) {
            return Err(self.error("a dict has a key without a value"));
        }
        Ok(values.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    /// Adds values to the container below them.
    fn insert(&mut self, opcode: u8) -> Result<()> {
        let values = match opcode {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.pop_mark()?,
        };
        let container = self.top()?;
        let pairs = if matches!(opcode, b's' | b'u') { self.pairs(&values)? } else { Vec::new() };
        match (opcode, &mut self.nodes[container.0 as usize]) {
            (b'a' | b'e', Node::List(elements)) | (0x90, Node::Set(elements)) => elements.extend(values),
            (b's' | b'u', Node::Dict(items)) => items.extend(pairs),
            (_, other) => {
                let other = describe(other);
                return Err(self.error(format!("values are added to {other}")));
            }
        }
        Ok(())
    }

    fn memoize(&mut self, opcode: u8) -> Result<()> {
        let key = match opcode {
            b'p' | b'g' => {
                let line = self.line()?;
                let number = self.ascii(line).and_then(|text| text.parse().ok());
                number.ok_or_else(|| self.error("a memo key is not a number"))?
            }
            b'q' | b'h' => u32::from(self.byte()?),
            b'r' | b'j' => u32::from_le_bytes(self.array()?),
            // MEMOIZE. The number of nodes is limited, and each memo key took an opcode.
            _ => self.memo.len() as u32,
        };
        if matches!(opcode, b'g' | b'h' | b'j') {
            let id = self.memo.get(&key).copied();
            let id = id.ok_or_else(|| self.error(format!("memo {key} was not stored before")))?;
            self.stack.push(id);
            return Ok(());
        }
        let id = self.top()?;
        self.memo.insert(key, id);
        Ok(())
    }

    fn object(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            // GLOBAL
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                let global = self.global(module, name)?;
                self.push(global)
            }
            // STACK_GLOBAL
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (&self.nodes[module.0 as usize], &self.nodes[name.0 as usize]) {
                    (&Node::Text(module), &Node::Text(name)) => {
                        let global = self.global(module, name)?;
                        self.push(global)
                    }
                    _ => Err(self.error("the name of a global is not a string")),
                }
            }
            // INST
            b'i' => {
                let (module, name) = (self.line()?, self.line()?);
                let args = self.pop_mark()?;
                let global = self.global(module, name)?;
                let callable = self.add(global)?;
                let args = self.add(Node::Tuple(args.into()))?;
                self.call(callable, args)
            }
            // OBJ
            b'o' => {
                let mut args = self.pop_mark()?;
                if args.is_empty() {
                    return Err(self.underflow());
                }
                let callable = args.remove(0);
                let args = self.add(Node::Tuple(args.into()))?;
                self.call(callable, args)
            }
            // NEWOBJ_EX
            0x92 => {
                let (keywords, args, callable) = (self.pop()?, self.pop()?, self.pop()?);
                if !matches!(&self.nodes[keywords.0 as usize], Node::Dict(items) if items.is_empty()) {
                    return Err(self.error("an object with keyword arguments is not supported"));
                }
                self.call(callable, args)
            }
            b'b' => self.build(),
            // REDUCE and NEWOBJ
            _ => {
                let (args, callable) = (self.pop()?, self.pop()?);
                self.call(callable, args)
            }
        }
    }

    /// Resolves a global; only known ones and those that the caller allowed exist.
    fn global(&mut self, module: Span, name: Span) -> Result<Node> {
        let (Ok(module), Ok(name)) =
            (std::str::from_utf8(self.slice(module)), std::str::from_utf8(self.slice(name)))
        else {
            return Err(self.error("the name of a global is not UTF-8"));
        };
        let full = format!("{module}.{name}");
        let kind = match resolve(module, name) {
            Some(kind) => kind,
            None if self.allowed.contains(&full) => Kind::Class,
            None => {
                if !self.refused.iter().any(|(_, name)| *name == full) && self.refused.len() <= MAX_REFUSED {
                    self.refused.push((self.opcode_at, full));
                }
                return Ok(Node::Global(Kind::Class, 0));
            }
        };
        if let Some(&index) = self.known_names.get(&full) {
            return Ok(Node::Global(kind, index));
        }
        let index = self.names.len() as u32;
        self.names.push(full.clone());
        self.known_names.insert(full, index);
        Ok(Node::Global(kind, index))
    }

    /// Records a call. Calls that make an empty dict or list become one, since items may follow.
    fn call(&mut self, callable: Id, args: Id) -> Result<()> {
        let Node::Global(kind, _) = self.nodes[callable.0 as usize] else {
            let problem =
                format!("{} is called, not a function or class", describe(&self.nodes[callable.0 as usize]));
            return Err(self.error(problem));
        };
        let Node::Tuple(values) = &self.nodes[args.0 as usize] else {
            return Err(self.error("the arguments of a call are not a tuple"));
        };
        let is_filled = values.iter().take(MAX_ARGUMENTS).any(|id| match &self.nodes[id.0 as usize] {
            Node::List(values) => !values.is_empty(),
            Node::Dict(items) => !items.is_empty(),
            Node::Tuple(values) => !values.is_empty(),
            Node::Call { .. } => true,
            Node::None
            | Node::Bool(_)
            | Node::Int(_)
            | Node::LargeInt(_)
            | Node::Float(_)
            | Node::Text(_)
            | Node::Bytes(_)
            | Node::Unescaped(_)
            | Node::Set(_)
            | Node::Global(..)
            | Node::Persistent(_) => false,
        });
        // `copyreg._reconstructor(class, base, state)` makes an object of the class.
        let (kind, callable) = match (kind, values.first()) {
            (Kind::Reconstructor, Some(&class)) => {
                let Node::Global(kind, _) = self.nodes[class.0 as usize] else {
                    return Err(self.error("an object has no class"));
                };
                (kind, class)
            }
            (kind, _) => (kind, callable),
        };
        match (kind, is_filled) {
            (Kind::Dict, false) => self.push(Node::Dict(Vec::new())),
            (Kind::List, false) => self.push(Node::List(Vec::new())),
            _ => self.push(Node::Call { callable, args, state: NONE }),
        }
    }

    /// Sets the state of an object.
    fn build(&mut self) -> Result<()> {
        let (new, object) = (self.pop()?, self.top()?);
        let node = &mut self.nodes[object.0 as usize];
        if let Node::Call { state, .. } = node {
            *state = new;
        } else if !matches!(node, Node::Dict(_) | Node::List(_) | Node::Set(_)) {
            let other = describe(node);
            return Err(self.error(format!("the state of {other} is set")));
        }
        // Attributes of a dict or list, such as `_metadata` of a state dict, are no items.
        Ok(())
    }

    fn persistent(&mut self, opcode: u8) -> Result<()> {
        let key = if opcode == b'P' {
            let line = self.line()?;
            self.add(Node::Text(line))?
        } else {
            self.pop()?
        };
        // ("module", class, ...) is a class with its source code.
        if let Node::Tuple(values) = &self.nodes[key.0 as usize]
            && let [tag, class, ..] = **values
            && let Node::Text(tag) | Node::Bytes(tag) = self.nodes[tag.0 as usize]
            && self.slice(tag) == b"module"
            && let Node::Global(..) = self.nodes[class.0 as usize]
        {
            self.stack.push(class);
            return Ok(());
        }
        self.push(Node::Persistent(key))
    }

    fn push(&mut self, node: Node) -> Result<()> {
        let id = self.add(node)?;
        self.stack.push(id);
        Ok(())
    }

    fn add(&mut self, node: Node) -> Result<Id> {
        if self.nodes.len() >= MAX_NODES {
            return Err(self.error(format!("the pickle has more than the {MAX_NODES} values allowed")));
        }
        let id = Id(self.nodes.len() as u32);
        self.nodes.push(node);
        self.offsets.push(self.opcode_at as u32);
        Ok(id)
    }

    /// Height of the stack at the last mark, below which no value may be taken.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Id> {
        let id = self.top()?;
        self.stack.pop();
        Ok(id)
    }

    fn top(&self) -> Result<Id> {
        let above = self.stack.get(self.floor()..).unwrap_or_default();
        above.last().copied().ok_or_else(|| self.underflow())
    }

    /// `POP` removes the last value, or a mark without values.
    fn discard(&mut self) -> Result<()> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn pop_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self.marks.pop().ok_or_else(|| self.error("there is no mark on the stack"))?;
        // Collecting allocates no more than the values need; `split_off` may keep the capacity of the stack.
        Ok(self.stack.drain(mark.min(self.stack.len())..).collect())
    }

    fn byte(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let span = self.take(N as u64)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.slice(span));
        Ok(bytes)
    }

    fn take(&mut self, length: u64) -> Result<Span> {
        let rest = (self.bytes.len() - self.at) as u64;
        if length > rest {
            let problem = format!(
                "an opcode needs {length} more bytes, but {rest} follow\n  hint: the file is truncated; get it again"
            );
            return Err(self.error(problem));
        }
        self.span(self.at..self.at + length as usize)
    }

    /// Reads up to the end of the line, which is skipped.
    fn line(&mut self) -> Result<Span> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
            return Err(self.error("a line has no end\n  hint: the file is truncated; get it again"));
        };
        let span = self.span(self.at..self.at + length)?;
        self.at += 1;
        Ok(span)
    }

    fn span(&mut self, range: Range<usize>) -> Result<Span> {
        self.at = range.end;
        match (u32::try_from(range.start), u32::try_from(range.end)) {
            (Ok(start), Ok(end)) => Ok(Span { start, end }),
            _ => Err(self.error("the pickle is longer than the 4 GiB allowed")),
        }
    }

    fn slice(&self, span: Span) -> &[u8] {
        self.bytes.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    fn ascii(&self, span: Span) -> Option<&str> {
        std::str::from_utf8(self.slice(span)).ok().map(str::trim_end)
    }

    fn underflow(&self) -> StoreError {
        self.error("the stack has too few values for this opcode")
    }

    fn error(&self, problem: impl Into<String>) -> StoreError {
        let problem: String = problem.into();
        self.origin.malformed(self.opcode_at as u64, format!("pickle: {problem}"))
    }

    /// Returns the error of the globals that are not allowed, at the byte of the first.
    fn refusal(&self) -> Option<StoreError> {
        const SHOWN: usize = 200;
        let &(at, _) = self.refused.first()?;
        let shown = |(_, name): &(usize, String)| name.escape_debug().take(SHOWN).collect::<String>();
        let names: Vec<String> = self.refused.iter().take(MAX_REFUSED).map(shown).collect();
        let (globals, are, reason, they) = match self.refused.len() {
            1 => ("global", "is", "it is no part of weights", "it is a class"),
            count => {
                let are = if count > MAX_REFUSED { "and others are" } else { "are" };
                ("globals", are, "they are no part of weights", "they are classes")
            }
        };
        let problem = format!(
            "pickle: the {globals} `{}` {are} not allowed, since {reason}; nothing was run\n  hint: if {they} of a trusted \
             program, allow each as plain data with `PyTorchOptions::allow`, or save only the `state_dict()`",
            names.join("`, `")
        );
        Some(self.origin.malformed(at as u64, problem))
    }
}

fn describe(node: &Node) -> &'static str {
    match node {
        Node::None => "None",
        Node::Bool(_) => "a bool",
        Node::Int(_) | Node::LargeInt(_) => "an integer",
        Node::Float(_) => "a float",
        Node::Text(_) | Node::Unescaped(_) => "a string",
        Node::Bytes(_) => "bytes",
        Node::Tuple(_) => "a tuple",
        Node::List(_) => "a list",
        Node::Set(_) => "a set",
        Node::Dict(_) => "a dict",
        Node::Global(..) => "a global",
        Node::Call { .. } => "an object",
        Node::Persistent(_) => "a storage",
    }
}
