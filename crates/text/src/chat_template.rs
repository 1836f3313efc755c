//! Chat templates: messages to the text of a prompt.

mod functions;
mod nesting;
mod printf;
mod python;
mod source;
mod time;
mod variadic;

use crate::{Result, TextError, guard};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

/// The name of the template in its environment and in errors.
const NAME: &str = "chat_template";

/// Limit of the work of a rendering: about one unit for each instruction and for each 64 bytes of text.
const FUEL: u64 = 4_000_000;

/// A chat template of a model, in the language of Jinja.
///
/// It renders as in Hugging Face's `transformers`: `trim_blocks` and `lstrip_blocks`, methods of Python's strings and
/// dictionaries, `'%s' % x`, the text of Python for floats and tuples, `varargs` and `kwargs` of macros, `break` and
/// `continue`, the functions `raise_exception` and `strftime_now` (UTC), `tojson` with Python's spacing, and
/// `{% generation %}` blocks.
///
/// Templates come with models of strangers. A template has at most 256 KiB, 100 nested brackets, 500 operators around an
/// operand and 500 branches of an `if`. Rendering is bounded in time and memory ([`with_fuel`](ChatTemplate::with_fuel)),
/// values are nested at most 128 levels deep, and both run on a stack of known size. Beyond a limit there is an error
/// that names it.
///
/// ```
/// use kiln_text::{ChatTemplate, Message, RenderOptions};
///
/// let template = ChatTemplate::new(
///     "{% for message in messages %}<|{{ message.role }}|>{{ message['content'].strip() }}\n{% endfor %}\
///      {% if add_generation_prompt %}<|assistant|>{% endif %}",
/// )?;
/// let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
/// let prompt = template.render(&[Message::user(" Hello ")], &options)?;
/// assert_eq!(prompt, "<|user|>Hello\n<|assistant|>");
/// # Ok::<(), kiln_text::TextError>(())
/// ```
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
}

/// A message of a chat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The author: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// More fields for the template, such as `tool_calls` or `name`. A field `content` replaces the text.
    pub fields: BTreeMap<String, TemplateValue>,
}

impl Message {
    /// Returns a message of a role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message { role: role.into(), content: content.into(), fields: BTreeMap::new() }
    }

    /// Returns instructions for the model.
    pub fn system(content: impl Into<String>) -> Self {
        Message::new("system", content)
    }

    /// Returns a message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Message::new("user", content)
    }

    /// Returns a reply of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Message::new("assistant", content)
    }

    /// Adds a field for the template.
    #[must_use]
    pub fn with_field(mut self, name: impl Into<String>, value: TemplateValue) -> Self {
        self.fields.insert(name.into(), value);
        self
    }

    fn to_value(&self) -> Value {
        let own =
            [("role", Value::from(self.role.as_str())), ("content", Value::from(self.content.as_str()))];
        let own = own.into_iter().filter(|(name, _)| !self.fields.contains_key(*name));
        Value::from_pairs(own.chain(self.fields.iter().map(|(name, value)| (name.as_str(), value.0.clone()))))
    }
}

/// A value for a template: JSON whose objects keep the order of their keys.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateValue(Value);

impl TemplateValue {
    /// Reads a value from JSON.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn from_json(json: &str) -> Result<Self> {
        let invalid = |error: serde_json::Error| TextError::Template {
            action: "read JSON",
            problem: error.to_string(),
        };
        serde_json::from_str(json).map(TemplateValue).map_err(invalid)
    }

    /// Converts a value that `serde` serializes.
    pub fn from_serialize(value: impl Serialize) -> Self {
        TemplateValue(Value::from(Serde(value)))
    }
}

impl From<&str> for TemplateValue {
    fn from(text: &str) -> Self {
        TemplateValue(Value::from(text))
    }
}

impl From<bool> for TemplateValue {
    fn from(flag: bool) -> Self {
        TemplateValue(Value::from(flag))
    }
}

