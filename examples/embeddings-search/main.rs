//! Semantic search: finds the lines of a text file whose meaning is nearest to a query.
//!
//! ```sh
//! hf download sentence-transformers/all-MiniLM-L6-v2
//! cargo run --release --example embeddings-search --features models -- README.md "how do I use my GPU?"
//! ```
//!
//! MiniLM embeds each line and the query as vectors; their cosine similarity ranks the lines. Nothing is searched by
//! words: the query above finds lines about CUDA.

use clap::Parser;
use kiln::models::SentenceEncoder;
use kiln::prelude::*;
use kiln::store::hub;
use kiln::text::{BatchOptions, Tokenizer};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Finds the lines of a text file whose meaning is nearest to a query.
#[derive(Parser)]
#[command(name = "embeddings-search")]
struct Options {
    /// The text file.
    file: PathBuf,

    /// The query.
    query: String,

    /// Folder of a sentence encoder, or its name in the cache of the Hugging Face hub.
    #[arg(long, default_value = "sentence-transformers/all-MiniLM-L6-v2")]
    model: String,

    /// Number of lines to print.
    #[arg(long, default_value_t = 5)]
    top: usize,

    /// Number of lines that are embedded at once.
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
}

fn main() -> ExitCode {
    kiln_examples::run(|| search::<Cpu>(&Options::parse(), Default::default()))
}

fn search<B: Backend>(options: &Options, device: B::Device) -> Result<(), Box<dyn Error>> {
    let folder = hub::locate(&options.model)?;
    let encoder = Encoder::<B> {
        tokenizer: Tokenizer::from_folder(&folder)?,
        model: SentenceEncoder::from_pretrained(&folder, &device)?,
        device,
    };
    let text = std::fs::read_to_string(&options.file)
        .map_err(|error| format!("cannot read {}: {error}", options.file.display()))?;
    let lines: Vec<(usize, &str)> =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();

    let query = encoder.embed(&[options.query.as_str()])?; // [1, features]
    let mut ranked = Vec::with_capacity(lines.len());
    for batch in lines.chunks(options.batch_size.max(1)) {
        let texts: Vec<&str> = batch.iter().map(|(_, line)| *line).collect();
        // Embeddings have norm 1: their products are cosine similarities.
        let similarities = encoder.embed(&texts)?.matmul(query.clone().transpose()); // [batch, 1]
        ranked.extend(similarities.into_data().to_vec::<f32>().into_iter().zip(batch));
    }
    ranked.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    for (similarity, (index, line)) in ranked.into_iter().take(options.top) {
        println!("{similarity:.3}  {}: {}", index + 1, line.trim());
    }
    Ok(())
}

/// A sentence encoder with its tokenizer.
struct Encoder<B: Backend> {
    tokenizer: Tokenizer,
    model: SentenceEncoder<B>,
    device: B::Device,
}

impl<B: Backend> Encoder<B> {
    /// Returns the embeddings of texts, `[texts, features]`.
    fn embed(&self, texts: &[&str]) -> Result<Tensor<B, 2>, Box<dyn Error>> {
        let options = BatchOptions { max_length: Some(self.model.max_length), ..BatchOptions::default() };
        let batch = self.tokenizer.encode_batch(texts, &options)?;
        let lengths: Vec<i32> = batch.lengths().iter().map(|&length| length as i32).collect();
        let lengths = Tensor::from_data(lengths, &self.device);
        Ok(self.model.forward(batch.ids_tensor(&self.device)?, Some(lengths)))
    }
}
