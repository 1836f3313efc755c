//! The turns of a chat.

use std::ops::ControlFlow;

use kiln_backends::Dyn;
use kiln_text::{Chat, FinishReason, GenerateConfig, LanguageModel, Statistics, TextGenerator};

/// A chat, or completions of texts that are independent of each other.
pub(super) enum Session<'a, M: LanguageModel<Dyn>> {
    /// With a chat template and a history.
    Chat(Box<Chat<'a, Dyn, M>>),
    /// Without both.
    Raw(TextGenerator<'a, Dyn, M>, Box<GenerateConfig>),
}

/// The end of an answer, whose text was written.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) statistics: Statistics,
    finish: Option<FinishReason>,
}

impl<M: LanguageModel<Dyn>> Session<'_, M> {
    /// Answers a message. `write` receives the text piece by piece, and returns whether to stop.
    pub(super) fn answer(
        &mut self,
        message: &str,
        mut write: impl FnMut(&str) -> bool,
    ) -> kiln_text::Result<Answer> {
        match self {
            Session::Chat(chat) => {
                let reply = chat.send_while(message, |text| match write(text) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })?;
                Ok(Answer { statistics: reply.statistics, finish: Some(reply.finish) })
            }
            Session::Raw(generator, config) => {
                let mut stream = generator.stream(message, config)?;
                let mut finish = None;
                for event in stream.by_ref() {
                    let event = event?;
                    finish = event.finish;
                    if write(&event.text) {
                        break;
                    }
                }
                Ok(Answer { statistics: stream.statistics(), finish })
            }
        }
    }

    /// Forgets all messages but the instructions.
    pub(super) fn reset(&mut self) {
        match self {
            Session::Chat(chat) => chat.clear(),
            Session::Raw(..) => {}
        }
    }
}

impl Answer {
    /// A remark on an answer that is not complete.
    pub(super) fn remark(&self) -> &'static str {
        match &self.finish {
            Some(FinishReason::EndToken(_) | FinishReason::StopString(_)) => "",
            Some(FinishReason::Length) => "; ended by --max-tokens or the context",
            Some(FinishReason::Stopped) | None => "; stopped",
        }
    }
}
