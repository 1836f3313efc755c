//! `kiln chat`: a chat with a language model.

mod interrupt;
mod output;
mod session;
mod settings;

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Instant;

use clap::Args;
use kiln_backends::Dyn;
use kiln_models::{CausalLanguageModel, PretrainedLanguageModel};
use kiln_store::hub;
use kiln_text::{Chat, GenerateConfig, LanguageModel, Overflow};

use interrupt::Interrupt;
use output::Output;
use session::Session;
use settings::Settings;

use crate::devices;

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
    /// Divisor of the logits: higher values make answers more random; 0 chooses the most probable tokens. Default: that
    /// of the model, or 0.7.
    #[arg(long)]
    temperature: Option<f64>,
    /// Sample from the most probable tokens with this total probability; 1 keeps all. Default: that of the model, or
    /// 0.95.
    #[arg(long)]
    top_p: Option<f64>,
    /// Sample from this number of tokens; 0 keeps all. Default: that of the model, or 40.
    #[arg(long)]
    top_k: Option<usize>,
    /// Sample from tokens with at least this part of the greatest probability; 0 keeps all. Default: that of the model,
    /// or 0.05.
    #[arg(long)]
    min_p: Option<f64>,
    /// Divisor of the logits of tokens that occurred before; 1 has no effect. Default: that of the model, or 1.1.
    #[arg(long)]
    repetition_penalty: Option<f64>,
    /// Maximum number of tokens of an answer. Default: that of the model, or 1024.
    #[arg(long)]
    max_tokens: Option<usize>,
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

/// The commands of a chat.
const COMMANDS: &str = "/reset starts anew, /help lists the settings, /exit ends, Ctrl-C stops an answer.";

/// Chats until the end of the input.
///
/// # Errors
/// When the model cannot be opened, an option is out of range, or `--prompt` cannot be answered.
pub(crate) fn run(options: Options) -> Result<(), String> {
    let interrupt = Interrupt::install().map_err(|error| format!("cannot handle Ctrl-C: {error}"))?;
    let path = hub::locate(&options.model).map_err(|error| error.to_string())?;
    let settings = Settings::new(&options, &path)?;
    let started = Instant::now();
    let device = devices::open(&options.device, options.threads)?;
    let model = PretrainedLanguageModel::<Dyn>::open(&path, &device);
    let model = model.map_err(|error| error.to_string())?;
    let mut session = if options.raw {
        Session::Raw(model.generator(), Box::new(settings.config()))
    } else {
        Session::Chat(Box::new(chat(&model, &options, settings.config())?))
    };
    let mut output = Output::default();
    if let Some(prompt) = &options.prompt {
        return answer(&mut session, prompt, &interrupt, &mut output);
    }
    if io::stdin().is_terminal() {
        let seconds = started.elapsed().as_secs_f64();
        eprintln!("{} in {seconds:.1} s, {}\n{COMMANDS}", path.display(), settings.line());
    }
    converse(&mut session, &settings, &interrupt, &mut output)
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

/// Answers each line of the standard input. An answer that fails does not end the chat.
fn converse<M: LanguageModel<Dyn>>(
    session: &mut Session<'_, M>,
    settings: &Settings,
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
            "/help" => eprint!("{COMMANDS}\n\n{}", settings.table()),
            command if command.starts_with('/') => {
                eprintln!("kiln: {command} is no command; there are /reset, /help and /exit");
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
