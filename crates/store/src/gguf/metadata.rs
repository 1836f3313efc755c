//! The metadata of a GGUF file: typed values by key.

use std::collections::BTreeMap;

use super::metadata_type::{MetadataArray, MetadataValue};

/// The metadata of a GGUF file: values by key, in the order of the file.
///
/// The getters convert between widths: [`u64`](Metadata::u64) returns an integer of any width. They return `None` if
/// there is no such key or its value is of another kind.
///
/// ```
/// use kiln_store::gguf::Metadata;
///
/// let mut metadata = Metadata::new();
/// metadata.insert("general.architecture", "llama");
/// metadata.insert("llama.block_count", 30u32);
/// assert_eq!(metadata.str("general.architecture"), Some("llama"));
/// assert_eq!(metadata.u64("llama.block_count"), Some(30));
/// assert_eq!(metadata.u64("general.architecture"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, MetadataValue)>,
    /// Index into `entries` of each key.
    places: BTreeMap<String, usize>,
}

impl Metadata {
    /// Returns metadata without entries.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Sets a value. A key that exists keeps its position; the old value is returned.
    pub fn insert(
        &mut self,
        key: impl Into<String>,
        value: impl Into<MetadataValue>,
    ) -> Option<MetadataValue> {
        let (key, value) = (key.into(), value.into());
        if let Some(&place) = self.places.get(&key) {
            return Some(std::mem::replace(&mut self.entries[place].1, value));
        }
        self.places.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        None
    }

    /// Removes a value and returns it. The others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<MetadataValue> {
        let place = self.places.remove(key)?;
        self.places.values_mut().filter(|other| **other > place).for_each(|other| *other -= 1);
        Some(self.entries.remove(place).1)
    }

    /// Adds all entries of `other`. Its values replace those of equal keys.
    pub fn extend(&mut self, other: Metadata) {
        for (key, value) in other.entries {
            self.insert(key, value);
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.places.get(key).map(|&place| &self.entries[place].1)
    }

    /// Returns whether the key exists.
    pub fn contains(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Iterates over keys and values, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &MetadataValue)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns an integer of any width that is not negative.
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    /// Returns an integer of any width that fits `i64`.
    pub fn i64(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    /// Returns a float of any width, rounded to `f32`.
    pub fn f32(&self, key: &str) -> Option<f32> {
        self.get(key)?.as_f32()
    }

    /// Returns a float of any width. Of an `f32`, it is the shortest decimal number that rounds to it: `1e-5` and not
    /// `9.999999747378752e-06`.
    pub fn f64(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    /// Returns a boolean.
    pub fn bool(&self, key: &str) -> Option<bool> {
        if let MetadataValue::Bool(x) = self.get(key)? { Some(*x) } else { None }
    }

    /// Returns a string.
    pub fn str(&self, key: &str) -> Option<&str> {
        if let MetadataValue::String(x) = self.get(key)? { Some(x) } else { None }
    }

    /// Returns an array.
    pub fn array(&self, key: &str) -> Option<&MetadataArray> {
        if let MetadataValue::Array(x) = self.get(key)? { Some(x) } else { None }
    }

    /// Returns an array of strings.
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        if let MetadataArray::String(x) = self.array(key)? { Some(x) } else { None }
    }

    /// Returns an array of integers of any width that fit `i64`.
    pub fn integers(&self, key: &str) -> Option<Vec<i64>> {
        self.array(key)?.integers()
    }

    /// Returns an array of floats of any width, rounded to `f32`.
    pub fn floats(&self, key: &str) -> Option<Vec<f32>> {
        self.array(key)?.floats()
    }
}

impl MetadataValue {
    /// Returns an integer of any width that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        if let MetadataValue::U64(x) = *self { Some(x) } else { u64::try_from(self.as_i64()?).ok() }
    }
}
