//! The settings of a chat and their origins.

use std::fmt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kiln_text::{GenerateConfig, GenerationDefaults};

use super::Options;
use crate::table::{columns, printable};

/// Settings in force: an option, else the value that the file of the model states, else a default.
#[derive(Debug)]
pub(super) struct Settings {
    temperature: Setting<f64>,
    top_p: Setting<f64>,
    top_k: Setting<usize>,
    min_p: Setting<f64>,
    repetition_penalty: Setting<f64>,
    max_tokens: Setting<usize>,
    max_length: Setting<Option<usize>>,
    file: GenerationDefaults,
    seed: u64,
}

/// A value and its origin.
#[derive(Clone, Copy, Debug)]
struct Setting<T> {
    value: T,
    origin: Origin,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Option,
    File,
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Option => "option",
            Origin::File => "generation_config.json",
            Origin::Default => "default",
        })
    }
}

impl<T> Setting<T> {
    fn new(option: Option<T>, file: Option<T>, default: T) -> Setting<T> {
        match (option, file) {
            (Some(value), _) => Setting { value, origin: Origin::Option },
            (None, Some(value)) => Setting { value, origin: Origin::File },
            (None, None) => Setting { value: default, origin: Origin::Default },
        }
    }
}

impl Settings {
    /// Reads `generation_config.json` of a folder. Files of weights have none.
    ///
    /// # Errors
    /// When the file is invalid, or a setting is out of range.
    pub(super) fn new(options: &Options, model: &Path) -> Result<Settings, String> {
        let file = match model.is_dir() {
            true => GenerationDefaults::from_folder(model).map_err(|error| error.to_string())?,
            false => GenerationDefaults::default(),
        };
        let settings = Settings::of(options, file);
        settings.config().validate().map_err(|error| error.to_string())?;
        Ok(settings)
    }

    fn of(options: &Options, file: GenerationDefaults) -> Settings {
        let stated = completed(&file);
        let time = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let max_tokens = Setting::new(options.max_tokens, stated.max_new_tokens, 1024);
        // As in `transformers`: a number of new tokens replaces the total.
        let total = match max_tokens.origin {
            Origin::Default => stated.max_length,
            Origin::Option | Origin::File => None,
        };
        Settings {
            temperature: Setting::new(options.temperature, stated.temperature, 0.7),
            top_p: Setting::new(options.top_p, stated.top_p, 0.95),
            top_k: Setting::new(options.top_k, stated.top_k, 40),
            min_p: Setting::new(options.min_p, stated.min_p, 0.05),
            repetition_penalty: Setting::new(options.repetition_penalty, stated.repetition_penalty, 1.1),
            max_tokens,
            max_length: Setting::new(None, total.map(Some), None),
            file,
            seed: options.seed.unwrap_or_else(time),
        }
    }

    /// The settings for generation.
    pub(super) fn config(&self) -> GenerateConfig {
        let (top_p, top_k, min_p) = (self.top_p.value, self.top_k.value, self.min_p.value);
        GenerateConfig::new()
            .with_temperature(self.temperature.value)
            .with_top_p((top_p != 1.0).then_some(top_p))
            .with_top_k((top_k > 0).then_some(top_k))
            .with_min_p((min_p != 0.0).then_some(min_p))
            .with_repetition_penalty(self.repetition_penalty.value)
            .with_max_new_tokens(self.max_tokens.value)
            .with_max_length(self.max_length.value)
            .with_stop(self.file.stop.clone())
            .with_seed(self.seed)
    }

    /// A table of the settings and their origins.
    pub(super) fn table(&self) -> String {
        let part = |setting: Setting<f64>, all: f64| match setting.value == all {
            true => "all".to_owned(),
            false => setting.value.to_string(),
        };
        let top_k = match self.top_k.value {
            0 => "all".to_owned(),
            k => k.to_string(),
        };
        let row =
            |name: &str, value: String, origin: Origin| vec![name.to_owned(), value, origin.to_string()];
        let mut rows = vec![row("temperature", self.temperature_text(), self.temperature.origin)];
        if self.temperature.value != 0.0 {
            rows.push(row("top-p", part(self.top_p, 1.0), self.top_p.origin));
            rows.push(row("top-k", top_k, self.top_k.origin));
            rows.push(row("min-p", part(self.min_p, 0.0), self.min_p.origin));
        }
        let penalty = self.repetition_penalty;
        rows.push(row("repetition-penalty", penalty.value.to_string(), penalty.origin));
        rows.push(row("max-tokens", self.max_tokens.value.to_string(), self.max_tokens.origin));
        if let Some(length) = self.max_length.value {
            rows.push(row("max-length", length.to_string(), self.max_length.origin));
        }
        rows.extend(self.file.stop.iter().map(|stop| row("stop", printable(stop), Origin::File)));
        if !self.file.end_ids.is_empty() {
            let ids: Vec<String> = self.file.end_ids.iter().map(u32::to_string).collect();
            rows.push(row("end tokens", ids.join(", "), Origin::File));
        }
        let unsupported = self
            .file
            .unsupported
            .iter()
            .map(|name| row(name, "not supported, no effect".to_owned(), Origin::File));
        rows.extend(unsupported);
        columns(&rows)
    }

    /// The most important settings in a line.
    pub(super) fn line(&self) -> String {
        let (temperature, origin) = (self.temperature_text(), self.temperature.origin);
        format!("temperature {temperature} ({origin})")
    }

    fn temperature_text(&self) -> String {
        match self.temperature.value {
            0.0 => "0, greedy".to_owned(),
            value => value.to_string(),
        }
    }
}

/// The values that a file states. A file that states `do_sample` describes all of sampling: absent fields have the
/// defaults of `transformers`.
fn completed(file: &GenerationDefaults) -> GenerationDefaults {
    let mut stated = file.clone();
    if file.do_sample.is_some() {
        let config = file.config();
        stated.temperature = Some(config.temperature);
        stated.top_p = Some(config.top_p.unwrap_or(1.0));
        stated.top_k = Some(config.top_k.unwrap_or(0));
        stated.min_p = Some(config.min_p.unwrap_or(0.0));
        stated.repetition_penalty = Some(config.repetition_penalty);
    }
    stated
}
