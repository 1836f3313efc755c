//! The tensors among the values of a pickle.

use kiln_tensor::{DType, MAX_RANK, Shape};

use super::element::Element;
use super::pickle::globals::Kind;
use super::pickle::{Id, Node, Pickle, Span};
use super::storage::{Storage, Storages};
use crate::error::Result;

/// Limit on calls around a tensor, such as `Parameter` of `_rebuild_from_type_v2` of a tensor.
const MAX_WRAPPERS: usize = 16;

/// A tensor in a pickle.
#[derive(Clone, Debug)]
pub(super) enum Object {
    Tensor(Layout),
    /// A tensor that is quantised, sparse or otherwise not an array of elements.
    Unsupported {
        kind: String,
        shape: Shape,
    },
}

/// The elements of a tensor: a view of a storage. It was checked to lie inside the storage.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) element: &'static Element,
    pub(super) shape: Shape,
    /// Strides in elements, as many as the shape has axes.
    pub(super) strides: Vec<u64>,
    pub(super) place: Place,
    /// Offset of the first element in the place, in bytes.
    pub(super) offset: u64,
    pub(super) big_endian: bool,
    /// Whether the tensor is the negative of its elements: the neg bit of PyTorch, which `x.conj().imag` has.
    pub(super) negated: bool,
    /// The elements after a cast.
    pub(super) cast: Option<&'static Element>,
    /// File offset of the tensor in the pickle, for messages.
    pub(super) at: u64,
}

/// The bytes that a tensor views.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The index of a storage.
    Storage(usize),
    /// Bytes of the pickle: an array of NumPy.
    Pickle(Span),
    /// Text of the pickle with a code point for each byte, as protocol 2 writes bytes.
    Latin1(Span),
}

impl Object {
    fn with_cast(mut self, cast: Option<&'static Element>) -> Object {
        if let Object::Tensor(layout) = &mut self {
            layout.cast = cast.filter(|&cast| cast != layout.element);
        }
        self
    }
}

impl Layout {
    /// The dtype of the tensor; `None` if it cannot be read.
    pub(super) fn dtype(&self) -> Option<DType> {
        let read = self.element.read_as()?;
        self.cast.map_or(Some(read), |cast| cast.dtype)
    }

    /// The name of the dtype of the tensor.
    pub(super) fn dtype_name(&self) -> &'static str {
        self.cast.unwrap_or(self.element).name
    }

    /// Returns whether the elements follow each other in row-major order.
    pub(super) fn is_contiguous(&self) -> bool {
        if self.shape.num_elements() == 0 {
            return true;
        }
        let mut expected = 1;
        for (&length, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if length != 1 && stride != expected {
                return false;
            }
            expected *= length as u64;
        }
        true
    }

    /// Returns the number of bytes of the elements. The view was checked, so this does not overflow.
    pub(super) fn num_bytes(&self) -> u64 {
        self.shape.num_elements() as u64 * self.element.bytes
    }
}

/// Finds tensors in a pickle.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) pickle: &'a Pickle,
    pub(super) storages: &'a Storages,
    /// The prefix of the keys of storages: `data/` or `constants/` in archives, otherwise empty.
    pub(super) folder: &'a str,
}

/// A storage, or a range of it.
struct StorageView {
    index: usize,
    /// The elements; `None` of an untyped storage.
    element: Option<&'static Element>,
    /// Offset in bytes.
    start: u64,
    bytes: u64,
}

