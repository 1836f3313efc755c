//! The table of workloads, `bench/workloads.txt`, which tells what its columns mean.

use crate::random::Random;
use crate::{Result, failed, unknown};
use std::sync::LazyLock;

/// The comparisons whose workloads run on the CPU.
pub const ON_CPU: &[&str] = &["cpu", "models", "extra"];
/// The comparisons whose workloads run on GPUs.
pub const ON_GPU: &[&str] = &["gpu", "vulkan", "extra"];

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let lines = include_str!("../../workloads.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).skip(1);
    lines
        .map(|line| Row::parse(line).unwrap_or_else(|| panic!("not a row of workloads.txt: {line}")))
        .collect()
});

/// One workload.
#[derive(Debug)]
pub struct Row {
    bench: &'static str,
    /// The name for peers.
    pub name: &'static str,
    /// The work of a repeat. Of a first step: the workload of which it is the first.
    pub operation: &'static str,
    settings: &'static str,
    /// The type of the numbers: `f32`, `bf16`, `mixed` and others.
    pub dtype: &'static str,
    /// Operations of a repeat, which amortize the device synchronization.
    pub rounds: usize,
    peers: &'static str,
    /// The kind of workload.
    pub kind: Kind,
    /// Floating-point operations of one operation, in millions; 0 where they are not meaningful.
    pub megaflops: f64,
    /// Bytes of operands and results, in millions: the minimum memory traffic. 0 where it is not meaningful.
    pub megabytes: f64,
    /// Items processed by one repeat, with their name: 16384 tokens.
    pub items: Option<(f64, &'static str)>,
    /// The target for Kiln.
    pub must: Must,
    /// Sizes, as text.
    pub shape: &'static str,
}

/// A target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Must {
    /// The time of the best peer divided by Kiln's.
    Ratio(f64),
    /// The time of the peer with that name divided by Kiln's.
    RatioTo(&'static str, f64),
    /// Maximum seconds per repeat.
    Seconds(f64),
    /// Maximum nanoseconds per operation.
    Nanoseconds(f64),
}

/// The kind of a workload, which determines how it is measured and shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Matmuls and convolutions: shown as a fraction of the machine's limit.
    Contraction,
    /// Other repeated workloads.
    Plain,
    /// Training steps: the loss must fall, and memory is measured.
    Training,
    /// Inference by a model from a file; memory is measured.
    Model,
    /// The cost of one operation, shown in nanoseconds.
    Overhead,
    /// Loading of the weight file.
    Load,
    /// The first repeat of a new process, including compilation.
    FirstStep,
}

/// The workloads of a comparison, in the order they run.
pub fn of(bench: &str) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.bench == bench)
}

/// The workload with that name in one of the comparisons.
///
/// # Errors
/// When there is none.
pub fn find(benches: &[&str], name: &str) -> Result<&'static Row> {
    let found = ROWS.iter().find(|row| row.name == name && benches.contains(&row.bench));
    found.ok_or_else(|| unknown(name))
}

/// The workloads of a comparison with these names, all if none is given. First steps are not chosen by name.
///
/// # Errors
/// When a name is unknown; the message lists the known ones.
pub fn select(bench: &str, names: &[&str]) -> std::result::Result<Vec<&'static Row>, String> {
    let rows: Vec<&Row> = of(bench).filter(|row| row.kind != Kind::FirstStep).collect();
    let known: Vec<&str> = rows.iter().map(|row| row.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!(
            "no workload is called `{unknown}`\n  hint: the workloads are {}",
            known.join(", ")
        ));
    }
    Ok(rows.into_iter().filter(|row| names.is_empty() || names.contains(&row.name)).collect())
}

impl Row {
    fn parse(line: &'static str) -> Option<Row> {
        let mut cells = line.split(" | ");
        let mut next = || cells.next();
        let millions = |cell: &str| if cell == "-" { Some(0.0) } else { cell.parse().ok() };
        Some(Row {
            bench: next()?,
            name: next()?,
            operation: next()?,
            settings: next()?,
            dtype: next()?,
            rounds: next()?.parse().ok()?,
            peers: next()?,
            kind: Kind::parse(next()?)?,
            megaflops: millions(next()?)?,
            megabytes: millions(next()?)?,
            items: match next()?.split_once(' ') {
                Some((count, name)) => Some((count.parse().ok()?, name)),
                None => None,
            },
            must: Must::parse(next()?)?,
            shape: next()?,
        })
    }

    /// Whether the peer with that name has the workload. Kiln has all.
    pub fn has(&self, peer: &str) -> bool {
        peer == "kiln" || self.peers.split(' ').any(|known| known == peer)
    }

