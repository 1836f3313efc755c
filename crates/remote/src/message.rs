//! The messages of the protocol.
//!
//! A connection carries [`Frame`]s, one in each binary WebSocket message. The first of the client is [`Frame::Hello`], answered
//! by [`Frame::Welcome`] or [`Frame::Refused`]. Then both sides send [`Frame::Payload`]s, numbered from 1, and
//! [`Frame::Ack`]s, which are also the heartbeat. The bytes behind a payload's header are a [`Request`] of the client or a
//! [`Reply`] of the server, and behind that come bytes of a tensor where the message has some.
//!
//! A [`Template`] is a recorded batch of ops without the numbers and ids that differ from run to run: the server keeps
//! it under a number, and [`Request::Run`] names that.

use crate::codec::{bounded, serialize_nested};
use kiln_ir::{
    Caps, DType, DTypeSet, Error, FxHasher, Machine, MemoryUse, OPS, Op, OpKind, OpSet, Products, Scalar,
    TensorType,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::hash::Hasher;

/// The first bytes of a connection.
pub const MAGIC: [u8; 4] = *b"KILN";

/// The version of the protocol.
pub const PROTOCOL: u16 = 4;

/// The most steps of a [`Template`].
pub const MAX_STEPS: usize = 4096;

/// The most operands of one step, and the most ids or numbers in one message.
pub const MAX_LIST: usize = 1 << 16;

/// The ops that are never sent: programs inside ops, user code, and groups.
pub const UNSENT: [OpKind; 4] = [OpKind::Fused, OpKind::Loop, OpKind::Custom, OpKind::Collective];

/// The content of one binary WebSocket message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Frame {
    /// The client's first frame.
    Hello(Box<Hello>),
    /// The server's answer.
    Welcome(Box<Welcome>),
    /// The server's answer to a client that it does not serve. The connection ends.
    Refused(Error),
    /// A message, which follows the header. Numbered from 1 in each direction.
    Payload {
        /// The number.
        sequence: u64,
    },
    /// All messages up to this number were processed. Sent at intervals too, as a heartbeat.
    Ack {
        /// The number.
        sequence: u64,
    },
    /// The session ends, because of the error if there is one.
    Closed(Option<Error>),
}

/// The client's introduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// [`fingerprint`] of the client.
    pub fingerprint: u64,
    /// The token, empty where there is none.
    pub token: String,
    /// The session to go on with.
    pub resume: Option<Resume>,
}

/// The session that a client goes on with after its connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The session's number.
    pub session: u64,
    /// The secret that its client was told.
    pub secret: [u64; 2],
    /// The number of the last message that the client received.
    pub received: u64,
}

/// The server's introduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The session's number.
    pub session: u64,
    /// The secret with which the client may resume the session.
    pub secret: [u64; 2],
    /// The number of the last message that the server received.
    pub received: u64,
    /// How many messages the client may have sent that are not acknowledged.
    pub window_messages: u32,
    /// How many bytes they may have.
    pub window_bytes: u64,
    /// How many programs the session keeps.
    pub programs: u32,
    /// How long the server keeps the session without a connection, in milliseconds.
    pub grace_millis: u64,
    /// The interval of heartbeats, in milliseconds.
    pub heartbeat_millis: u64,
    /// The server's device.
    pub offer: Offer,
}

/// The device of a server, as its clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The name of the engine.
    pub engine: String,
    /// The name of the device.
    pub device: String,
    /// The dtypes of new tensors of floats and of integers.
    pub default_dtypes: [DType; 2],
    /// The dtypes that the engine supports in all ops.
    #[serde(with = "dtype_list")]
    pub dtypes: DTypeSet,
    /// The ops that it runs, by their place in [`OpKind::ALL`].
    #[serde(deserialize_with = "bounded::<_, _, 1024>")]
    pub native: Vec<u16>,
    /// The machine.
    #[serde(with = "MachineFields")]
    pub machine: Machine,
    /// Whether it answers [`Question::Memory`] with statistics.
    pub tracks_memory: bool,
}

/// The fields of a [`Machine`], with its dtypes as a list of known length.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Machine")]
struct MachineFields {
    threads: usize,
    workgroup: usize,
    subgroup: usize,
    shared_bytes: usize,
    bindings: Option<usize>,
    memory_bytes: Option<u64>,
    #[serde(with = "dtype_list")]
    dtypes: DTypeSet,
    row_elements: usize,
    kernel_ops: usize,
    products: Products,
    indexed_loads: bool,
    asynchronous: bool,
    host_errors: bool,
    exact_regions: bool,
}

/// The fields of a [`MemoryUse`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "MemoryUse")]
struct MemoryFields {
    live_bytes: usize,
    cached_bytes: usize,
    peak_live_bytes: usize,
    system_allocations: u64,
    reuses: u64,
}

