//! A chat with a language model.

use crate::generate::{
    FinishReason, GenerateConfig, RowText, Statistics, TokenDecoding, end_ids, new_tokens,
};
use crate::{
    ChatTemplate, GenerationCache, LanguageModel, Message, RenderOptions, Result, TextError, Tokenizer,
};
use kiln_tensor::Backend;
use std::ops::ControlFlow;
use std::time::Instant;

/// The cache grows by steps of this many tokens.
const CACHE_STEP: usize = 512;

/// A chat: messages, and the model's keys and values of their tokens. A turn computes only the tokens that differ from
/// those of the turn before.
///
/// ```no_run
/// # use kiln_backends::Flex;
/// # use kiln_text::{Chat, GenerateConfig, LanguageModel, Tokenizer};
/// # fn run(model: impl LanguageModel<Flex>, tokenizer: Tokenizer) -> kiln_text::Result<()> {
/// let mut chat = Chat::new(&model, &tokenizer)?
///     .with_system("Answer in one sentence.")
///     .with_config(GenerateConfig::new().with_temperature(0.7).with_top_p(Some(0.9)));
/// let reply = chat.send("What is the capital of France?", |text| print!("{text}"))?;
/// println!("\n{}", reply.statistics);
/// # Ok(())
/// # }
/// ```
pub struct Chat<'a, B: Backend, M: LanguageModel<B>> {
    model: &'a M,
    tokenizer: &'a Tokenizer,
    template: ChatTemplate,
    render: RenderOptions,
    config: GenerateConfig,
    overflow: Overflow,
    context: usize,
    messages: Vec<Message>,
    cached: Option<Cached<M::Cache>>,
    backend: std::marker::PhantomData<B>,
}

/// Keys and values, and the tokens that they are of.
struct Cached<C> {
    cache: C,
    capacity: usize,
    ids: Vec<u32>,
}

/// The behaviour of a [`Chat`] whose messages exceed the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// [`Chat::send`] fails with [`TextError::ContextOverflow`].
    #[default]
    Error,
    /// The oldest turns are dropped until the prompt and [`GenerateConfig::max_new_tokens`], or half of the context if
    /// that is less, fit. System messages at the start, and the last message, stay.
    DropOldest,
}

/// The reply of a turn.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The text.
    pub text: String,
    /// The reason that it ended.
    pub finish: FinishReason,
    /// Number of prompt tokens whose keys and values were in the cache.
    pub reused_tokens: usize,
    /// Numbers of computed tokens, and times.
    pub statistics: Statistics,
}

impl<'a, B: Backend, M: LanguageModel<B>> Chat<'a, B, M> {
    /// Returns a chat without messages that uses the chat template of the tokenizer.
    ///
    /// # Errors
    /// When the tokenizer has no chat template, or an invalid one.
    pub fn new(model: &'a M, tokenizer: &'a Tokenizer) -> Result<Self> {
        let source = tokenizer.chat_template().ok_or_else(|| TextError::Template {
            action: "find the template",
            problem: "the tokenizer has none\n  hint: pass one to `Chat::with_template`".to_owned(),
        })?;
        Ok(Chat::with_template(model, tokenizer, ChatTemplate::new(source)?))
    }