    /// The text of a setting.
    ///
    /// # Errors
    /// When the row has no setting with that name, as for the other accessors.
    pub fn text(&self, name: &str) -> Result<&'static str> {
        let mut settings = self.settings.split(' ').filter_map(|setting| setting.split_once('='));
        let found = settings.find(|(known, _)| *known == name).map(|(_, text)| text);
        found.ok_or_else(|| failed(format!("{} has no setting {name}", self.name)))
    }

    /// A number.
    ///
    /// # Errors
    /// When it is missing or no number.
    pub fn number(&self, name: &str) -> Result<f64> {
        Ok(self.text(name)?.parse()?)
    }

    /// A size.
    ///
    /// # Errors
    /// When it is missing or no whole number.
    pub fn size(&self, name: &str) -> Result<usize> {
        Ok(self.text(name)?.parse()?)
    }

    /// Sizes such as `64x64x3x3`.
    ///
    /// # Errors
    /// When they are missing, or their number is not `D`.
    pub fn sizes<const D: usize>(&self, name: &str) -> Result<[usize; D]> {
        let sizes: Vec<usize> =
            self.text(name)?.split('x').map(str::parse).collect::<std::result::Result<_, _>>()?;
        sizes.try_into().map_err(|_| failed(format!("{name} of {} does not have {D} sizes", self.name)))
    }

    /// The sizes of a language model and its training.
    ///
    /// # Errors
    /// When one is missing.
    pub fn language(&self) -> Result<Language> {
        Ok(Language {
            batch: self.size("batch")?,
            length: self.size("length")?,
            vocabulary: self.size("vocabulary")?,
            width: self.size("width")?,
            heads: self.size("heads")?,
            feed_forward: self.size("feed_forward")?,
            layers: self.size("layers")?,
            learning_rate: self.number("learning_rate")?,
            weight_decay: self.number("weight_decay")?,
        })
    }
}

/// Sizes of a causal language model with pre-norm layers, and of its training by AdamW.
#[derive(Debug, Clone, Copy)]
pub struct Language {
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens in a sequence.
    pub length: usize,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Width of the model.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// Layers.
    pub layers: usize,
    /// Learning rate.
    pub learning_rate: f64,
    /// Weight decay.
    pub weight_decay: f64,
}

impl Language {
    /// Random input tokens and targets of a batch.
    pub fn tokens(&self) -> [Vec<i32>; 2] {
        let mut random = Random::new(5);
        [(); 2].map(|()| random.integers(self.batch * self.length, self.vocabulary))
    }
}

impl Kind {
    fn parse(text: &str) -> Option<Kind> {
        Some(match text {
            "contraction" => Kind::Contraction,
            "plain" => Kind::Plain,
            "training" => Kind::Training,
            "model" => Kind::Model,
            "overhead" => Kind::Overhead,
            "load" => Kind::Load,
            "first-step" => Kind::FirstStep,
            _ => return None,
        })
    }
}

impl Must {
    /// Parses `1.0`, `0.85 of torch`, `≤ 10 s` or `≤ 80 ns`.
    fn parse(text: &'static str) -> Option<Must> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words[..] {
            [least] => Must::Ratio(least.parse().ok()?),
            [least, "of", peer] => Must::RatioTo(peer, least.parse().ok()?),
            ["≤", most, "s"] => Must::Seconds(most.parse().ok()?),
            ["≤", most, "ns"] => Must::Nanoseconds(most.parse().ok()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_sizes_and_numbers() {
        let conv = find(ON_CPU, "convdw3x3").unwrap();
        assert_eq!(conv.sizes("weight").unwrap(), [128, 1, 3, 3]);
        assert_eq!(conv.size("groups").unwrap(), 128);
        assert!(conv.sizes::<2>("weight").is_err() && conv.size("batch").is_err());
        assert!(conv.has("kiln") && conv.has("candle") && !conv.has("onnxruntime"));
        let language = find(ON_CPU, "transformer_train_step").unwrap().language().unwrap();
        assert_eq!((language.heads, language.learning_rate), (8, 3e-4));
        assert!(find(ON_GPU, "convdw3x3").is_err());
    }

    #[test]
    fn malformed_rows_are_refused() {
        let row = "cpu | a | b | - | f32 | 1 | - | plain | - | - | 2 images | 1.0 | c";
        assert_eq!(Row::parse(row).unwrap().items, Some((2.0, "images")));
        assert!(Row::parse("cpu | a | b | - | f32 | 1 | - | odd | - | - | - | 1.0 | c").is_none());
        assert!(Row::parse("cpu | a").is_none());
    }
}