/// A set of dtypes as a list of known length.
mod dtype_list {
    use super::{DType, DTypeSet, Deserializer, Serialize, Serializer, bounded};

    pub(super) fn serialize<S: Serializer>(set: &DTypeSet, serializer: S) -> Result<S::Ok, S::Error> {
        set.iter().collect::<Vec<DType>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DTypeSet, D::Error> {
        bounded::<D, DType, 64>(deserializer).map(|list| DTypeSet::of(&list))
    }
}

impl Offer {
    /// Returns the offer of an engine that does not track memory.
    pub fn new(caps: &Caps, device: &str, default_dtypes: [DType; 2]) -> Offer {
        let native = caps.native.without(&UNSENT).iter().map(|kind| kind as u16).collect();
        let (engine, device) = (caps.name.clone(), device.to_string());
        let (dtypes, machine) = (caps.dtypes, caps.machine);
        Offer { engine, device, default_dtypes, dtypes, native, machine, tracks_memory: false }
    }

    /// Returns the offer as the capabilities of the client's engine, which queues everything.
    pub fn caps(&self) -> Caps {
        let kinds = self.native.iter().filter_map(|kind| OpKind::ALL.get(usize::from(*kind)).copied());
        let native = kinds.collect::<OpSet>().without(&UNSENT);
        let machine = Machine { asynchronous: true, host_errors: false, ..self.machine };
        Caps { name: format!("remote {}", self.engine), dtypes: self.dtypes, native, machine }
    }
}

/// Tells versions of Kiln apart whose ops differ on the wire: a hash of the version and the names of all ops.
pub fn fingerprint() -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
    for op in &OPS {
        hasher.write(op.name.as_bytes());
    }
    hasher.finish()
}

/// A message of the client. Ids are chosen by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Keeps a template under a number, in place of the one that was there.
    Define {
        /// The number.
        program: u32,
        /// The template.
        template: Template,
    },
    /// Runs a template.
    Run {
        /// The template's number.
        program: u32,
        /// The values of its inputs.
        #[serde(deserialize_with = "bounded::<_, _, MAX_LIST>")]
        inputs: Vec<Argument>,
        /// Its numbers, in the order of the steps.
        #[serde(deserialize_with = "bounded::<_, _, MAX_LIST>")]
        numbers: Vec<Scalar>,
        /// The id of result number 0. Result `n` has the id `first + 2 * n`, if it is an output.
        first: u64,
    },
    /// Makes a value of bytes, which follow. A value of more than [`CHUNK`](crate::codec::CHUNK) bytes is continued by
    /// [`Chunk`](Request::Chunk)s.
    Write {
        /// The value's id.
        id: u64,
        /// Its type.
        ty: TensorType,
    },
    /// The next bytes of a value.
    Chunk {
        /// The value's id.
        id: u64,
    },
    /// Makes a value that carries an error.
    Poison {
        /// The value's id.
        id: u64,
        /// Its type.
        ty: TensorType,
        /// The error.
        error: Error,
    },
    /// Drops values.
    Free {
        /// Their ids.
        #[serde(deserialize_with = "bounded::<_, _, MAX_LIST>")]
        ids: Vec<u64>,
    },
    /// Asks for something. The reply has the same number.
    Ask {
        /// The number of the question.
        question: u64,
        /// The question.
        about: Question,
    },
    /// A unit of work ends here.
    Submit,
    /// Changes how memory is used.
    Memory(MemoryChange),
}

/// A change of the use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryChange {
    /// Resets the peak of the server's device to its live bytes.
    ResetPeak,
    /// Returns cached memory of the server's device to the system.
    Trim,
    /// Sets the most bytes of the session's values. The server's quota is the upper bound, and the value of `None`.
    Limit(Option<u64>),
}

/// The questions of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// The elements of a value, by its id.
    Data(u64),
    /// The type of a value, where it depends on data.
    Type(u64),
    /// How a value was computed, as text.
    Explain(u64),
    /// Whether everything that was queued is done.
    Sync,
    /// The memory statistics of the device.
    Memory,
}

/// The value of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// The value's id.
    pub id: u64,
    /// Whether the client has dropped the value: the server may overwrite it.
    pub is_last: bool,
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The elements of a value, which follow, continued by [`Chunk`](Reply::Chunk)s.
    Data {
        /// The number of the question.
        question: u64,
        /// The value's type.
        ty: TensorType,
    },
    /// The next bytes of a value.
    Chunk {
        /// The number of the question.
        question: u64,
    },
    /// Any other answer.
    Answer {
        /// The number of the question.
        question: u64,
        /// The answer.
        answer: Answer,
    },
}

