//! A peer that is running: requests to its standard input, answers from its standard output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use bench_protocol::Refusal;
use serde_json::Value;

/// Timeout of a request, longer than any workload with its compilation.
const LIMIT: Duration = Duration::from_secs(900);

/// A running peer. It ends when this is dropped.
pub(crate) struct Running {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    alive: bool,
}

impl Running {
    /// Starts the program.
    pub(crate) fn start(command: &mut Command) -> Result<Running, String> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| format!("cannot start: {error}"))?;
        let (sender, answers) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.map_while(|line| sender.send(line).ok()).for_each(drop);
            });
        }
        let requests = child.stdin.take();
        Ok(Running { child, requests, answers, alive: true })
    }

    /// Whether the program still runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, request: &str) -> Result<Value, Refusal> {
        let sent = self.requests.as_mut().is_some_and(|input| {
            input.write_all(format!("{request}\n").as_bytes()).and_then(|()| input.flush()).is_ok()
        });
        if !sent {
            return Err(self.gone("it ended"));
        }
        loop {
            match self.answers.recv_timeout(LIMIT) {
                Ok(line) => match answer(&line) {
                    Some(answer) => return answer,
                    // A library of the peer printed something.
                    None => eprintln!("{line}"),
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.gone(&format!("no answer within {} s", LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone("it ended")),
            }
        }
    }

    fn gone(&mut self, why: &str) -> Refusal {
        self.alive = false;
        Refusal::Failed(format!("{why} ({})", self.end()))
    }

    /// Closes its input, which ends it; a process that does not end is killed.
    fn end(&mut self) -> String {
        drop(self.requests.take());
        for _ in 0..50 {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.to_string();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let stopped = self.child.kill().and_then(|()| self.child.wait());
        stopped.map_or_else(|error| error.to_string(), |status| format!("stopped: {status}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Parses an answer line; `None` for other lines.
fn answer(line: &str) -> Option<Result<Value, Refusal>> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "ok" => {
            let value = serde_json::from_str(rest);
            Some(value.map_err(|error| Refusal::Failed(format!("unreadable answer `{line}`: {error}"))))
        }
        "unsupported" => Some(Err(Refusal::Unsupported(rest.to_owned()))),
        "error" => Some(Err(Refusal::Failed(rest.to_owned()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use std::path::Path;

    fn shell(script: &str) -> Running {
        Running::start(process::program("sh", Path::new(".")).args(["-c", script])).unwrap()
    }

    #[test]
    fn requests_get_their_answer_and_other_output_is_skipped() {
        let mut peer =
            shell(r#"read a; echo noise; echo "ok {\"ms\": [1.5]}"; read b; echo "unsupported $b""#);
        assert_eq!(peer.ask("run 1").unwrap()["ms"][0], 1.5);
        assert_eq!(peer.ask("prepare x"), Err(Refusal::Unsupported("prepare x".to_owned())));
    }

    #[test]
    fn a_peer_that_exits_is_reported() {
        let mut peer = shell("read a; exit 3");
        let Err(Refusal::Failed(reason)) = peer.ask("hello") else { panic!("no failure") };
        assert!(reason.contains("it ended") && reason.contains('3'), "{reason}");
        assert!(!peer.is_alive());
    }

    #[test]
    fn an_unreadable_answer_is_a_failure() {
        assert!(matches!(answer("ok {"), Some(Err(Refusal::Failed(_)))));
        assert_eq!(answer("warming up"), None);
    }
}