/// The variables of a rendering, beside the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// Tools that the model may call: JSON schemas. Empty: the template sees no tools.
    pub tools: Vec<TemplateValue>,
    /// Whether the prompt ends with the start of a reply. Default: false.
    pub add_generation_prompt: bool,
    /// The text of BOS, `bos_token` in the template.
    pub bos_token: Option<String>,
    /// The text of EOS, `eos_token` in the template.
    pub eos_token: Option<String>,
    /// More variables, such as `enable_thinking`.
    pub variables: BTreeMap<String, TemplateValue>,
    /// The time of `strftime_now`. Default: the time of the rendering.
    pub now: Option<SystemTime>,
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// When the template has a syntax error, or exceeds a limit.
    pub fn new(source: impl Into<String>) -> Result<Self> {
        let source = source.into();
        let failed = |problem| TextError::Template { action: "parse the template", problem };
        guard::on_own_stack(|| ChatTemplate::parse(source)).map_err(failed)?
    }

    fn parse(source: String) -> Result<Self> {
        let parse = |error: &Error| template_error("parse the template", error);
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| parse(&error))?);
        environment.set_fuel(Some(FUEL));
        functions::register(&mut environment);
        let plain = source::rewritten(&source);
        let plain = plain.map_err(|problem| TextError::Template { action: "parse the template", problem })?;
        environment.add_template_owned(NAME, plain).map_err(|error| parse(&error))?;
        Ok(ChatTemplate { environment, source })
    }

    /// Sets the limit of the work of a rendering: about one unit for each instruction and for each 64 bytes of text.
    /// Default: 4,000,000, which bounds a rendering to some seconds and 256 MB.
    #[must_use]
    pub fn with_fuel(mut self, fuel: u64) -> Self {
        self.environment.set_fuel(Some(fuel));
        self
    }

    /// Returns the source of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders the prompt of a chat. [`Tokenizer::encode`](crate::Tokenizer::encode) encodes it with `add_special`
    /// false: the text contains the special tokens.
    ///
    /// # Errors
    /// When the template refuses the messages ([`TextError::TemplateRefused`]), fails, or exceeds its limit of work.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        let failed = |problem| TextError::Template { action: "render", problem };
        guard::on_own_stack(|| self.render_here(messages, options)).map_err(failed)?
    }

    fn render_here(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        let template = self.environment.get_template(NAME);
        let template = template.map_err(|error| template_error("find the template", &error))?;
        let output = template.render(Value::from(variables(messages, options)));
        output.map_err(|error| match functions::refusal(&error) {
            Some(message) => TextError::TemplateRefused { message },
            None if is_out_of_fuel(&error) => {
                let fuel = self.environment.fuel().unwrap_or(FUEL);
                let problem = format!(
                    "{error}: it exceeds the limit of {fuel} units of work\n  hint: ChatTemplate::with_fuel raises it"
                );
                TextError::Template { action: "render", problem }
            }
            None => template_error("render", &error),
        })
    }
}

/// Whether the work of a rendering caused an error.
fn is_out_of_fuel(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::OutOfFuel)
        || error.source().is_some_and(is_out_of_fuel)
}

fn variables(messages: &[Message], options: &RenderOptions) -> BTreeMap<String, Value> {
    let now = options.now.unwrap_or_else(SystemTime::now);
    let tools = || options.tools.iter().map(|tool| tool.0.clone()).collect::<Value>();
    let text = |text: &Option<String>| text.as_deref().map_or(Value::UNDEFINED, Value::from);
    let own = [
        ("messages", messages.iter().map(Message::to_value).collect()),
        ("tools", if options.tools.is_empty() { Value::from(()) } else { tools() }),
        ("documents", Value::from(())),
        ("add_generation_prompt", Value::from(options.add_generation_prompt)),
        ("bos_token", text(&options.bos_token)),
        ("eos_token", text(&options.eos_token)),
        ("strftime_now", functions::strftime_now(now)),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    own.chain(options.variables.iter().map(|(name, value)| (name.clone(), value.0.clone()))).collect()
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Clone for ChatTemplate {
    fn clone(&self) -> Self {
        ChatTemplate { environment: self.environment.clone(), source: self.source.clone() }
    }
}

fn template_error(action: &'static str, error: &Error) -> TextError {
    TextError::Template { action, problem: error.to_string() }
}