impl<'a> Objects<'a> {
    /// Returns the tensor of a node; `None` if it is another value.
    ///
    /// # Errors
    /// When the tensor is damaged: its storage is missing or shorter than its view.
    pub(super) fn tensor(&self, mut id: Id) -> Result<Option<Object>> {
        let mut cast = None;
        for _ in 0..MAX_WRAPPERS {
            if let Node::Persistent(key) = self.pickle.node(id) {
                return self.tar_tensor(id, *key).map(|object| object.map(|object| object.with_cast(cast)));
            }
            let Some((mut kind, args)) = self.pickle.call(id) else { return Ok(None) };
            let mut args = self.args(args);
            if kind == Kind::RebuildFromType {
                let &[function, _, inner, ..] = args else { return self.damaged(id) };
                let Some(function) = self.pickle.global(function) else { return self.damaged(id) };
                (kind, args) = (function, self.args(inner));
            }
            match (kind, args) {
                (Kind::Wrapper, &[inner, ..]) => id = inner,
                (Kind::Cast, &[inner, dtype, ..]) => {
                    let Some(Kind::DType(element)) = self.pickle.global(dtype) else {
                        return self.damaged(id);
                    };
                    // The outermost cast is the last one.
                    cast = cast.or(Some(element));
                    id = inner;
                }
                (Kind::Cast, _) => return self.damaged(id),
                _ => {
                    let object = self.rebuilt(id, kind, args)?;
                    return Ok(object.map(|object| object.with_cast(cast)));
                }
            }
        }
        Ok(None)
    }

