//! A chat with a language model, in code. The command `kiln chat` does the same with more options.
//!
//! ```sh
//! hf download HuggingFaceTB/SmolLM2-135M-Instruct
//! cargo run --release --example chat --features models -- "Name three rivers." "Which is the longest?"
//! cargo run --release --example chat --features models -- --model model.gguf "Name three rivers."
//! ```

use clap::Parser;
use kiln::models::PretrainedLanguageModel;
use kiln::prelude::*;
use kiln::store::hub;
use kiln::text::GenerateConfig;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

/// Sends messages to a language model and prints its replies.
#[derive(Parser)]
#[command(name = "chat")]
struct Options {
    /// The messages, one for each turn.
    #[arg(required = true)]
    messages: Vec<String>,

    /// A GGUF file, a folder, or the name of a model in the cache of the Hugging Face hub.
    #[arg(long, default_value = "HuggingFaceTB/SmolLM2-135M-Instruct")]
    model: String,

    /// Maximum number of tokens of a reply.
    #[arg(long, default_value_t = 128)]
    max_tokens: usize,

    /// 0 replies with the most probable tokens.
    #[arg(long, default_value_t = 0.7)]
    temperature: f64,
}

fn main() -> ExitCode {
    kiln_examples::run(|| chat(&Options::parse()))
}

fn chat(options: &Options) -> Result<(), Box<dyn Error>> {
    let path = hub::locate(&options.model)?;
    let model = PretrainedLanguageModel::<Cpu>::open(&path, &Default::default())?;
    let config =
        GenerateConfig::new().with_temperature(options.temperature).with_max_new_tokens(options.max_tokens);
    let mut chat = model.chat()?.with_config(config);
    for message in &options.messages {
        println!("> {message}");
        let reply = chat.send(message.as_str(), |text| {
            print!("{text}");
            let _ = std::io::stdout().flush();
        })?;
        println!("\n[{}]", reply.statistics);
    }
    Ok(())
}
