//! `kiln chat` as a process, on a tiny Llama whose replies `transformers` computed; see `fixtures/tiny-llama`.

#![cfg(feature = "chat")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny-llama")
}

/// Messages and replies of greedy decoding.
fn expected(kind: &str) -> Vec<(String, String)> {
    let text = std::fs::read(model().join("expected.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    json[kind].as_array().unwrap().iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn chat(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("chat").arg(model()).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &[&str], input: &str) -> Output {
    let mut child = chat(words).spawn().unwrap();
    // A command that fails early closes its stdin.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[track_caller]
fn succeeds(words: &[&str], input: &str) -> (String, String) {
    let output = run(words, input);
    let (text, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{words:?}: {errors}");
    (text, errors)
}

/// Settings of greedy decoding.
const GREEDY: [&str; 6] = ["--temperature", "0", "--repetition-penalty", "1", "--max-tokens", "24"];

#[test]
fn raw_text_is_continued_as_by_transformers() {
    for (text, reply) in expected("raw") {
        let (found, statistics) = succeeds(&[&["--raw", "--prompt", &text], &GREEDY[..]].concat(), "");
        assert_eq!(found.trim_end_matches('\n'), reply.trim_end_matches('\n'), "{text}");
        assert!(statistics.contains("tokens/s"), "{statistics}");
    }
}

#[test]
fn lines_of_the_input_are_turns_of_a_chat() {
    let turns = expected("chat");
    let input: String = turns.iter().map(|(message, _)| format!("{message}\n")).collect();
    let replies: String = turns.iter().map(|(_, reply)| format!("{reply}\n")).collect();
    let words = [&["--system", "Be brief."], &GREEDY[..]].concat();
    let (text, errors) = succeeds(&words, &input);
    assert_eq!(text, replies);
    assert_eq!(errors.matches("tokens/s").count(), 2 * turns.len(), "{errors}");

    // After a reset, the first message has the first reply again.
    let first = &turns[0];
    let input = format!("{}\n\n/reset\n/help\n{}\n/exit\nnever answered\n", first.0, first.0);
    let (text, errors) = succeeds(&words, &input);
    assert_eq!(text, format!("{}\n{}\n", first.1, first.1));
    assert!(errors.contains("/help is no command"), "{errors}");

    let (text, _) = succeeds(&[&["--prompt", &first.0], &words[..]].concat(), "");
    assert_eq!(text, format!("{}\n", first.1));
}

#[test]
fn a_seed_repeats_an_answer() {
    let words =
        |seed| ["--raw", "--prompt", "a tensor", "--max-tokens", "40", "--temperature", "2", "--seed", seed];
    let text = |seed| succeeds(&words(seed), "").0;
    assert_eq!(text("1"), text("1"));
    assert_ne!(text("1"), text("2"));
}

#[test]
fn invalid_options_and_models_are_errors() {
    let error = |words: &[&str]| {
        let output = run(words, "");
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error(&["--temperature=-1"]).contains("temperature"));
    assert!(error(&["--top-p", "1.5"]).contains("top_p"));
    assert!(error(&["--max-tokens", "0"]).contains("max_new_tokens"));
    assert!(error(&["--raw", "--system", "x"]).contains("--system"));
    assert!(error(&["--device", "none"]).contains("none"));
    for (name, expected) in
        [("no/such/file.gguf", "no such file or folder"), ("kiln-tests/none", "is not in the cache")]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_kiln")).args(["chat", name]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(expected), "{text}");
    }
}

/// Interrupts the answer that a seed gives. Returns false if the answer ended before the signal arrived.
#[cfg(unix)]
fn interrupts(seed: u32) -> bool {
    let seed = seed.to_string();
    let words = ["--raw", "--temperature", "1", "--max-tokens", "450", "--seed", &seed];
    let mut child = chat(&words).spawn().unwrap();
    // The end of the input ends the chat, whatever the answer is.
    child.stdin.take().unwrap().write_all(b"a tensor\n").unwrap();
    if child.stdout.as_mut().unwrap().read(&mut [0]).unwrap() == 1 {
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let stopped = errors.contains("; stopped]");
    assert!(output.status.success() || !stopped, "{errors}");
    stopped
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_answer_and_not_the_chat() {
    assert!((1..=40).any(interrupts));
}

/// SmolLM2 as GGUF, where `KILN_MODELS_DIR` names a folder of published models; see
/// `crates/models/tests/fixtures/published.py`. The text is that of llama.cpp.
#[test]
fn a_published_gguf_file_is_continued_as_by_llama_cpp() {
    let models = std::env::var_os("KILN_MODELS_DIR").map(PathBuf::from);
    let file =
        models.map(|folder| folder.join("SmolLM2-135M-Instruct.Q4_1.gguf")).filter(|file| file.is_file());
    let Some(file) = file else {
        println!("skipped: SmolLM2-135M-Instruct.Q4_1.gguf is not in KILN_MODELS_DIR");
        return;
    };
    let words =
        ["--raw", "--prompt", "The capital of France is", "--temperature", "0", "--repetition-penalty", "1"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("chat").arg(file).args(words).args(["--max-tokens", "8"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), " Paris.\n\nThe answer is:\n");
}
