//! The nested dicts, lists and objects of a pickle: dotted names of tensors, and plain values.

use std::collections::HashMap;
use std::path::Path;

use super::objects::{Object, Objects, Place, bytes_of, numpy_dtype};
use super::pickle::globals::Kind;
use super::pickle::{Id, Node};
use super::storage::latin1;
use super::value::PickleValue;
use crate::error::{Result, StoreError};

/// Limit on the nesting of values that are listed.
const MAX_DEPTH: usize = 100;

/// Number of arguments that are searched for the items of a container.
const MAX_ARGUMENTS: usize = 4;

/// Cost of a tensor in a list, in units of [`Budget`]: about the bytes that it takes.
const TENSOR_COST: usize = 512;

/// Cost of a converted value.
const VALUE_COST: usize = 32;

/// The name of a tensor that is the whole file.
const SINGLE: &str = "tensor";

/// A tensor with its dotted name.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) object: Object,
}

/// The place of a value in its container.
#[derive(Clone, Copy)]
enum Key {
    /// The key of a dict, or the name of an attribute.
    Node(Id, usize),
    Index(usize),
    /// The container adds nothing to the name.
    Same,
}

/// Work that walking the values may do: values may be shared, so that a small pickle can have very many names.
struct Budget {
    left: u64,
}

impl Budget {
    /// In proportion to the length of the pickle. Values that are not shared never use it up.
    fn of(objects: &Objects<'_>) -> Budget {
        Budget { left: (1 << 16) + 64 * objects.pickle.length }
    }

    fn spend(&mut self, objects: &Objects<'_>, id: Id, amount: usize) -> Result<()> {
        match self.left.checked_sub(amount as u64) {
            Some(left) => self.left = left,
            None => {
                let problem = "the values are nested and shared so that listing them takes too long";
                return Err(objects.pickle.malformed(id, problem));
            }
        }
        Ok(())
    }
}

/// Lists the tensors of a value with dotted names.
pub(super) fn tensors(objects: Objects<'_>, root: Id) -> Result<Vec<Entry>> {
    let budget = Budget::of(&objects);
    let mut walk = Walk { objects, budget, path: Vec::new(), name: String::new(), entries: Vec::new() };
    walk.visit(root)?;
    if let [entry] = walk.entries.as_mut_slice()
        && entry.name.is_empty()
    {
        SINGLE.clone_into(&mut entry.name);
    }
    Ok(walk.entries)
}

struct Walk<'a> {
    objects: Objects<'a>,
    budget: Budget,
    /// The containers of the current value.
    path: Vec<Id>,
    name: String,
    entries: Vec<Entry>,
}

impl Walk<'_> {
    fn visit(&mut self, id: Id) -> Result<()> {
        self.budget.spend(&self.objects, id, 1)?;
        if let Some(object) = self.objects.tensor(id)? {
            self.budget.spend(&self.objects, id, TENSOR_COST + self.name.len())?;
            self.entries.push(Entry { name: self.name.clone(), object });
            return Ok(());
        }
        let Some(children) = children(&self.objects, id, &mut self.budget)? else { return Ok(()) };
        // A value that contains itself is listed once.
        if self.path.contains(&id) {
            return Ok(());
        }
        if self.path.len() == MAX_DEPTH {
            let problem = format!("the values are nested deeper than the {MAX_DEPTH} allowed");
            return Err(self.objects.pickle.malformed(id, problem));
        }
        self.path.push(id);
        for (key, child) in children {
            let length = self.name.len();
            push_key(&self.objects, key, &mut self.name);
            self.budget.spend(&self.objects, id, self.name.len() - length)?;
            self.visit(child)?;
            self.name.truncate(length);
        }
        self.path.pop();
        Ok(())
    }
}

/// Appends a key to a dotted name.
fn push_key(objects: &Objects<'_>, key: Key, name: &mut String) {
    if matches!(key, Key::Same) {
        return;
    }
    if !name.is_empty() {
        name.push('.');
    }
    match key {
        Key::Node(id, place) => match plain(objects, id).and_then(PickleValue::into_text) {
            Some(text) => name.push_str(&text),
            // Other keys, such as tuples and classes, are named by their place in the dict.
            None => name.push_str(&place.to_string()),
        },
        Key::Index(index) => name.push_str(&index.to_string()),
        Key::Same => {}
    }
}

