//! Questions that wait for their answers.

use crate::codec::{CHUNK, decode, malformed};
use crate::message::{Answer, Reply};
use kiln_ir::{Error, Result, TensorData, TensorType};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The questions of a client, by number. The thread of the connection [delivers](Answers::deliver) replies.
#[derive(Default)]
pub struct Answers(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    waiting: HashMap<u64, Waiting>,
    lost: Option<Error>,
}

struct Waiting {
    /// The type of the elements that were asked for.
    expected: Option<TensorType>,
    bytes: Option<Vec<u8>>,
    found: Option<Result<Found>>,
    waker: Option<Waker>,
}

/// The answer to a question.
#[derive(Debug)]
pub enum Found {
    /// Elements.
    Data(TensorData),
    /// Anything else.
    Answer(Answer),
}

/// A question whose answer is on the way.
pub struct Asked {
    answers: Arc<Answers>,
    question: u64,
}

impl Answers {
    /// Returns a new question. `expected` is the type of the elements that it asks for.
    pub fn ask(self: &Arc<Self>, expected: Option<TensorType>) -> Asked {
        let mut state = self.lock();
        state.next += 1;
        let question = state.next;
        let found = state.lost.clone().map(Err);
        state.waiting.insert(question, Waiting { expected, bytes: None, found, waker: None });
        drop(state);
        Asked { answers: self.clone(), question }
    }

    /// Takes a reply of the server. Those of questions that nobody waits for are dropped.
    ///
    /// # Errors
    /// When the reply is malformed, or does not answer its question.
    pub fn deliver(&self, message: &[u8]) -> Result<()> {
        let (reply, tail) = decode::<Reply>(message)?;
        match reply {
            Reply::Data { question, ty } => self.data(question, Some(ty), tail),
            Reply::Chunk { question } => self.data(question, None, tail),
            Reply::Answer { question, answer } => {
                self.found(question, Ok(Found::Answer(answer)));
                Ok(())
            }
        }
    }

    /// Answers all questions, and those to come, with an error.
    pub fn fail(&self, error: &Error) {
        let mut state = self.lock();
        state.lost = Some(error.clone());
        for waiting in state.waiting.values_mut().filter(|waiting| waiting.found.is_none()) {
            waiting.found = Some(Err(error.clone()));
            wake(&mut waiting.waker);
        }
    }

    fn data(&self, question: u64, ty: Option<TensorType>, tail: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let Some(waiting) = state.waiting.get_mut(&question).filter(|waiting| waiting.found.is_none()) else {
            return Ok(());
        };
        let expected = waiting.expected.ok_or_else(|| malformed("elements that nobody asked for"))?;
        if let Some(ty) = ty {
            if ty != expected || waiting.bytes.is_some() {
                return Err(malformed(format!("elements of {ty} in place of {expected}")));
            }
            waiting.bytes = Some(Vec::with_capacity(expected.num_bytes().min(64 * CHUNK)));
        }
        let bytes = waiting.bytes.as_mut().ok_or_else(|| malformed("elements out of order"))?;
        let missing = expected.num_bytes() - bytes.len();
        if tail.len() > missing || (tail.is_empty() && missing > 0) {
            return Err(malformed("the bytes do not fill the tensor"));
        }
        bytes.extend_from_slice(tail);
        if bytes.len() == expected.num_bytes() {
            let data = TensorData::from_bytes(bytes, expected);
            waiting.bytes = None;
            waiting.found = Some(data.map(Found::Data));
            wake(&mut waiting.waker);
        }
        Ok(())
    }

    fn found(&self, question: u64, found: Result<Found>) {
        if let Some(waiting) = self.lock().waiting.get_mut(&question) {
            waiting.found = Some(found);
            wake(&mut waiting.waker);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    /// Returns the number of the question.
    pub fn question(&self) -> u64 {
        self.question
    }
}

impl Future for Asked {
    type Output = Result<Found>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Found>> {
        let mut state = self.answers.lock();
        let Some(waiting) = state.waiting.get_mut(&self.question) else {
            return Poll::Ready(Err(malformed("a question was asked twice")));
        };
        match waiting.found.take() {
            Some(found) => Poll::Ready(found),
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.answers.lock().waiting.remove(&self.question);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::encode;
    use kiln_ir::{DType, block_on};

    fn reply(reply: &Reply, tail: &[u8]) -> Vec<u8> {
        encode(reply, tail).unwrap()
    }

    #[test]
    fn elements_arrive_in_chunks() {
        let answers = Arc::new(Answers::default());
        let ty = TensorType::new([3], DType::U8);
        let asked = answers.ask(Some(ty));
        let question = asked.question();
        answers.deliver(&reply(&Reply::Data { question, ty }, &[1, 2])).unwrap();
        assert!(answers.deliver(&reply(&Reply::Chunk { question }, &[3, 4])).is_err(), "too many");
        answers.deliver(&reply(&Reply::Chunk { question }, &[3])).unwrap();
        let Ok(Found::Data(data)) = block_on(asked) else { panic!("no data") };
        assert_eq!(data.to_vec::<u8>(), [1, 2, 3]);
    }

    #[test]
    fn elements_of_another_type_are_refused() {
        let answers = Arc::new(Answers::default());
        let asked = answers.ask(Some(TensorType::new([3], DType::U8)));
        let ty = TensorType::new([1 << 40], DType::F32);
        let message = reply(&Reply::Data { question: asked.question(), ty }, &[1]);
        assert!(answers.deliver(&message).unwrap_err().to_string().contains("in place of u8[3]"));
    }

    #[test]
    fn a_lost_server_answers_all_questions() {
        let answers = Arc::new(Answers::default());
        let before = answers.ask(None);
        answers.fail(&Error::device("remote", "gone"));
        for asked in [before, answers.ask(None)] {
            assert!(block_on(asked).unwrap_err().to_string().contains("gone"));
        }
        assert!(answers.lock().waiting.is_empty());
    }
}