    /// Returns a chat without messages that uses a chat template.
    pub fn with_template(model: &'a M, tokenizer: &'a Tokenizer, template: ChatTemplate) -> Self {
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.id_to_token(id));
        let render = RenderOptions {
            add_generation_prompt: true,
            bos_token: text(tokenizer.bos_id()),
            eos_token: text(tokenizer.eos_id()),
            ..RenderOptions::default()
        };
        Chat {
            model,
            tokenizer,
            template,
            render,
            config: GenerateConfig::new(),
            overflow: Overflow::Error,
            context: model.max_length(),
            messages: Vec::new(),
            cached: None,
            backend: std::marker::PhantomData,
        }
    }

    /// Adds a system message at the start.
    #[must_use]
    pub fn with_system(mut self, content: impl Into<String>) -> Self {
        self.messages.insert(0, Message::system(content));
        self
    }

    /// Sets the settings of generation.
    #[must_use]
    pub fn with_config(mut self, config: GenerateConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the behaviour when the messages exceed the context. Default: an error.
    #[must_use]
    pub fn with_overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// Limits the context to fewer tokens than that of the model, which saves memory.
    #[must_use]
    pub fn with_context(mut self, tokens: usize) -> Self {
        self.context = tokens.min(self.model.max_length());
        self
    }

    /// Sets the variables of the template, such as tools. Default: those of BOS and EOS, with a generation prompt.
    #[must_use]
    pub fn with_render_options(mut self, render: RenderOptions) -> Self {
        self.render = render;
        self
    }

    /// Returns the messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Replaces the messages, for example by those of a saved chat. Keys and values of equal tokens at the start are
    /// used again.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Removes all messages except system messages at the start.
    pub fn clear(&mut self) {
        self.messages.truncate(self.system_messages());
    }

    /// Sends a message of the user, and returns the reply. `on_text` receives its text piece by piece.
    ///
    /// # Errors
    /// When the template refuses the messages, they exceed the context, or the computation fails. The messages are then
    /// as before.
    pub fn send(&mut self, content: impl Into<String>, on_text: impl FnMut(&str)) -> Result<Reply> {
        self.send_while(content, without_stop(on_text))
    }

    /// Sends a message like [`send`](Chat::send), until `on_text` breaks. The reply is then the text so far, with
    /// [`FinishReason::Stopped`].
    ///
    /// # Errors
    /// As [`send`](Chat::send).
    pub fn send_while(
        &mut self,
        content: impl Into<String>,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Reply> {
        let before = self.messages.clone();
        self.messages.push(Message::user(content));
        let reply = self.reply_while(on_text);
        if reply.is_err() {
            self.messages = before;
        }
        reply
    }

    /// Generates the reply to the messages, and adds it to them; see [`send`](Chat::send).
    ///
    /// # Errors
    /// As [`send`](Chat::send).
    pub fn reply(&mut self, on_text: impl FnMut(&str)) -> Result<Reply> {
        self.reply_while(without_stop(on_text))
    }

    fn reply_while(&mut self, on_text: impl FnMut(&str) -> ControlFlow<()>) -> Result<Reply> {
        self.config.validate()?;
        let prompt = self.fitting_prompt()?;
        let new = new_tokens(prompt.len(), &self.config, self.context)?;
        let mut cached = self.cache_for(&prompt, prompt.len() + new)?;
        let reply = self.generate(&prompt, new, &mut cached, on_text)?;
        self.cached = Some(cached);
        self.messages.push(Message::assistant(reply.text.clone()));
        Ok(reply)
    }

    fn generate(
        &self,
        prompt: &[u32],
        new: usize,
        cached: &mut Cached<M::Cache>,
        mut on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Reply> {
        let reused = cached.ids.len();
        let prompts = [prompt.to_vec()];
        // Other random numbers for each turn.
        let seed = self.config.seed.wrapping_add(self.messages.len() as u64);
        let config = self.config.clone().with_seed(seed);
        let mut statistics = Statistics::new(Instant::now(), prompt.len() - reused);
        let mut decoding = TokenDecoding::resume(
            self.model,
            &prompts,
            reused,
            &config,
            new,
            self.tokenizer.padding_or_end(),
        )?;
        let end = end_ids(self.tokenizer, &self.config);
        let mut row = RowText::new(self.tokenizer, &self.config, prompt)?;
        let (mut text, mut finish, mut ids) = (String::new(), FinishReason::Length, Vec::new());
        while let Some(step) = decoding.step(self.model, &mut cached.cache)? {
            statistics.count(step.iter().flatten().count());
            for id in step.into_iter().flatten() {
                ids.push(id);
                let (released, mut reason) = row.push(id, &end, decoding.is_at_end())?;
                if !released.is_empty() {
                    if on_text(&released).is_break() && reason.is_none() {
                        reason = Some(FinishReason::Stopped);
                    }
                    text.push_str(&released);
                }
                if let Some(reason) = reason {
                    decoding.finish(0);
                    finish = reason;
                }
            }
        }
        statistics.end();
        ids.truncate(decoding.cached_new_tokens());
        cached.ids = [prompt, &ids].concat();
        Ok(Reply { text, finish, reused_tokens: reused, statistics })
    }

    /// The tokens of the messages, without those that the option drops.
    fn fitting_prompt(&mut self) -> Result<Vec<u32>> {
        let max_length = self.config.max_length.unwrap_or(usize::MAX).min(self.context);
        let room_for_prompt = max_length - self.config.max_new_tokens.min(max_length / 2);
        loop {
            let prompt = self.prompt()?;
            let fits = prompt.len() <= room_for_prompt;
            let drops = self.overflow == Overflow::DropOldest && !fits;
            if !drops || !self.drop_oldest_turn() {
                return Ok(prompt);
            }
        }
    }

    fn prompt(&self) -> Result<Vec<u32>> {
        let text = self.template.render(&self.messages, &self.render)?;
        let ids = self.tokenizer.encode(&text, false)?;
        if ids.is_empty() { Err(TextError::EmptyPrompt { row: 0 }) } else { Ok(ids) }
    }

    /// Drops the first message after the system messages, and those until the next of the user. Returns false if it
    /// would drop the last.
    fn drop_oldest_turn(&mut self) -> bool {
        let start = self.system_messages();
        let next =
            self.messages.iter().enumerate().skip(start + 1).find(|(_, message)| message.role == "user");
        let Some((end, _)) = next else { return false };
        self.messages.drain(start..end);
        true
    }

    fn system_messages(&self) -> usize {
        self.messages.iter().take_while(|message| message.role == "system").count()
    }

    /// A cache with room for `length` tokens, which contains the tokens that the prompt starts with. At least one token
    /// of the prompt is left to compute.
    fn cache_for(&mut self, prompt: &[u32], length: usize) -> Result<Cached<M::Cache>> {
        if let Some(mut cached) = self.cached.take().filter(|cached| cached.capacity >= length) {
            let common = prompt.iter().zip(&cached.ids).take_while(|(new, old)| new == old).count();
            let common = common.min(prompt.len() - 1);
            if cached.cache.truncate(common) {
                cached.ids.truncate(common);
            } else {
                cached.cache.reset();
                cached.ids.clear();
            }
            return Ok(cached);
        }
        let capacity = length.next_multiple_of(CACHE_STEP).min(self.context);
        Ok(Cached { cache: self.model.new_cache(1, capacity), capacity, ids: Vec::new() })
    }
}

/// A callback that never breaks.
fn without_stop(mut on_text: impl FnMut(&str)) -> impl FnMut(&str) -> ControlFlow<()> {
    move |text| {
        on_text(text);
        ControlFlow::Continue(())
    }
}