    fn args(&self, args: Id) -> &'a [Id] {
        if let Node::Tuple(values) = self.pickle.node(args) { values } else { &[] }
    }

    fn damaged<T>(&self, id: Id) -> Result<T> {
        Err(self.pickle.malformed(id, "the arguments of a tensor are damaged"))
    }

    fn rebuilt(&self, id: Id, kind: Kind, args: &[Id]) -> Result<Option<Object>> {
        match (kind, args) {
            // `requires_grad` and hooks of the gradient follow the strides.
            (Kind::RebuildTensor, &[storage, offset, shape, strides, ref rest @ ..]) => {
                let object = self.view(id, storage, [offset, shape, strides], None)?;
                self.with_metadata(id, object, rest.get(2).copied())
            }
            (Kind::RebuildTensorV3, &[storage, offset, shape, strides, _, _, dtype, ref rest @ ..]) => {
                let Some(Kind::DType(element)) = self.pickle.global(dtype) else { return self.damaged(id) };
                let object = self.view(id, storage, [offset, shape, strides], Some(element))?;
                self.with_metadata(id, object, rest.first().copied())
            }
            (Kind::RebuildTensor | Kind::RebuildTensorV3 | Kind::RebuildFromType, _) => self.damaged(id),
            (Kind::Tensor, _) => {
                let state = self.pickle.elements(self.pickle.state(id));
                let Some(&[storage, offset, shape, strides]) = state else { return Ok(None) };
                self.view(id, storage, [offset, shape, strides], None)
            }
            (Kind::Unsupported(kind), args) => self.unsupported(kind, args).map(Some),
            (Kind::NumpyArray, _) => {
                let state = self.pickle.elements(self.pickle.state(id));
                let Some(&[_, shape, dtype, fortran, data] | &[shape, dtype, fortran, data]) = state else {
                    return Ok(None);
                };
                let fortran = matches!(self.pickle.node(fortran), Node::Bool(true));
                self.numpy(id, shape, dtype, fortran, data)
            }
            (Kind::NumpyBuffer, &[data, dtype, shape, order]) => {
                self.numpy(id, shape, dtype, self.pickle.short_text(order) == Some("F"), data)
            }
            _ => Ok(None),
        }
    }

    /// Applies the metadata of a tensor: the dict of `torch._utils.get_tensor_metadata`, which has the keys `neg` and
    /// `conj` for the operations that PyTorch defers, and those of other devices.
    fn with_metadata(&self, id: Id, object: Option<Object>, metadata: Option<Id>) -> Result<Option<Object>> {
        let (mut layout, metadata) = match (object, metadata) {
            (Some(Object::Tensor(layout)), Some(metadata)) => (layout, metadata),
            (object, _) => return Ok(object),
        };
        for &(key, value) in self.metadata(id, metadata)? {
            let is_set = matches!(self.pickle.node(value), Node::Bool(true));
            match self.pickle.short_text(key) {
                Some("neg") if is_set && layout.element.torch != "bool" => layout.negated = true,
                // Complex elements cannot be read at all.
                Some("conj") if is_set && layout.element.name.starts_with('C') => {}
                Some(key) if !["neg", "conj"].contains(&key) => {
                    let kind = format!("{} with the metadata `{}`", layout.element.name, key.escape_debug());
                    return Ok(Some(Object::Unsupported { kind, shape: layout.shape }));
                }
                Some(_) | None => return self.damaged(id),
            }
        }
        Ok(Some(Object::Tensor(layout)))
    }

    fn metadata(&self, id: Id, mut metadata: Id) -> Result<&'a [(Id, Id)]> {
        // TorchScript tags dicts with their types.
        if let Some((Kind::Wrapper, args)) = self.pickle.call(metadata) {
            metadata = self.args(args).first().copied().unwrap_or(metadata);
        }
        match self.pickle.dict(metadata) {
            Some(items) => Ok(items),
            None if metadata == Id::NONE => Ok(&[]),
            None => self.damaged(id),
        }
    }

    /// A tensor whose elements are not an array; its shape is where its function has it.
    fn unsupported(&self, kind: &str, args: &[Id]) -> Result<Object> {
        let (mut kind, mut shape) = (kind.to_owned(), None);
        match (kind.as_str(), args) {
            ("quantised", &[storage, _, lengths, ..]) => {
                if let Some(StorageView { element: Some(element), .. }) = self.storage(storage)? {
                    kind = element.name.to_owned();
                }
                shape = self.shape(lengths);
            }
            ("sparse", &[_, data, ..]) => {
                let lengths = self.args(data).iter().rev().take(MAX_RANK).find_map(|&part| self.shape(part));
                shape = lengths;
            }
            ("meta", &[_, lengths, ..]) | ("wrapper subclass", &[_, _, lengths, ..]) => {
                shape = self.shape(lengths);
            }
            _ => {}
        }
        Ok(Object::Unsupported { kind, shape: shape.unwrap_or_default() })
    }

    /// Reads a shape; `None` if it is none or has too many axes.
    fn shape(&self, id: Id) -> Option<Shape> {
        let lengths = self.counts(id)?;
        let lengths: Option<Vec<usize>> =
            lengths.into_iter().map(|length| usize::try_from(length).ok()).collect();
        Some(Shape::new(lengths?))
    }

    /// Reads at most [`MAX_RANK`] numbers.
    fn counts(&self, id: Id) -> Option<Vec<u64>> {
        let elements = self.pickle.elements(id).filter(|elements| elements.len() <= MAX_RANK)?;
        elements.iter().map(|&element| self.pickle.count(element)).collect()
    }

    /// A strided view of a storage.
    fn view(
        &self,
        id: Id,
        storage: Id,
        [offset, shape, strides]: [Id; 3],
        dtype: Option<&'static Element>,
    ) -> Result<Option<Object>> {
        let Some(storage) = self.storage(storage)? else {
            return Err(self.pickle.malformed(id, "a tensor has no storage"));
        };
        let (Some(offset), Some(shape), Some(strides)) =
            (self.pickle.count(offset), self.shape(shape), self.counts(strides))
        else {
            let problem =
                format!("offset, shape or strides of a tensor are negative, or more than {MAX_RANK} axes");
            return Err(self.pickle.malformed(id, problem));
        };
        let Some(element) = dtype.or(storage.element) else {
            return Err(self.pickle.malformed(id, "a tensor of an untyped storage has no dtype"));
        };
        self.checked(id, &storage, element, offset, shape, strides).map(Some)
    }

    /// Checks that a view lies inside its storage.
    fn checked(
        &self,
        id: Id,
        storage: &StorageView,
        element: &'static Element,
        offset: u64,
        shape: Shape,
        strides: Vec<u64>,
    ) -> Result<Object> {
        if shape.rank() != strides.len() {
            let problem = format!("a tensor of shape {shape} has {} strides", strides.len());
            return Err(self.pickle.malformed(id, problem));
        }
        let count = shape.checked_num_elements().and_then(|count| (count as u64).checked_mul(element.bytes));
        let Some(count) = count else {
            return Err(self.pickle.malformed(id, format!("a tensor of shape {shape} is too large")));
        };
        if count > 0 {
            let last: u128 = shape
                .iter()
                .zip(&strides)
                .map(|(&length, &stride)| (length as u128 - 1).saturating_mul(u128::from(stride)))
                .fold(u128::from(offset), u128::saturating_add);
            let end = (last.saturating_add(1)).saturating_mul(u128::from(element.bytes));
            if end > u128::from(storage.bytes) {
                let key = &self.storages.get(storage.index).key;
                let problem = format!(
                    "a tensor of shape {shape}, strides {strides:?} and offset {offset} needs {end} bytes, but its \
                     storage `{}` has {}",
                    key.escape_debug(),
                    storage.bytes
                );
                return Err(self.pickle.malformed(id, problem));
            }
        }
        // An empty tensor may have any offset, since it reads nothing.
        let offset = if count == 0 { 0 } else { offset * element.bytes };
        Ok(Object::Tensor(Layout {
            element,
            shape,
            strides,
            place: Place::Storage(storage.index),
            offset: storage.start + offset,
            big_endian: self.storages.get(storage.index).big_endian,
            negated: false,
            cast: None,
            at: self.pickle.file_offset(id),
        }))
    }

    /// Returns the storage of a node; `None` if it is another value.
    fn storage(&self, id: Id) -> Result<Option<StorageView>> {
        let Node::Persistent(key) = self.pickle.node(id) else { return Ok(None) };
        if let Some(key) = self.key(*key) {
            // Archives in tar form have the number of the storage only.
            let Some((index, storage)) = self.find(&key) else { return Ok(None) };
            return Ok(Some(StorageView { index, element: storage.element, start: 0, bytes: storage.bytes }));
        }
        let Some(declared) = Declared::of(self.pickle, id) else {
            return Err(self.pickle.malformed(id, "the reference to a storage is damaged"));
        };
        let Some((index, storage)) = self.find(&declared.key) else {
            let problem = format!("the file does not contain the storage `{}`", declared.key.escape_debug());
            return Err(self.pickle.malformed(id, problem));
        };
        let size = declared.element.map_or(1, |element| element.bytes);
        let bytes = declared.count.checked_mul(size);
        let Some(bytes) = bytes.filter(|&bytes| bytes <= storage.bytes) else {
            let problem = format!(
                "storage `{}` has {} bytes, but {} elements of {size} bytes are declared",
                declared.key.escape_debug(),
                storage.bytes,
                declared.count
            );
            return Err(self.pickle.malformed(id, problem));
        };
        let whole = StorageView { index, element: declared.element, start: 0, bytes };
        let Some((start, count)) = declared.part else { return Ok(Some(whole)) };
        let range = start.checked_mul(size).zip(count.checked_mul(size));
        match range.filter(|&(start, count)| start.checked_add(count).is_some_and(|end| end <= bytes)) {
            Some((start, bytes)) => Ok(Some(StorageView { start, bytes, ..whole })),
            None => Err(self.pickle.malformed(id, "a view of a storage is out of its bounds")),
        }
    }

    fn find(&self, key: &str) -> Option<(usize, &'a Storage)> {
        let index = self.storages.index(self.folder, key)?;
        Some((index, self.storages.get(index)))
    }

    /// Returns the key of an object of a tar archive.
    fn key(&self, id: Id) -> Option<String> {
        self.pickle
            .int(id)
            .map(|number| number.to_string())
            .or_else(|| self.pickle.short_text(id).map(str::to_owned))
    }

    /// A tensor of an archive in tar form, by its number.
    fn tar_tensor(&self, id: Id, key: Id) -> Result<Option<Object>> {
        let Some(tensor) = self.key(key).and_then(|key| self.storages.tar_tensor(&key)) else {
            return Ok(None);
        };
        let storage = self.storages.get(tensor.storage);
        let Some(element) = storage.element else { return Ok(None) };
        let view =
            StorageView { index: tensor.storage, element: Some(element), start: 0, bytes: storage.bytes };
        self.checked(id, &view, element, tensor.offset, tensor.shape, tensor.strides.clone()).map(Some)
    }

    /// An array of NumPy; `None` for arrays of objects, strings and dates.
    fn numpy(&self, id: Id, shape: Id, dtype: Id, fortran: bool, data: Id) -> Result<Option<Object>> {
        let Some((element, big_endian)) = numpy_dtype(self.pickle, dtype) else { return Ok(None) };
        let (Some(shape), Some(place)) = (self.shape(shape), bytes_of(self.pickle, data)) else {
            return Ok(None);
        };
        let count = shape.checked_num_elements().and_then(|count| (count as u64).checked_mul(element.bytes));
        let fits = |count: u64| match place {
            Place::Pickle(span) => u64::from(span.end - span.start) == count,
            // Each code point below 256 has one or two bytes of UTF-8. Reading counts them.
            Place::Latin1(span) => {
                (count..=count.saturating_mul(2)).contains(&u64::from(span.end - span.start))
            }
            Place::Storage(_) => false,
        };
        if !count.is_some_and(fits) {
            let problem = format!("an array of shape {shape} does not have the bytes of its elements");
            return Err(self.pickle.malformed(id, problem));
        }
        let mut strides = vec![1; shape.rank()];
        let mut next = 1u64;
        for step in 0..shape.rank() {
            let axis = if fortran { step } else { shape.rank() - 1 - step };
            strides[axis] = next;
            next = next.saturating_mul(shape[axis] as u64);
        }
        let at = self.pickle.file_offset(id);
        Ok(Some(Object::Tensor(Layout {
            element,
            shape,
            strides,
            place,
            offset: 0,
            big_endian,
            negated: false,
            cast: None,
            at,
        })))
    }
}

