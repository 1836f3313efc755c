//! `kiln chat`: a chat with a language model.

mod interrupt;
mod output;
mod session;

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use kiln_backends::{Device, Dyn};
use kiln_models::{CausalLanguageModel, PretrainedLanguageModel};
use kiln_store::hub;
use kiln_text::{Chat, GenerateConfig, LanguageModel, Overflow};

use interrupt::Interrupt;
use output::Output;
use session::Session;

/// Options of `kiln chat`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A GGUF file, a folder of a Hugging Face model, or the name of a model in its cache, such as `org/name`.
    model: String,
    /// Instructions for the model.
    #[arg(long, conflicts_with = "raw")]
    system: Option<String>,
    /// Answer this message, and exit. Without it, each line of the standard input is a message.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Continue the text without a chat template, and without a history.
    #[arg(long)]
    raw: bool,
    /// Divisor of the logits: higher values make answers more random; 0 chooses the most probable tokens.
    #[arg(long, default_value_t = 0.7)]
    temperature: f64,
    /// Sample from the most probable tokens with this total probability; 1 keeps all.
    #[arg(long, default_value_t = 0.95)]
    top_p: f64,
    /// Sample from this number of tokens; 0 keeps all.
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// Sample from tokens with at least this part of the greatest probability; 0 keeps all.
    #[arg(long, default_value_t = 0.05)]
    min_p: f64,
    /// Divisor of the logits of tokens that occurred before; 1 has no effect.
    #[arg(long, default_value_t = 1.1)]
    repetition_penalty: f64,
    /// Maximum number of tokens of an answer.
    #[arg(long, default_value_t = 1024)]
    max_tokens: usize,
    /// Maximum number of tokens of the whole chat; the oldest messages are dropped. Default: the context of the model.
    #[arg(long)]
    context: Option<usize>,
    /// Seed of sampling; equal seeds have equal answers. Default: the time.
    #[arg(long)]
    seed: Option<u64>,
    /// Kind of the device, as `kiln devices` lists them.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Number of threads of the CPU; 0 takes one for each core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// Chats until the end of the input.
///
/// # Errors
/// When the model cannot be opened, an option is out of range, or `--prompt` cannot be answered.
pub(crate) fn run(options: Options) -> Result<(), String> {
    let interrupt = Interrupt::install().map_err(|error| format!("cannot handle Ctrl-C: {error}"))?;
    let config = config(&options)?;
    let path = hub::locate(&options.model).map_err(|error| error.to_string())?;
    let started = Instant::now();
    let model = PretrainedLanguageModel::<Dyn>::open(&path, &device(&options)?);
    let model = model.map_err(|error| error.to_string())?;
    let mut session = if options.raw {
        Session::Raw(model.generator(), Box::new(config))
    } else {
        Session::Chat(Box::new(chat(&model, &options, config)?))
    };
    let mut output = Output::default();
    if let Some(prompt) = &options.prompt {
        return answer(&mut session, prompt, &interrupt, &mut output);
    }
    if io::stdin().is_terminal() {
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "{} in {seconds:.1} s. /reset starts anew, /exit ends, Ctrl-C stops an answer.",
            path.display()
        );
    }
    converse(&mut session, &interrupt, &mut output)
}

fn chat<'a>(
    model: &'a PretrainedLanguageModel<Dyn>,
    options: &Options,
    config: GenerateConfig,
) -> Result<Chat<'a, Dyn, CausalLanguageModel<Dyn>>, String> {
    let hint = "\n  hint: models without a chat template continue a text with `--raw`";
    let chat = model.chat().map_err(|error| format!("{error}{hint}"))?;
    let chat = chat.with_config(config).with_overflow(Overflow::DropOldest);
    let chat = match options.context {
        Some(tokens) => chat.with_context(tokens),
        None => chat,
    };
    Ok(match &options.system {
        Some(text) => chat.with_system(text.as_str()),
        None => chat,
    })
}

fn config(options: &Options) -> Result<GenerateConfig, String> {
    let time = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let config = GenerateConfig::new()
        .with_temperature(options.temperature)
        .with_top_p((options.top_p != 1.0).then_some(options.top_p))
        .with_top_k((options.top_k > 0).then_some(options.top_k))
        .with_min_p((options.min_p != 0.0).then_some(options.min_p))
        .with_repetition_penalty(options.repetition_penalty)
        .with_max_new_tokens(options.max_tokens)
        .with_seed(options.seed.unwrap_or_else(time));
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

fn device(options: &Options) -> Result<Device, String> {
    match (options.device.as_str(), options.threads) {
        ("cpu", 0) => Ok(Device::cpu()),
        ("cpu", threads) => Ok(Device::cpu_with_threads(threads)),
        (kind, 0) => Device::open(kind, 0).map_err(|error| error.to_string()),
        (kind, _) => Err(format!("--threads applies to `--device cpu`, not to `{kind}`")),
    }
}

/// Answers each line of the standard input. An answer that fails does not end the chat.
fn converse<M: LanguageModel<Dyn>>(
    session: &mut Session<'_, M>,
    interrupt: &Interrupt,
    output: &mut Output,
) -> Result<(), String> {
    let is_terminal = io::stdin().is_terminal();
    let mut input = io::stdin().lock();
    while !output.is_closed() {
        if is_terminal {
            eprint!("> ");
            let _ = io::stderr().flush();
        }
        let mut line = String::new();
        let read = input.read_line(&mut line).map_err(|error| format!("cannot read the input: {error}"))?;
        if read == 0 {
            break;
        }
        match line.trim() {
            "" => {}
            "/exit" => break,
            "/reset" => session.reset(),
            command if command.starts_with('/') => {
                eprintln!("kiln: {command} is no command; there are /reset and /exit");
            }
            message => {
                if let Err(error) = answer(session, message, interrupt, output) {
                    eprintln!("kiln: {error}");
                }
            }
        }
    }
    Ok(())
}

/// Writes an answer to the standard output, and its statistics to the standard error.
fn answer<M: LanguageModel<Dyn>>(
    session: &mut Session<'_, M>,
    message: &str,
    interrupt: &Interrupt,
    output: &mut Output,
) -> Result<(), String> {
    let stop = interrupt.during_answer();
    let result = session.answer(message, |text| stop.is_interrupted() || output.write(text));
    drop(stop);
    output.end();
    let answer = result.map_err(|error| error.to_string())?;
    if !output.is_closed() {
        eprintln!("[{}{}]", answer.statistics, answer.remark());
    }
    Ok(())
}
