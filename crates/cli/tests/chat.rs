//! `kiln chat` as a process, on a tiny Llama whose replies `transformers` computed; see `fixtures/tiny-llama`.

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
    chat_with(&model(), words)
}

fn chat_with(model: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("chat").arg(model).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &[&str], input: &str) -> Output {
    output(chat(words), input)
}

fn output(mut command: Command, input: &str) -> Output {
    let mut child = command.spawn().unwrap();
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
    let input = format!("{}\n\n/reset\n/forget\n{}\n/exit\nnever answered\n", first.0, first.0);
    let (text, errors) = succeeds(&words, &input);
    assert_eq!(text, format!("{}\n{}\n", first.1, first.1));
    assert!(errors.contains("/forget is no command"), "{errors}");

    let (text, _) = succeeds(&[&["--prompt", &first.0], &words[..]].concat(), "");
    assert_eq!(text, format!("{}\n", first.1));
}

/// The model with a `generation_config.json`.
fn model_with(generation: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(model()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    std::fs::write(folder.path().join("generation_config.json"), generation).unwrap();
    folder
}

/// The answer to a text, without settings of sampling in the words.
#[track_caller]
fn answer_of(generation: &str, words: &[&str]) -> String {
    let folder = model_with(generation);
    let output = output(chat_with(folder.path(), &[&["--raw"], words].concat()), "");
    assert!(output.status.success(), "{generation}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned()
}

#[test]
fn settings_of_the_model_apply() {
    let (text, reply) = expected("raw").remove(1);
    let prompt = ["--prompt", &text];
    for generation in [
        r#"{"do_sample": false, "max_new_tokens": 24}"#,
        r#"{"do_sample": true, "top_k": 1, "temperature": 0.5, "max_new_tokens": 24}"#,
        r#"{"temperature": 0.0, "repetition_penalty": 1.0, "max_new_tokens": 24}"#,
        // The prompt has 8 tokens.
        r#"{"do_sample": false, "max_length": 32}"#,
    ] {
        assert_eq!(answer_of(generation, &prompt), reply, "{generation}");
    }
    // Options have precedence.
    let greedy = r#"{"do_sample": false, "max_new_tokens": 24}"#;
    let words = [&prompt[..], &["--max-tokens", "5"]].concat();
    assert_eq!(answer_of(greedy, &words), reply[..5]);
    let words = [&prompt[..], &["--temperature", "3", "--seed", "1"]].concat();
    assert_ne!(answer_of(greedy, &words), reply);
    // Tokens that end the text: the id of `V` is 55, and of `%` 6. The model's own end is 0.
    for end in ["55", "[0, 55]", "[55, 6]"] {
        let generation = format!(r#"{{"do_sample": false, "max_new_tokens": 24, "eos_token_id": {end}}}"#);
        assert_eq!(answer_of(&generation, &prompt), reply.split('V').next().unwrap(), "{end}");
    }
    let generation = r#"{"do_sample": false, "max_new_tokens": 24, "stop_strings": ["NH", "zz"]}"#;
    assert_eq!(answer_of(generation, &prompt), reply.split("NH").next().unwrap());
}

#[track_caller]
fn contains(rows: &[String], expected: &[&str]) {
    for line in expected {
        assert!(rows.iter().any(|row| row == line), "{line}: {rows:?}");
    }
}

#[test]
fn help_lists_the_settings_and_their_origins() {
    let help = |generation: &str, words: &[&str]| {
        let folder = model_with(generation);
        let output = output(chat_with(folder.path(), words), "/help\n/exit\n");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && text.contains("/reset starts anew"), "{text}");
        let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        rows.collect::<Vec<_>>()
    };
    let file = "generation_config.json";
    let rows = help(
        r#"{"do_sample": true, "temperature": 0.6, "eos_token_id": [0, 5], "num_beams": 2, "top_p": 0.9}"#,
        &["--top-p", "0.5"],
    );
    contains(&rows, &[&format!("temperature 0.6 {file}"), "top-p 0.5 option", &format!("top-k 50 {file}")]);
    contains(&rows, &[&format!("min-p all {file}"), &format!("repetition-penalty 1 {file}")]);
    contains(&rows, &["max-tokens 1024 default", &format!("end tokens 0, 5 {file}")]);
    contains(&rows, &[&format!("num_beams not supported, no effect {file}")]);

    // A file that does not mention sampling leaves the defaults.
    let rows = help(r#"{"eos_token_id": 0, "max_length": 100, "top_k": 7}"#, &[]);
    contains(&rows, &["temperature 0.7 default", "top-p 0.95 default", "min-p 0.05 default"]);
    contains(&rows, &[&format!("top-k 7 {file}"), "repetition-penalty 1.1 default"]);
    contains(&rows, &[&format!("max-length 100 {file}")]);
    let rows = help(r#"{"do_sample": false}"#, &[]);
    contains(&rows, &[&format!("temperature 0, greedy {file}")]);
    assert!(!rows.iter().any(|row| row.starts_with("top-p")), "{rows:?}");
}

#[test]
fn invalid_settings_of_the_model_name_the_file() {
    for (generation, expected) in [(r#"{"top_p": 7}"#, "`top_p` is 7"), ("{", "not JSON")] {
        let folder = model_with(generation);
        let output = output(chat_with(folder.path(), &["--prompt", "x"]), "");
        let text = String::from_utf8(output.stderr).unwrap();
        let file = folder.path().join("generation_config.json");
        assert!(!output.status.success() && text.contains(expected), "{text}");
        assert!(text.contains(file.to_str().unwrap()), "{text}");
    }
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
/// `crates/models/tests/fixtures/published.py`. The raw text is that of llama.cpp, the answer that of PyTorch in `f32`.
#[test]
fn a_published_gguf_file_is_continued_as_by_llama_cpp_and_answers_as_pytorch() {
    let models = std::env::var_os("KILN_MODELS_DIR").map(PathBuf::from);
    let file =
        models.map(|folder| folder.join("SmolLM2-135M-Instruct.Q4_1.gguf")).filter(|file| file.is_file());
    let Some(file) = file else {
        println!("skipped: SmolLM2-135M-Instruct.Q4_1.gguf is not in KILN_MODELS_DIR");
        return;
    };
    let greedy = ["--temperature", "0", "--repetition-penalty", "1"];
    let answer = |words: &[&str]| {
        let output = output(chat_with(&file, &[words, &greedy].concat()), "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let raw = answer(&["--raw", "--prompt", "The capital of France is", "--max-tokens", "8"]);
    assert_eq!(raw, " Paris.\n\nThe answer is:\n");
    let reply = answer(&["--prompt", "What is the capital of France?", "--max-tokens", "16"]);
    assert_eq!(reply, "The capital of France is Paris.\n");
}