/// A storage as a pickle declares it.
pub(super) struct Declared {
    pub(super) key: String,
    /// The elements; `None` of an untyped storage, whose elements are bytes.
    pub(super) element: Option<&'static Element>,
    /// Number of elements.
    pub(super) count: u64,
    /// Offset and length of a view, in elements.
    pub(super) part: Option<(u64, u64)>,
}

impl Declared {
    /// Reads `("storage", class, key, location, count)`, and a view as sixth element in legacy files.
    pub(super) fn of(pickle: &Pickle, id: Id) -> Option<Declared> {
        let Node::Persistent(reference) = pickle.node(id) else { return None };
        let Node::Tuple(values) = pickle.node(*reference) else { return None };
        let &[tag, class, key, _, count, ref rest @ ..] = &**values else { return None };
        if pickle.short_text(tag) != Some("storage") {
            return None;
        }
        let element = pickle.global(class)?.storage_element()?;
        let key = match pickle.int(key) {
            Some(number) => number.to_string(),
            None => pickle.short_text(key)?.to_owned(),
        };
        let part = match rest.first().filter(|&&view| view != Id::NONE) {
            Some(&view) => {
                let &[_, offset, length] = pickle.elements(view)? else { return None };
                Some((pickle.count(offset)?, pickle.count(length)?))
            }
            None => None,
        };
        Some(Declared { key, element, count: pickle.count(count)?, part })
    }
}