/// An answer without elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// A type.
    Type(TensorType),
    /// A text, if there is one.
    Text(Option<String>),
    /// Everything is done.
    Done,
    /// Memory statistics; zeros if the device has none.
    Memory(#[serde(with = "MemoryFields")] MemoryUse),
    /// The error of the question.
    Failed(Error),
}

/// The structure of a batch of ops, without the ids and numbers that differ between runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Template {
    /// The types of its inputs.
    #[serde(deserialize_with = "bounded::<_, _, MAX_LIST>")]
    pub inputs: Vec<TensorType>,
    /// The ops, in order.
    #[serde(deserialize_with = "bounded::<_, _, MAX_STEPS>")]
    pub steps: Vec<Step>,
    /// The numbers of the results that the client still holds, in ascending order.
    #[serde(deserialize_with = "bounded::<_, _, MAX_LIST>")]
    pub outputs: Vec<u32>,
}

/// One op of a [`Template`]. Its results have the next free numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// The op.
    pub op: SentOp,
    /// Its operands.
    #[serde(deserialize_with = "bounded::<_, _, MAX_LIST>")]
    pub operands: Vec<Source>,
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Source {
    /// An input, by number.
    Input(u32),
    /// A result of an earlier step, by number.
    Result(u32),
    /// The next number of the run.
    Number,
}

/// An op on the wire: its bytes, with their length in front. Ops that hold a program are refused before they are read, since
/// programs nest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SentOp(pub Op);

impl Serialize for SentOp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_nested(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for SentOp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SentOp, D::Error> {
        let bytes = <&[u8]>::deserialize(deserializer)?;
        // The variant comes first, in one byte.
        let kind = bytes.first().copied().unwrap_or(u8::MAX);
        if usize::from(kind) >= OPS.len() || UNSENT.iter().any(|unsent| *unsent as u8 == kind) {
            return Err(D::Error::custom("an op that is never sent"));
        }
        match postcard::take_from_bytes(bytes) {
            Ok((op, [])) => Ok(SentOp(op)),
            Ok(_) => Err(D::Error::custom("bytes follow an op")),
            Err(error) => Err(D::Error::custom(error)),
        }
    }
}

