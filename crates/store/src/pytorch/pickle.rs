//! The restricted pickle machine: reads the values of a Python pickle and runs nothing.
//!
//! A pickle is a program for a stack machine, which may call any function that Python can import. This machine builds
//! plain data only. It accepts the globals of [`globals`], and any other is an error that names it. A call is recorded
//! as a [`Node::Call`] with its callable and its arguments; [`objects`](super::objects) knows which calls are tensors.
//!
//! Memory is linear in the length of the pickle: strings are ranges of it, each opcode makes at most one node, and a
//! pickle has at most [`MAX_NODES`]. Nodes refer to each other by index, so that neither deep nesting nor cycles
//! need recursion. Source of the opcodes, protocols 0 to 5:
//! <https://github.com/python/cpython/blob/3.13/Lib/pickletools.py>.

pub(super) mod globals;
mod machine;
mod text;

use std::path::{Path, PathBuf};

use kiln_tensor::SharedBytes;

use crate::error::StoreError;
use globals::Kind;

pub(super) use machine::read;

/// Limit on the number of values in a pickle.
const MAX_NODES: usize = 1 << 23;

/// Limit on the length of keys of storages, names of dtypes and the like, in bytes.
const MAX_SHORT: u32 = 1024;

/// The values of a pickle.
#[derive(Debug)]
pub(super) struct Pickle {
    pub(super) root: Id,
    /// Number of bytes of the pickle.
    pub(super) length: u64,
    nodes: Vec<Node>,
    /// Offset of the opcode of each node.
    offsets: Vec<u32>,
    /// Full names of the globals, `module.name`.
    names: Vec<String>,
    bytes: SharedBytes,
    origin: Origin,
}

/// The index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id(u32);

impl Id {
    /// The node of `None`.
    pub(super) const NONE: Id = Id(0);
}

/// A range of the bytes of the pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A value of a pickle.
#[derive(Clone, Debug)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits: its little-endian bytes in two's complement, or its decimal digits.
    LargeInt(Span),
    Float(f64),
    /// UTF-8, not yet validated.
    Text(Span),
    Bytes(Span),
    /// Text that had escapes.
    Unescaped(Box<str>),
    Tuple(Box<[Id]>),
    List(Vec<Id>),
    Set(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A function, class or constant, and the index of its name.
    Global(Kind, u32),
    /// A call of a global that is not executed. `state` is the operand of `BUILD`.
    Call {
        callable: Id,
        args: Id,
        state: Id,
    },
    /// An object that is stored outside of the pickle, by its key.
    Persistent(Id),
}

impl Pickle {
    pub(super) fn node(&self, id: Id) -> &Node {
        // Ids are made by the machine alone, one for each node.
        &self.nodes[id.0 as usize]
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        (0..self.nodes.len() as u32).map(Id)
    }

    pub(super) fn slice(&self, span: Span) -> &[u8] {
        self.bytes.as_slice().get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Returns the text of a node: a string, or bytes that are UTF-8, as in pickles of Python 2.
    pub(super) fn text(&self, id: Id) -> Option<&str> {
        match self.node(id) {
            Node::Text(span) | Node::Bytes(span) => std::str::from_utf8(self.slice(*span)).ok(),
            Node::Unescaped(text) => Some(text),
            Node::None
            | Node::Bool(_)
            | Node::Int(_)
            | Node::LargeInt(_)
            | Node::Float(_)
            | Node::Tuple(_)
            | Node::List(_)
            | Node::Set(_)
            | Node::Dict(_)
            | Node::Global(..)
            | Node::Call { .. }
            | Node::Persistent(_) => None,
        }
    }

    /// Returns text of at most [`MAX_SHORT`] bytes. Unlike [`text`](Pickle::text), it takes constant time.
    pub(super) fn short_text(&self, id: Id) -> Option<&str> {
        if let Node::Text(span) | Node::Bytes(span) = self.node(id)
            && span.end - span.start > MAX_SHORT
        {
            return None;
        }
        self.text(id)
    }

    pub(super) fn int(&self, id: Id) -> Option<i64> {
        if let Node::Int(number) = self.node(id) { Some(*number) } else { None }
    }

    /// Returns a length, an offset or a count.
    pub(super) fn count(&self, id: Id) -> Option<u64> {
        self.int(id).and_then(|number| u64::try_from(number).ok())
    }

    /// Returns the items of a dict; `None` for other values.
    pub(super) fn dict(&self, id: Id) -> Option<&[(Id, Id)]> {
        if let Node::Dict(items) = self.node(id) { Some(items) } else { None }
    }

    /// Returns the elements of a list, tuple or set, or of a call that makes one, such as `torch.Size`.
    pub(super) fn elements(&self, id: Id) -> Option<&[Id]> {
        let id = match self.call(id) {
            Some((Kind::Sequence, args)) => self.elements_of_node(args)?.first().copied().unwrap_or(args),
            Some(_) | None => id,
        };
        self.elements_of_node(id)
    }

    fn elements_of_node(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::Tuple(elements) => Some(elements),
            Node::List(elements) | Node::Set(elements) => Some(elements),
            Node::None
            | Node::Bool(_)
            | Node::Int(_)
            | Node::LargeInt(_)
            | Node::Float(_)
            | Node::Text(_)
            | Node::Bytes(_)
            | Node::Unescaped(_)
            | Node::Dict(_)
            | Node::Global(..)
            | Node::Call { .. }
            | Node::Persistent(_) => None,
        }
    }