/// Returns the values in a container, with their keys; `None` for other values.
fn children(objects: &Objects<'_>, id: Id, budget: &mut Budget) -> Result<Option<Vec<(Key, Id)>>> {
    let pickle = objects.pickle;
    let items = |items: &[(Id, Id)]| -> Vec<(Key, Id)> {
        items.iter().enumerate().map(|(place, &(key, value))| (Key::Node(key, place), value)).collect()
    };
    if let Some(elements) = pickle.elements(id) {
        budget.spend(objects, id, elements.len())?;
        let elements = elements.iter().enumerate();
        return Ok(Some(elements.map(|(index, &element)| (Key::Index(index), element)).collect()));
    }
    if let Some(pairs) = pickle.dict(id) {
        budget.spend(objects, id, pairs.len())?;
        return Ok(Some(items(pairs)));
    }
    let Some((kind, args)) = pickle.call(id) else { return Ok(None) };
    let first = pickle.elements(args).and_then(|args| args.first().copied());
    match (kind, first) {
        (Kind::Wrapper, Some(inner)) => Ok(Some(vec![(Key::Same, inner)])),
        (Kind::List, Some(inner)) => Ok(Some(vec![(Key::Same, inner)])),
        (Kind::Dict, _) => {
            // `OrderedDict([[key, value], ...])` of Python 2, `defaultdict(factory, {...})`.
            let args = pickle.elements(args).unwrap_or_default();
            let args = &args[..args.len().min(MAX_ARGUMENTS)];
            if let Some(pairs) = args.iter().find_map(|&arg| pickle.dict(arg)) {
                budget.spend(objects, id, pairs.len())?;
                return Ok(Some(items(pairs)));
            }
            let list = args.iter().find_map(|&arg| pickle.elements(arg)).unwrap_or_default();
            budget.spend(objects, id, list.len())?;
            let pair = |(place, &pair)| match pickle.elements(pair) {
                Some(&[key, value]) => Some((Key::Node(key, place), value)),
                Some(_) | None => None,
            };
            Ok(Some(list.iter().enumerate().filter_map(pair).collect()))
        }
        (Kind::Class, _) => {
            let attributes = attributes(objects, id);
            let count = attributes.iter().map(|part| part.len()).sum();
            budget.spend(objects, id, count)?;
            Ok(Some(
                module(objects, &attributes)
                    .unwrap_or_else(|| attributes.iter().flat_map(|&part| items(part)).collect()),
            ))
        }
        _ => Ok(None),
    }
}

/// Returns the attributes of an object: of its `__dict__` and of its slots.
fn attributes<'a>(objects: &Objects<'a>, id: Id) -> Vec<&'a [(Id, Id)]> {
    let state = objects.pickle.state(id);
    match objects.pickle.dict(state) {
        Some(attributes) => vec![attributes],
        None => {
            let parts = objects.pickle.elements(state).unwrap_or_default();
            parts.iter().take(2).filter_map(|&part| objects.pickle.dict(part)).collect()
        }
    }
}

/// Returns the parameters, buffers and modules of a `torch.nn.Module`, named as in its state dict; `None` for other
/// objects.
fn module(objects: &Objects<'_>, attributes: &[&[(Id, Id)]]) -> Option<Vec<(Key, Id)>> {
    let find = |name: &str| {
        let mut items = attributes.iter().flat_map(|part| part.iter());
        items
            .find(|(key, _)| objects.pickle.short_text(*key) == Some(name))
            .map(|&(_, value)| (Key::Same, value))
    };
    let modules = find("_modules")?;
    Some(["_parameters", "_buffers"].into_iter().filter_map(find).chain([modules]).collect())
}

/// Finds a value by its dotted path.
pub(super) fn find(objects: Objects<'_>, root: Id, path: &str) -> Result<Option<Id>> {
    let mut budget = Budget::of(&objects);
    find_below(&objects, root, path, 0, &mut budget)
}