/// Returns the elements of a NumPy dtype and whether they are big-endian; `None` for other values and dtypes.
pub(super) fn numpy_dtype(pickle: &Pickle, id: Id) -> Option<(&'static Element, bool)> {
    let (Kind::NumpyDType, args) = pickle.call(id)? else { return None };
    let code = pickle.short_text(*pickle.elements(args)?.first()?)?;
    let order = pickle.elements(pickle.state(id)).and_then(|state| state.get(1).copied());
    let big_endian = order.and_then(|order| pickle.short_text(order)) == Some(">") || code.starts_with('>');
    Some((Element::of_numpy(code)?, big_endian))
}

/// Returns the bytes of a value: bytes, or text that protocol 2 encodes to bytes. They may be in calls, as in
/// `bytearray(encode(text, "latin-1"))`.
pub(super) fn bytes_of(pickle: &Pickle, mut id: Id) -> Option<Place> {
    for _ in 0..MAX_WRAPPERS {
        if let Node::Bytes(span) = pickle.node(id) {
            return Some(Place::Pickle(*span));
        }
        let (Kind::Encode, args) = pickle.call(id)? else { return None };
        id = *pickle.elements(args)?.first()?;
        if let Node::Text(span) = pickle.node(id) {
            return Some(Place::Latin1(*span));
        }
    }
    None
}