const _: () = assert!(OPS.len() < 128, "the variant of an op is one byte");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{decode, decode_all, encode};
    use kiln_ir::{
        AttentionSpec, Axes, Binary, Collective, CollectiveKind, FusedOp, Program, Reduction, Shape, Unary,
    };

    fn samples() -> Vec<Request> {
        let ty = TensorType::new([2, 3], DType::F32);
        let step = |op, operands| Step { op: SentOp(op), operands };
        let template = Template {
            inputs: vec![ty, ty],
            steps: vec![
                step(Op::Binary(Binary::Add), vec![Source::Input(0), Source::Input(1)]),
                step(Op::Unary(Unary::Exp), vec![Source::Result(0)]),
                step(Op::Reduce { reduction: Reduction::Sum, axes: Axes::one(1) }, vec![Source::Result(1)]),
                step(Op::Reshape(Shape::new([2])), vec![Source::Result(2)]),
                step(Op::Binary(Binary::Mul), vec![Source::Result(3), Source::Number]),
            ],
            outputs: vec![0, 4],
        };
        let inputs = vec![Argument { id: 2, is_last: false }, Argument { id: 9, is_last: true }];
        vec![
            Request::Define { program: 3, template },
            Request::Run { program: 3, inputs, numbers: vec![Scalar::Float(0.5)], first: 12 },
            Request::Write { id: 7, ty },
            Request::Chunk { id: 7 },
            Request::Poison { id: 11, ty, error: Error::value("take", "an index").hint("count again") },
            Request::Free { ids: vec![1, 2, 1 << 40] },
            Request::Ask { question: 5, about: Question::Data(7) },
            Request::Submit,
            Request::Memory(MemoryChange::Limit(Some(1 << 33))),
        ]
    }

    fn replies() -> Vec<Reply> {
        let ty = TensorType::new([2, 3], DType::F32);
        let memory = MemoryUse { live_bytes: 24, peak_live_bytes: 1 << 40, ..MemoryUse::default() };
        let answers =
            [Answer::Type(ty), Answer::Text(Some("fused".into())), Answer::Done, Answer::Memory(memory)];
        let failed = Answer::Failed(Error::device("server", "full"));
        let answer = |answer| Reply::Answer { question: 9, answer };
        let data = [Reply::Data { question: 8, ty }, Reply::Chunk { question: 8 }];
        data.into_iter().chain(answers.into_iter().chain([failed]).map(answer)).collect()
    }

    fn frames() -> Vec<Frame> {
        let resume = Some(Resume { session: 1, secret: [2, 3], received: 4 });
        let hello = Hello {
            magic: MAGIC,
            protocol: PROTOCOL,
            fingerprint: fingerprint(),
            token: "secret".into(),
            resume,
        };
        let caps = Caps {
            name: "cpu".into(),
            dtypes: DTypeSet::ALL,
            native: OpSet::ALL,
            machine: Machine::processor(),
        };
        let welcome = Welcome {
            session: 1,
            secret: [2, 3],
            received: 9,
            window_messages: 64,
            window_bytes: 1 << 24,
            programs: 1024,
            grace_millis: 30_000,
            heartbeat_millis: 5_000,
            offer: Offer::new(&caps, "cpu", [DType::F32, DType::I32]),
        };
        vec![
            Frame::Hello(Box::new(hello)),
            Frame::Welcome(Box::new(welcome)),
            Frame::Refused(Error::device("server", "full")),
            Frame::Payload { sequence: 12 },
            Frame::Ack { sequence: u64::MAX },
            Frame::Closed(None),
        ]
    }

    #[test]
    fn messages_survive_the_wire() {
        for request in samples() {
            assert_eq!(decode_all::<Request>(&encode(&request, &[]).unwrap()).unwrap(), request);
        }
        for reply in replies() {
            assert_eq!(decode_all::<Reply>(&encode(&reply, &[]).unwrap()).unwrap(), reply);
        }
        for frame in frames() {
            assert_eq!(decode_all::<Frame>(&encode(&frame, &[]).unwrap()).unwrap(), frame);
        }
    }

    #[test]
    fn a_batch_of_five_ops_is_small() {
        let define = encode(&samples()[0], &[]).unwrap().len();
        let run = encode(&samples()[1], &[]).unwrap().len();
        assert!(define < 80 && run < 24, "{define} and {run} bytes");
    }

    #[test]
    fn the_offer_becomes_the_capabilities_of_the_client() {
        let offer = Offer { native: vec![OpKind::MatMul as u16, 60_000], ..offer() };
        let caps = offer.caps();
        assert_eq!(caps.native, OpSet::of(&[OpKind::MatMul]));
        assert!(!self::offer().caps().native.contains(OpKind::Custom));
    }

    fn offer() -> Offer {
        let Frame::Welcome(welcome) = frames().swap_remove(1) else {
            panic!("the frames are in another order")
        };
        welcome.offer
    }

    #[test]
    fn ops_that_nest_are_refused_before_they_are_read() {
        let fused = Op::Fused(FusedOp::new(Program::default()));
        let group = Op::Collective(Collective {
            kind: CollectiveKind::Send { to: 0, tag: 0 },
            group: 0,
            rank: 0,
            size: 1,
        });
        for op in [fused, group] {
            assert_eq!(usize::from(postcard::to_stdvec(&op).unwrap()[0]), op.kind() as usize);
            let bytes = postcard::to_stdvec(&SentOp(op)).unwrap();
            assert!(decode_all::<SentOp>(&bytes).is_err());
        }
        let attention = Op::Attention(AttentionSpec { scale: 0.5.into(), causal: Some(-3) });
        let bytes = postcard::to_stdvec(&SentOp(attention.clone())).unwrap();
        assert_eq!(decode_all::<SentOp>(&bytes).unwrap().0, attention);
        // 100,000 regions within each other, of a few bytes each.
        let depth = vec![OpKind::Fused as u8; 100_000];
        assert!(decode_all::<SentOp>(&encode(&serde_bytes_of(&depth), &[]).unwrap()).is_err());
    }

    fn serde_bytes_of(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    /// Every prefix, every changed byte, and noise: an error or another message, never a panic.
    #[test]
    fn damaged_messages_are_errors() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let requests = samples().into_iter().map(|request| encode(&request, &[]).unwrap());
        let all: Vec<Vec<u8>> = requests.chain(frames().iter().map(|f| encode(f, &[]).unwrap())).collect();
        for bytes in &all {
            for length in 0..bytes.len() {
                assert!(decode_all::<Request>(&bytes[..length]).is_err() || length > 0);
                let _ = decode::<Frame>(&bytes[..length]);
            }
            for _ in 0..2000 {
                let mut damaged = bytes.clone();
                for _ in 0..=next() % 3 {
                    let place = next() as usize % damaged.len();
                    damaged[place] = next() as u8;
                }
                let _ = (decode::<Request>(&damaged), decode::<Reply>(&damaged), decode::<Frame>(&damaged));
            }
        }
        for _ in 0..20_000 {
            let noise: Vec<u8> = (0..next() % 64).map(|_| next() as u8).collect();
            let _ = (decode::<Request>(&noise), decode::<Reply>(&noise), decode::<Frame>(&noise));
        }
    }
}
