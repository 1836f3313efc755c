//! The files of a repository that are downloaded.

use std::collections::BTreeSet;

use super::pattern;

/// Files of weights by format, the preferred format first: the whole file, the index of shards, and the pattern of
/// shards.
const FORMATS: [[&str; 3]; 2] = [
    ["model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"],
    ["pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"],
];
/// Patterns of configurations and tokenizers in the root of a repository.
const SMALL: [&str; 7] = [
    "*.json",
    "*.txt",
    "*.jinja",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "1_Pooling/config.json",
];

/// Returns the configurations, the tokenizer and one set of weights.
pub(super) fn model_files(names: &[String]) -> Result<Vec<String>, String> {
    let is_small = |name: &str| {
        SMALL.iter().any(|pattern| {
            pattern::matches(pattern, name) && name.matches('/').count() == pattern.matches('/').count()
        }) && !name.ends_with(".index.json")
    };
    let mut files: Vec<String> = names.iter().filter(|name| is_small(name)).cloned().collect();
    files.extend(weights(names)?);
    Ok(files)
}

fn weights(names: &[String]) -> Result<Vec<String>, String> {
    let has = |name: &str| names.iter().any(|found| found == name);
    for [whole, index, shards] in FORMATS {
        if has(whole) {
            return Ok(vec![whole.to_owned()]);
        }
        if has(index) {
            let shards = names.iter().filter(|name| pattern::matches(shards, name)).cloned();
            return Ok(std::iter::once(index.to_owned()).chain(shards).collect());
        }
    }
    for extension in [".safetensors", ".gguf", ".bin"] {
        let found: Vec<&String> =
            names.iter().filter(|name| name.ends_with(extension) && !name.contains('/')).collect();
        match found.as_slice() {
            [] => {}
            [name] => return Ok(vec![(*name).clone()]),
            several => {
                return Err(format!(
                    "has {} files of weights\n  hint: download one of them by its name: {}",
                    several.len(),
                    shown(several.iter().map(|name| name.as_str()))
                ));
            }
        }
    }
    Err(format!("has no weights that can be read; it has {}", shown(names.iter().map(String::as_str))))
}

/// Returns the files that match at least one pattern, in order. Each pattern must match a file.
pub(super) fn matching(patterns: &[&str], names: &[String]) -> Result<Vec<String>, String> {
    let mut files = BTreeSet::new();
    for pattern in patterns {
        let found: Vec<&String> = names.iter().filter(|name| pattern::matches(pattern, name)).collect();
        if found.is_empty() {
            let shown = shown(names.iter().map(String::as_str));
            return Err(format!("has no file that matches `{}`; it has {shown}", pattern.escape_debug()));
        }
        files.extend(found.into_iter().cloned());
    }
    Ok(files.into_iter().collect())
}

/// Lists at most ten names.
fn shown<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let listed: Vec<String> =
        names.iter().take(10).map(|name| format!("`{}`", name.escape_debug())).collect();
    match names.len() {
        0 => "no files".to_owned(),
        count if count > 10 => format!("{} and {} more", listed.join(", "), count - 10),
        _ => listed.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn one_format_of_weights_is_chosen() {
        let both = names(&[
            ".gitattributes",
            "config.json",
            "model.safetensors",
            "onnx/model.onnx",
            "pytorch_model.bin",
            "vocab.txt",
        ]);
        assert_eq!(model_files(&both).unwrap(), ["config.json", "vocab.txt", "model.safetensors"]);
        let sharded = names(&[
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "original/consolidated.00.pth",
        ]);
        let files = model_files(&sharded).unwrap();
        assert_eq!(files[1], "model.safetensors.index.json");
        assert_eq!(files.len(), 4);
        let gguf = names(&["README.md", "a.Q4_K_M.gguf", "a.Q8_0.gguf"]);
        let error = model_files(&gguf).unwrap_err();
        assert!(error.contains("`a.Q4_K_M.gguf`, `a.Q8_0.gguf`"), "{error}");
        assert_eq!(model_files(&gguf[..2]).unwrap(), ["a.Q4_K_M.gguf"]);
        assert!(model_files(&names(&["README.md"])).is_err());
    }

    #[test]
    fn each_pattern_matches() {
        let all = names(&["a.json", "b.json", "c.txt"]);
        assert_eq!(matching(&["*.json", "a*"], &all).unwrap(), ["a.json", "b.json"]);
        let error = matching(&["*.json", "*.bin"], &all).unwrap_err();
        assert!(error.contains("`*.bin`; it has `a.json`"), "{error}");
    }
}