    /// Returns the kind of the callable of a call, and the node of the arguments.
    pub(super) fn call(&self, id: Id) -> Option<(Kind, Id)> {
        let Node::Call { callable, args, .. } = self.node(id) else { return None };
        Some((self.global(*callable)?, *args))
    }

    /// Returns the state that was set on a call, or the node of `None`.
    pub(super) fn state(&self, id: Id) -> Id {
        if let Node::Call { state, .. } = self.node(id) { *state } else { Id::NONE }
    }

    pub(super) fn global(&self, id: Id) -> Option<Kind> {
        if let Node::Global(kind, _) = self.node(id) { Some(*kind) } else { None }
    }

    /// Returns the full name of a global, or of the callable of a call.
    pub(super) fn global_name(&self, id: Id) -> Option<&str> {
        let id = if let Node::Call { callable, .. } = self.node(id) { *callable } else { id };
        let Node::Global(_, name) = self.node(id) else { return None };
        self.names.get(*name as usize).map(String::as_str)
    }

    /// Returns the error of a node that violates the format.
    pub(super) fn malformed(&self, id: Id, problem: impl Into<String>) -> StoreError {
        let at = self.offsets.get(id.0 as usize).copied().unwrap_or_default();
        self.origin.malformed(u64::from(at), problem)
    }

    /// Returns the file offset of a node's opcode; that of the entry if the pickle is compressed.
    pub(super) fn file_offset(&self, id: Id) -> u64 {
        let at = self.offsets.get(id.0 as usize).copied().unwrap_or_default();
        self.origin.file_offset(u64::from(at))
    }
}

/// The place of a pickle, for messages.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    path: PathBuf,
    /// File offset of the first byte.
    start: u64,
    /// The entry of the archive that contains the pickle.
    entry: Option<String>,
    /// Whether the entry is compressed, so that offsets in it are not file offsets.
    compressed: bool,
}

impl Origin {
    pub(super) fn file(path: &Path, start: u64) -> Origin {
        Origin { path: path.to_owned(), start, entry: None, compressed: false }
    }

    pub(super) fn entry(path: &Path, start: u64, entry: &str, compressed: bool) -> Origin {
        Origin { path: path.to_owned(), start, entry: Some(entry.to_owned()), compressed }
    }

    fn file_offset(&self, at: u64) -> u64 {
        if self.compressed { self.start } else { self.start + at }
    }

    fn malformed(&self, at: u64, problem: impl Into<String>) -> StoreError {
        let problem = problem.into();
        let problem = match &self.entry {
            Some(entry) if self.compressed => format!("entry `{entry}`, decompressed byte {at}: {problem}"),
            Some(entry) => format!("entry `{entry}`: {problem}"),
            None => problem,
        };
        StoreError::malformed(&self.path, self.file_offset(at), problem)
    }
}