fn find_below(
    objects: &Objects<'_>,
    id: Id,
    path: &str,
    depth: usize,
    budget: &mut Budget,
) -> Result<Option<Id>> {
    if depth > MAX_DEPTH || objects.tensor(id)?.is_some() {
        return Ok(None);
    }
    let mut name = String::new();
    for (key, child) in children(objects, id, budget)?.unwrap_or_default() {
        name.clear();
        push_key(objects, key, &mut name);
        budget.spend(objects, id, name.len() + 1)?;
        if matches!(key, Key::Same) {
            if let Some(found) = find_below(objects, child, path, depth + 1, budget)? {
                return Ok(Some(found));
            }
            continue;
        }
        let Some(rest) = path.strip_prefix(name.as_str()) else { continue };
        if rest.is_empty() {
            return Ok(Some(child));
        }
        if let Some(rest) = rest.strip_prefix('.')
            && let Some(found) = find_below(objects, child, rest, depth + 1, budget)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the keys of a dict, or the names of the attributes of an object, in their order.
pub(super) fn keys(objects: Objects<'_>, root: Id) -> Result<Vec<(String, Id)>> {
    let mut budget = Budget::of(&objects);
    let mut names = Vec::new();
    if objects.tensor(root)?.is_some() {
        return Ok(names);
    }
    for (key, child) in children(&objects, root, &mut budget)?.unwrap_or_default() {
        let mut name = String::new();
        push_key(&objects, key, &mut name);
        budget.spend(&objects, root, name.len())?;
        names.push((name, child));
    }
    Ok(names)
}

/// Returns whether a value is a tensor.
pub(super) fn is_tensor(objects: &Objects<'_>, id: Id) -> bool {
    matches!(objects.tensor(id), Ok(Some(_)))
}

/// Converts a value to plain data.
pub(super) fn value(objects: Objects<'_>, root: Id) -> Result<PickleValue> {
    let budget = Budget::of(&objects);
    Conversion { objects, budget, path: Vec::new() }.value(root)
}

/// Converts a number, string or bool; `None` for other values.
pub(super) fn plain(objects: &Objects<'_>, id: Id) -> Option<PickleValue> {
    let node = objects.pickle.node(id);
    if let Node::Bool(value) = node {
        return Some(PickleValue::Bool(*value));
    }
    if let Node::Int(number) = node {
        return Some(PickleValue::Int(*number));
    }
    if let Node::Float(number) = node {
        return Some(PickleValue::Float(*number));
    }
    objects.pickle.text(id).map(|text| PickleValue::Text(text.to_owned()))
}

struct Conversion<'a> {
    objects: Objects<'a>,
    budget: Budget,
    path: Vec<Id>,
}

impl Conversion<'_> {
    fn value(&mut self, id: Id) -> Result<PickleValue> {
        self.budget.spend(&self.objects, id, VALUE_COST)?;
        let pickle = self.objects.pickle;
        match pickle.node(id) {
            Node::None => return Ok(PickleValue::None),
            Node::Bool(value) => return Ok(PickleValue::Bool(*value)),
            Node::Int(number) => return Ok(PickleValue::Int(*number)),
            Node::Float(number) => return Ok(PickleValue::Float(*number)),
            Node::LargeInt(_) => return Ok(PickleValue::Other("int of more than 64 bits".to_owned())),
            Node::Global(..) => return Ok(PickleValue::Other(self.class(id))),
            Node::Persistent(_) if !is_tensor(&self.objects, id) => {
                return Ok(PickleValue::Other("storage".to_owned()));
            }
            Node::Text(_)
            | Node::Bytes(_)
            | Node::Unescaped(_)
            | Node::Tuple(_)
            | Node::List(_)
            | Node::Set(_)
            | Node::Dict(_)
            | Node::Call { .. }
            | Node::Persistent(_) => {}
        }
        if let Some(text) = pickle.text(id) {
            self.budget.spend(&self.objects, id, text.len())?;
            return Ok(PickleValue::Text(text.to_owned()));
        }
        if let Some(place) = bytes_of(pickle, id) {
            return self.bytes(id, place);
        }
        if self.objects.tensor(id)?.is_some() {
            return Ok(PickleValue::Other("tensor".to_owned()));
        }
        if let Some((Kind::NumpyScalar, args)) = pickle.call(id) {
            return self.scalar(id, args);
        }
        self.container(id)
    }

    fn class(&self, id: Id) -> String {
        self.objects.pickle.global_name(id).unwrap_or("object").to_owned()
    }

    fn bytes(&mut self, id: Id, place: Place) -> Result<PickleValue> {
        let pickle = self.objects.pickle;
        let bytes = match place {
            Place::Pickle(span) => pickle.slice(span).to_vec(),
            Place::Latin1(span) => match latin1(pickle.slice(span)) {
                Some(bytes) => bytes,
                None => return Ok(PickleValue::Other("bytes".to_owned())),
            },
            Place::Storage(_) => Vec::new(),
        };
        self.budget.spend(&self.objects, id, bytes.len())?;
        Ok(PickleValue::Bytes(bytes))
    }

    /// A number of NumPy: dtype and bytes.
    fn scalar(&mut self, id: Id, args: Id) -> Result<PickleValue> {
        let pickle = self.objects.pickle;
        let other = PickleValue::Other("numpy scalar".to_owned());
        let Some(&[dtype, data]) = pickle.elements(args) else { return Ok(other) };
        let (Some((element, big_endian)), Some(place)) = (numpy_dtype(pickle, dtype), bytes_of(pickle, data))
        else {
            return Ok(other);
        };
        let PickleValue::Bytes(mut bytes) = self.bytes(id, place)? else { return Ok(other) };
        if big_endian {
            bytes.reverse();
        }
        Ok(PickleValue::of_element(element.torch, &bytes).unwrap_or(other))
    }

    fn container(&mut self, id: Id) -> Result<PickleValue> {
        let Some(children) = children(&self.objects, id, &mut self.budget)? else {
            return Ok(PickleValue::Other(self.class(id)));
        };
        if self.path.contains(&id) {
            return Ok(PickleValue::Other("a value that contains itself".to_owned()));
        }
        if self.path.len() == MAX_DEPTH {
            let problem = format!("the values are nested deeper than the {MAX_DEPTH} allowed");
            return Err(self.objects.pickle.malformed(id, problem));
        }
        self.path.push(id);
        let value = match children.as_slice() {
            [(Key::Same, inner)] => self.value(*inner)?,
            _ => self.collected(id, &children)?,
        };
        self.path.pop();
        Ok(value)
    }

    fn collected(&mut self, id: Id, children: &[(Key, Id)]) -> Result<PickleValue> {
        let is_list = self.objects.pickle.elements(id).is_some();
        if is_list {
            let values: Result<_> = children.iter().map(|&(_, child)| self.value(child)).collect();
            return Ok(PickleValue::List(values?));
        }
        let mut items = Vec::with_capacity(children.len());
        for &(key, child) in children {
            let key = match key {
                Key::Node(key, _) => self.value(key)?,
                Key::Index(_) | Key::Same => PickleValue::None,
            };
            items.push((key, self.value(child)?));
        }
        match self.objects.pickle.call(id) {
            Some((Kind::Class, _)) => Ok(PickleValue::Object { class: self.class(id), attributes: items }),
            Some(_) | None => Ok(PickleValue::Dict(items)),
        }
    }
}

/// Returns the index of each name.
///
/// # Errors
/// [`StoreError::Duplicate`] when two tensors have the same name.
pub(super) fn index(path: &Path, entries: &[Entry]) -> Result<HashMap<String, usize>> {
    let mut index = HashMap::with_capacity(entries.len());
    for (place, entry) in entries.iter().enumerate() {
        if index.insert(entry.name.clone(), place).is_some() {
            return Err(StoreError::Duplicate { file: path.to_owned(), name: entry.name.clone() });
        }
    }
    Ok(index)
}
