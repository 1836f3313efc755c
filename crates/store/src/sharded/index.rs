//! The index of a sharded checkpoint: a JSON object with the name of the file of each tensor.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::error::{Result, StoreError};
use crate::header::error_offset;
use crate::stand_in;

/// Limit on the length of an index in bytes, as for the header of a safetensors file.
const MAX_INDEX_BYTES: u64 = 100_000_000;

/// A parsed index.
#[derive(Debug, PartialEq)]
pub(super) struct Index {
    /// Values as text.
    pub(super) metadata: BTreeMap<String, String>,
    /// The name of the file, by the name of the tensor.
    pub(super) weight_map: BTreeMap<String, String>,
}

impl Index {
    pub(super) fn read(path: &Path) -> Result<Index> {
        let failed = |source| StoreError::io(path, "read", source);
        let mut text = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(MAX_INDEX_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_INDEX_BYTES {
            let problem = format!("the index is longer than the {MAX_INDEX_BYTES} bytes allowed");
            return Err(StoreError::malformed(path, MAX_INDEX_BYTES, problem));
        }
        stand_in::refuse(path, &text)?;
        let parsed: Parsed = serde_json::from_slice(&text).map_err(|error| not_json(path, &text, &error))?;
        let metadata =
            parsed.metadata.unwrap_or_default().into_iter().map(|(key, value)| (key, printed(value)));
        Ok(Index { metadata: metadata.collect(), weight_map: parsed.weight_map.0 })
    }

    /// Returns the text of an index, as Hugging Face writes it.
    pub(super) fn print(total_size: u64, weight_map: &BTreeMap<String, String>) -> String {
        let index = json!({ "metadata": { "total_size": total_size }, "weight_map": weight_map });
        format!("{index:#}\n")
    }
}

#[derive(Deserialize)]
struct Parsed {
    #[serde(default)]
    metadata: Option<BTreeMap<String, Value>>,
    weight_map: WeightMap,
}

/// File names by tensor, without duplicate tensors.
struct WeightMap(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WeightMap, D::Error> {
        deserializer.deserialize_map(WeightMapVisitor)
    }
}

struct WeightMapVisitor;

impl<'de> Visitor<'de> for WeightMapVisitor {
    type Value = WeightMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from tensors to file names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
        let mut files = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            if files.contains_key(&name) {
                return Err(A::Error::custom(format_args!("duplicate tensor name `{name}`")));
            }
            files.insert(name, map.next_value()?);
        }
        Ok(WeightMap(files))
    }
}

fn printed(value: Value) -> String {
    if let Value::String(text) = value { text } else { value.to_string() }
}

fn not_json(file: &Path, text: &[u8], error: &serde_json::Error) -> StoreError {
    StoreError::malformed(file, error_offset(text, error), format!("the index is invalid: {error}"))
}
