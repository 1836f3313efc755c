//! The messages of event files, as protocol buffers.
//!
//! Field numbers are those of `event.proto`, `summary.proto`, `tensor.proto` and the HParams plugin's `plugin_data.proto`.

use std::collections::BTreeMap;

use super::super::png::{Image, png};

/// A message in the wire format of protocol buffers, under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// How the bytes of a field follow its number.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Bits64 = 1,
    Bytes = 2,
    Bits32 = 5,
}

impl Message {
    pub(super) fn new() -> Message {
        Message::default()
    }

    pub(super) fn integer(mut self, field: u32, value: i64) -> Message {
        self.key(field, Wire::Varint);
        self.varint(value as u64);
        self
    }

    pub(super) fn double(mut self, field: u32, value: f64) -> Message {
        self.key(field, Wire::Bits64);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn float(mut self, field: u32, value: f32) -> Message {
        self.key(field, Wire::Bits32);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Message {
        self.key(field, Wire::Bytes);
        self.varint(value.as_ref().len() as u64);
        self.0.extend(value.as_ref());
        self
    }

    pub(super) fn message(self, field: u32, value: Message) -> Message {
        self.bytes(field, value.0)
    }

    /// A packed repeated field.
    pub(super) fn doubles(self, field: u32, values: &[f64]) -> Message {
        self.bytes(field, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, field: u32, wire: Wire) {
        self.varint(u64::from(field << 3 | wire as u32));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// An event with a time in seconds since 1970 and a step. `field` and `content` are its only other field.
fn event(wall_time: f64, step: u64, field: u32, content: Vec<u8>) -> Message {
    Message::new().double(1, wall_time).integer(2, step as i64).bytes(field, content)
}

/// The first event of a file.
pub(super) fn file_version(wall_time: f64) -> Message {
    event(wall_time, 0, 3, b"brain.Event:2".to_vec())
}

/// Tells TensorBoard to forget the events of earlier files from this step on.
pub(super) fn restart(wall_time: f64, step: u64) -> Message {
    const START: i64 = 1;
    event(wall_time, step, 7, Message::new().integer(1, START).into_bytes())
}

/// An event with summaries.
pub(super) fn summaries(wall_time: f64, step: u64, values: Vec<Message>) -> Message {
    let summary = values.into_iter().fold(Message::new(), |summary, value| summary.message(1, value));
    event(wall_time, step, 5, summary.into_bytes())
}

fn summary(tag: &str) -> Message {
    Message::new().bytes(1, tag)
}

/// A number. TensorBoard stores numbers as `f32`.
pub(super) fn scalar(tag: &str, value: f64) -> Message {
    summary(tag).float(2, value as f32)
}

/// A histogram. Sum and sum of squares are those of the centres of the bins.
///
/// # Errors
/// When there is not one edge more than there are bins.
pub(super) fn histogram(tag: &str, edges: &[f64], counts: &[f64]) -> Result<Message, String> {
    if counts.is_empty() || edges.len() != counts.len() + 1 {
        return Err(format!("a histogram has {} edges and {} bins", edges.len(), counts.len()));
    }
    let centres = || edges.windows(2).map(|edge| (edge[0] + edge[1]) / 2.0).zip(counts);
    let histogram = Message::new()
        .double(1, edges[0])
        .double(2, edges[edges.len() - 1])
        .double(3, counts.iter().sum())
        .double(4, centres().map(|(centre, count)| centre * count).sum())
        .double(5, centres().map(|(centre, count)| centre * centre * count).sum())
        .doubles(6, &edges[1..])
        .doubles(7, counts);
    Ok(summary(tag).message(5, histogram))
}

/// An image.
///
/// # Errors
/// When the image is invalid.
pub(super) fn image(tag: &str, image: &Image) -> Result<Message, String> {
    let message = Message::new()
        .integer(1, image.height as i64)
        .integer(2, image.width as i64)
        .integer(3, image.channels as i64)
        .bytes(4, png(image).map_err(|error| error.to_string())?);
    Ok(summary(tag).message(4, message))
}

/// A text, which TensorBoard shows as Markdown.
pub(super) fn text(tag: &str, text: &str) -> Message {
    const STRING: i64 = 7;
    let dim = Message::new().integer(1, 1);
    let tensor = Message::new().integer(1, STRING).message(2, Message::new().message(2, dim)).bytes(8, text);
    summary(tag).message(9, plugin("text", Message::new())).message(8, tensor)
}

/// The start of a run with its hyper-parameters, for the HParams plugin.
pub(super) fn session_start(hyper_parameters: &BTreeMap<String, String>, started: u64) -> Message {
    let entry =
        |(name, value): (&String, &String)| Message::new().bytes(1, name).message(2, hyper_parameter(value));
    let entries = hyper_parameters.iter().map(entry);
    let info = entries.fold(Message::new(), |info, entry| info.message(1, entry));
    hparams("_hparams_/session_start_info", 3, info.double(5, started as f64))
}

/// The end of a run, for the HParams plugin.
pub(super) fn session_end(wall_time: f64) -> Message {
    const SUCCESS: i64 = 1;
    hparams("_hparams_/session_end_info", 4, Message::new().integer(1, SUCCESS).double(2, wall_time))
}

/// The hyper-parameters of a run and its metrics, by tag, for the HParams plugin.
pub(super) fn experiment(hyper_parameters: &BTreeMap<String, String>, metrics: &[String]) -> Message {
    let parameter = |(name, value): (&String, &String)| {
        let kind = match Kind::of(value) {
            Kind::Text => 1,
            Kind::Bool(_) => 2,
            Kind::Number(_) => 3,
        };
        Message::new().bytes(1, name).integer(4, kind)
    };
    let metric = |tag: &String| Message::new().message(1, Message::new().bytes(2, tag));
    let with_parameters = hyper_parameters
        .iter()
        .map(parameter)
        .fold(Message::new(), |experiment, info| experiment.message(4, info));
    let all =
        metrics.iter().map(metric).fold(with_parameters, |experiment, info| experiment.message(5, info));
    hparams("_hparams_/experiment", 2, all)
}

/// A summary of the HParams plugin: the message is the field of its plugin data, and the tensor is empty.
fn hparams(tag: &str, field: u32, message: Message) -> Message {
    const FLOAT: i64 = 1;
    let dim = Message::new().message(2, Message::new().integer(1, 0));
    let nothing = Message::new().integer(1, FLOAT).message(2, dim);
    summary(tag).message(9, plugin("hparams", Message::new().message(field, message))).message(8, nothing)
}

fn plugin(name: &str, content: Message) -> Message {
    Message::new().message(1, Message::new().bytes(1, name).message(2, content))
}

/// The type of a hyper-parameter, after its text.
enum Kind {
    Number(f64),
    Bool(bool),
    Text,
}

impl Kind {
    fn of(text: &str) -> Kind {
        match (text.parse::<f64>(), text.parse::<bool>()) {
            (Ok(value), _) if value.is_finite() => Kind::Number(value),
            (_, Ok(value)) => Kind::Bool(value),
            (_, Err(_)) => Kind::Text,
        }
    }
}

/// A `google.protobuf.Value`.
fn hyper_parameter(text: &str) -> Message {
    match Kind::of(text) {
        Kind::Number(value) => Message::new().double(2, value),
        Kind::Bool(value) => Message::new().integer(4, i64::from(value)),
        Kind::Text => Message::new().bytes(3, text),
    }
}
