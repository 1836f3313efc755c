//! Attacks by clients with a token: they ask for more than their part.

use super::wire::Attacker;
use super::{MEMORY, server, serves, text};
use kiln_ir::{DType, Error, Op, ResizeMode, Scalar, SliceAxis, TensorType, Unary};
use kiln_remote::message::{
    Answer, Argument, MemoryChange, Question, Reply, Request, SentOp, Source, Step, Template,
};
use kiln_remote::server::Server;
use kiln_remote::{RemoteBackend, RemoteDevice};
use kiln_tensor::Tensor;
use std::time::{Duration, Instant};

fn step(op: Op, operands: Vec<Source>) -> Step {
    Step { op: SentOp(op), operands }
}

fn full(bytes: usize) -> Op {
    Op::Full(TensorType::new([bytes / 4], DType::F32))
}

fn define(program: u32, inputs: Vec<TensorType>, steps: Vec<Step>, outputs: Vec<u32>) -> Request {
    Request::Define { program, template: Template { inputs, steps, outputs } }
}

fn run(program: u32, inputs: Vec<Argument>, numbers: usize, first: u64) -> Request {
    Request::Run { program, inputs, numbers: vec![Scalar::from(1.0); numbers], first }
}

/// Waits until the sessions of clients that said goodbye have ended, and serves another.
fn recovers(server: &Server) -> Result<(), String> {
    let since = Instant::now();
    while server.sessions() > 0 {
        if since.elapsed() > Duration::from_secs(8) {
            return Err(format!("{} sessions are left 8 s after their clients", server.sessions()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    serves(server)
}

/// The outcome of one op on a value of a few elements, beside which the server serves others.
fn one_op(op: Op, input: Option<TensorType>) -> Result<(), String> {
    let server = server()?;
    let mut attacker = Attacker::new(server.address())?;
    let inputs: Vec<TensorType> = input.into_iter().collect();
    let operands = inputs.iter().map(|_| Source::Input(0)).collect();
    attacker.send(&define(0, inputs.clone(), vec![step(op, operands)], vec![0]), &[])?;
    let arguments = inputs.iter().map(|_| Argument { id: 1, is_last: true }).collect();
    for ty in &inputs {
        attacker.send(&Request::Write { id: 1, ty: *ty }, &vec![0; ty.num_bytes()])?;
    }
    attacker.send(&run(0, arguments, 0, 0), &[])?;
    attacker.send(&Request::Ask { question: 1, about: Question::Data(0) }, &[])?;
    let reply = attacker.receive()?;
    if !matches!(reply, Reply::Data { .. } | Reply::Answer { answer: Answer::Failed(_), .. }) {
        return Err(format!("the elements of the result are {reply:?}"));
    }
    drop(attacker);
    serves(&server)
}

pub(super) fn resize_huge() -> Result<(), String> {
    let op = Op::Resize { mode: ResizeMode::Nearest, size: vec![1 << 32, 0], align_corners: false };
    one_op(op, Some(TensorType::new([1, 1, 5, 1], DType::F32)))
}

pub(super) fn zero_elements_tril() -> Result<(), String> {
    let server = server()?;
    let device = RemoteDevice::new(server.url()).with_token(super::TOKEN);
    let data = Tensor::<RemoteBackend, 2>::zeros([1 << 40, 0], &device).tril(0).try_into_data();
    if let Ok(data) = data
        && data.num_elements() != 0
    {
        return Err(format!("{} elements in place of none", data.num_elements()));
    }
    serves(&server)
}

pub(super) fn iota_of_zero_elements() -> Result<(), String> {
    one_op(Op::Iota { ty: TensorType::new([1 << 40, 0], DType::F32), axis: 0 }, None)
}

pub(super) fn run_after_limit_zero() -> Result<(), String> {
    let server = server()?;
    let mut attacker = Attacker::new(server.address())?;
    attacker.send(&Request::Memory(MemoryChange::Limit(Some(0))), &[])?;
    attacker.send(&define(0, vec![], vec![step(full(64 << 20), vec![Source::Number])], vec![0]), &[])?;
    for round in 0..100 {
        attacker.send(&run(0, vec![], 1, 2 * round), &[])?;
    }
    attacker.send(&Request::Ask { question: 1, about: Question::Data(0) }, &[])?;
    expect_quota(attacker.receive()?, "quota of 0 bytes")?;
    if server.usage().bytes > 0 {
        return Err(format!("{} bytes are held at a limit of 0", server.usage().bytes));
    }
    serves(&server)
}

/// Sends until the server ends the session; right is an end that names a quota.
fn flood(messages: impl Iterator<Item = Request>) -> Result<(), String> {
    let server = server()?;
    let mut attacker = Attacker::new(server.address())?;
    let mut ended = None;
    for message in messages {
        let sent = attacker.send(&message, &[]);
        let settled = attacker.settle()?;
        if let Some(reason) = settled.or(sent.err()) {
            ended = Some(reason);
            break;
        }
    }
    let reason = ended.map_or_else(|| attacker.settle(), |reason| Ok(Some(reason)))?;
    let reason = reason.ok_or("the server took everything")?;
    if !reason.contains("quota") {
        return Err(format!("the end does not name a quota: {reason}"));
    }
    drop(attacker);
    recovers(&server)
}

pub(super) fn poison_flood() -> Result<(), String> {
    let ty = TensorType::new([1], DType::F32);
    let error = Error::value("attack", "x".repeat(500_000));
    flood((0..4000).map(|id| Request::Poison { id, ty, error: error.clone() }))
}

pub(super) fn define_flood() -> Result<(), String> {
    let operands = vec![Source::Result(0); 1000];
    let concat = |_| step(Op::Concat { axis: 0 }, operands.clone());
    let steps: Vec<Step> =
        std::iter::once(step(full(4), vec![Source::Number])).chain((0..400).map(concat)).collect();
    flood((0..1024).map(|program| define(program, vec![], steps.clone(), vec![0])))
}

pub(super) fn intermediates_of_one_batch() -> Result<(), String> {
    let server = server()?;
    let mut attacker = Attacker::new(server.address())?;
    // 200 values of 32 MiB that are all needed at the end, of which nothing is held afterwards.
    let mut steps: Vec<Step> = (0..200).map(|_| step(full(32 << 20), vec![Source::Number])).collect();
    steps.push(step(Op::Concat { axis: 0 }, (0..200).map(Source::Result).collect()));
    let all = SliceAxis { start: 0, len: 1, step: 1 };
    steps.push(step(Op::Slice(vec![all]), vec![Source::Result(200)]));
    attacker.send(&define(0, vec![], steps, vec![201]), &[])?;
    attacker.send(&run(0, vec![], 200, 0), &[])?;
    attacker.send(&Request::Ask { question: 1, about: Question::Data(402) }, &[])?;
    expect_quota(attacker.receive()?, "quota")?;
    serves(&server)
}

/// One element of each large value: a view would keep all of it.
pub(super) fn views_that_keep_memory() -> Result<(), String> {
    let server = server()?;
    let mut attacker = Attacker::new(server.address())?;
    let ty = TensorType::new([4 << 20], DType::F32);
    let first = SliceAxis { start: 0, len: 1, step: 1 };
    let steps = vec![
        step(Op::Full(ty), vec![Source::Number]),
        step(Op::Unary(Unary::Exp), vec![Source::Result(0)]),
        step(Op::Copy, vec![Source::Result(1)]),
        step(Op::Slice(vec![first]), vec![Source::Result(2)]),
    ];
    attacker.send(&define(0, vec![], steps, vec![3]), &[])?;
    for round in 0..100 {
        attacker.send(&run(0, vec![], 1, 8 * round), &[])?;
        attacker.settle()?;
    }
    if server.usage().bytes > MEMORY {
        return Err(format!("{} bytes are held", server.usage().bytes));
    }
    drop(attacker);
    serves(&server)
}

/// Large inputs of ops that an engine may put off, dropped by the client.
pub(super) fn inputs_that_wait() -> Result<(), String> {
    let server = server()?;
    let device = RemoteDevice::new(server.url()).with_token(super::TOKEN);
    let data = kiln_ir::TensorData::from(vec![1f32; 8 << 20]);
    let mut sums = Vec::new();
    for _ in 0..16 {
        let x = Tensor::<RemoteBackend, 1>::from_data(data.clone(), &device);
        sums.push(x.sum());
    }
    for sum in sums {
        let found = sum.try_into_data().map_err(text)?.to_vec::<f32>();
        if found != [(8 << 20) as f32] {
            return Err(format!("a sum is {found:?}"));
        }
    }
    serves(&server)
}

/// A client that does not wait for acknowledgements, while the server is at work.
pub(super) fn window_ignored() -> Result<(), String> {
    let server = server()?;
    let mut attacker = Attacker::new(server.address())?;
    work(&mut attacker, 500)?;
    let ty = TensorType::new([100 << 10], DType::F32);
    let bytes = vec![0; ty.num_bytes()];
    let most = 1000;
    let sent =
        (0..most).take_while(|id| attacker.send(&Request::Write { id: 2 * id + 1, ty }, &bytes).is_ok());
    let sent = sent.count();
    let word = attacker.settle()?.ok_or("400 MB were taken, whatever the window is")?;
    if sent as u64 == most && !(word.contains("window") || word.contains("quota")) {
        return Err(format!("the end does not name the window: {word}"));
    }
    drop(attacker);
    serves(&server)
}

/// Gives the server a batch of some seconds, one op after the other, and asks for the result.
fn work(attacker: &mut Attacker, ops: u32) -> Result<(), String> {
    let ty = TensorType::new([200, 1000], DType::F32);
    let mut steps = vec![step(Op::Full(ty), vec![Source::Number])];
    let sort = Op::Sort { axis: 1, descending: false, index: DType::I32 };
    steps.extend((0..ops).map(|of| step(sort.clone(), vec![Source::Result((2 * of).saturating_sub(1))])));
    let (first, last) = (1 << 40, 2 * ops - 1);
    attacker.send(&define(7, vec![], steps, vec![last]), &[])?;
    attacker.send(&run(7, vec![], 1, first), &[])?;
    attacker.send(&Request::Ask { question: 7, about: Question::Data(first + 2 * u64::from(last)) }, &[])
}

/// Its work ends within a moment of the client.
pub(super) fn client_gone_during_work() -> Result<(), String> {
    let server = server()?;
    let mut attacker = Attacker::new(server.address())?;
    work(&mut attacker, 4000)?;
    std::thread::sleep(Duration::from_millis(300));
    let closed = kiln_remote::codec::encode(&kiln_remote::message::Frame::Closed(None), &[]).map_err(text)?;
    super::wire::send(&mut attacker.stream, &closed)?;
    drop(attacker);
    recovers(&server)
}

/// Checks that a reply is an error that names a quota.
fn expect_quota(reply: Reply, named: &str) -> Result<(), String> {
    match &reply {
        Reply::Answer { answer: Answer::Failed(error), .. } if error.to_string().contains(named) => Ok(()),
        Reply::Answer { .. } | Reply::Data { .. } | Reply::Chunk { .. } => {
            Err(format!("work beyond the {named} is answered by {reply:?}"))
        }
    }
}
