//! Chats reuse the keys and values of earlier turns.

use crate::against_python::attention_model::{Caching, model};
use crate::against_python::generation::letters;
use kiln_text::{
    Chat, ChatTemplate, FinishReason, GenerateConfig, Message, Overflow, TextError, TextGenerator,
};
use std::ops::ControlFlow;

/// Messages without separators: each letter is a token.
const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";

fn config() -> GenerateConfig {
    GenerateConfig::new().with_max_new_tokens(3).with_ignore_end(true)
}

#[test]
fn turns_compute_only_new_tokens() {
    for caching in [Caching::Static, Caching::Growing] {
        let (model, _) = model(caching);
        let tokenizer = letters();
        let template = ChatTemplate::new(TEMPLATE).unwrap();
        let mut chat =
            Chat::with_template(&model, &tokenizer, template).with_config(config()).with_system("ab");
        let mut streamed = String::new();
        let first = chat.send("cd", |text| streamed += text).unwrap();
        assert_eq!((first.reused_tokens, first.statistics.prompt_tokens), (0, 4));
        assert_eq!(streamed, first.text);
        assert_eq!(chat.messages().len(), 3);

        let second = chat.send("ef", |_| {}).unwrap();
        // Two of the three new tokens were computed, if their text gives the same tokens.
        assert_eq!(
            second.reused_tokens + second.statistics.prompt_tokens,
            4 + tokenizer.count(&first.text).unwrap() + 2
        );
        assert!(second.reused_tokens >= 4, "{}", second.reused_tokens);

        let whole = format!("abcd{}ef", first.text);
        let anew = TextGenerator::new(&model, &tokenizer).generate(&[whole], &config()).unwrap();
        assert_eq!(second.text, anew.rows[0].text, "{caching:?}");

        // The same prompt again computes one token.
        let messages = chat.messages()[..4].to_vec();
        chat.set_messages(messages);
        let again = chat.reply(|_| {}).unwrap();
        assert_eq!(again.statistics.prompt_tokens, 1);
        assert_eq!(again.text, second.text);

        chat.clear();
        assert_eq!(chat.messages(), [Message::system("ab")]);
    }
}

#[test]
fn a_callback_stops_the_reply() {
    let (model, _) = model(Caching::Static);
    let tokenizer = letters();
    let new = || {
        let template = ChatTemplate::new(TEMPLATE).unwrap();
        Chat::with_template(&model, &tokenizer, template).with_config(config())
    };
    let whole = new().send("abcd", |_| {}).unwrap();
    let mut chat = new();
    let mut streamed = String::new();
    let reply = chat.send_while("abcd", |text| {
        streamed += text;
        ControlFlow::Break(())
    });
    let reply = reply.unwrap();
    assert_eq!(reply.finish, FinishReason::Stopped);
    assert!(whole.text.starts_with(&reply.text) && reply.text.len() < whole.text.len(), "{reply:?}");
    assert_eq!(reply.text, streamed);
    assert_eq!(chat.messages()[1], Message::assistant(reply.text));
    assert_eq!(chat.reply(|_| {}).unwrap().finish, FinishReason::Length);
}

#[test]
fn overflow_is_an_error_or_drops_the_oldest_turns() {
    let (model, _) = model(Caching::Static);
    let tokenizer = letters();
    let new = |overflow| {
        let template = ChatTemplate::new(TEMPLATE).unwrap();
        let chat = Chat::with_template(&model, &tokenizer, template).with_config(config()).with_system("ab");
        chat.with_overflow(overflow)
    };
    let turns = vec![
        Message::system("ab"),
        Message::user("cdcdcdcd"),
        Message::assistant("gg"),
        Message::user("efef"),
        Message::assistant("hh"),
    ];
    let mut chat = new(Overflow::Error);
    chat.set_messages(turns.clone());
    let error = chat.send("iiiiiiiiii", |_| {}).unwrap_err();
    assert!(matches!(error, TextError::ContextOverflow { prompt: 28, max_length: 24 }), "{error}");
    assert_eq!(chat.messages(), turns, "the message is not added");

    let mut chat = new(Overflow::DropOldest);
    chat.set_messages(turns.clone());
    let reply = chat.send("iiiiiiiiii", |_| {}).unwrap();
    let expected = [turns[0].clone(), turns[3].clone(), turns[4].clone(), Message::user("iiiiiiiiii")];
    assert_eq!(chat.messages()[..4], expected);
    assert_eq!(reply.statistics.prompt_tokens, 18);
    let error = chat.send("i".repeat(30), |_| {}).unwrap_err();
    assert!(matches!(error, TextError::ContextOverflow { .. }), "{error}");
    assert_eq!(chat.messages().len(), 5, "the messages are as before");

    // Half of the 24 tokens is for the prompt, even if the reply may be longer.
    let mut chat = new(Overflow::DropOldest).with_config(config().with_max_new_tokens(100));
    chat.set_messages(turns[..3].to_vec());
    chat.send("i", |_| {}).unwrap();
    assert_eq!(chat.messages()[..3], [turns[0].clone(), Message::user("i"), chat.messages()[2].clone()]);
    chat.set_messages(vec![turns[3].clone(), turns[4].clone()]);
    let reply = chat.send("iiiiii", |_| {}).unwrap();
    assert_eq!((chat.messages().len(), reply.statistics.new_tokens), (4, 13));

    // A total length limits the reply.
    let mut chat = new(Overflow::DropOldest).with_config(config().with_max_length(Some(20)));
    chat.set_messages(turns.clone());
    let reply = chat.send("iiiiiiiiiiiiiiii", |_| {}).unwrap();
    assert_eq!((chat.messages().len(), reply.statistics.new_tokens), (3, 2));
}

#[test]
fn a_tokenizer_without_template_is_an_error() {
    let (model, _) = model(Caching::Static);
    let error = Chat::new(&model, &letters()).err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("the tokenizer has none"), "{error}");
}
