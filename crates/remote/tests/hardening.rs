//! A server whose clients and whose network mean harm.

use kiln_backends::Cpu;
use kiln_ir::{DType, Error, Op, TensorType, Unary};
use kiln_remote::codec::{CHUNK, encode};
use kiln_remote::message::{
    Argument, Frame, Hello, MAGIC, MemoryChange, PROTOCOL, Request, SentOp, Source, Step, Template,
    fingerprint,
};
use kiln_remote::server::{Server, ServerOptions};
use kiln_remote::session::Session;
use kiln_remote::{Quotas, RemoteBackend, RemoteDevice};
use kiln_tensor::{Backend, Tensor};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn server(options: ServerOptions) -> Server {
    Server::bind::<Cpu>(&Default::default(), options).unwrap()
}

#[track_caller]
fn serves(server: &Server, token: &str) {
    let since = Instant::now();
    let device = RemoteDevice::new(server.url()).with_token(token);
    let x = Tensor::<RemoteBackend, 1>::from_floats([1.0, 2.0], &device);
    assert_eq!((x * 2).try_into_data().unwrap().to_vec::<f32>(), [2.0, 4.0]);
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
}

fn upgrade(headers: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\n{headers}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// What the server answers to a request, until it ends the connection or a second passes.
fn answer(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A connection that has sent this greeting.
fn greeted(server: &Server, hello: &Hello) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(upgrade("Host: localhost\r\n").as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let frame = encode(&Frame::Hello(Box::new(hello.clone())), &[]).unwrap();
    stream.write_all(&[0x82, 0x80 | frame.len() as u8, 0, 0, 0, 0]).unwrap();
    stream.write_all(&frame).unwrap();
    stream
}

fn hello(token: &str) -> Hello {
    let token = token.into();
    Hello { magic: MAGIC, protocol: PROTOCOL, fingerprint: fingerprint(), token, resume: None }
}

/// What the server says to a greeting that it refuses.
fn refusal(server: &Server, hello: &Hello) -> String {
    let mut bytes = Vec::new();
    let _ = greeted(server, hello).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn silent_connections_delay_nobody() {
    let server = server(ServerOptions::new().with_token("secret"));
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    serves(&server, "secret");
    drop(silent);
}

#[test]
fn pages_of_other_origins_and_other_names_are_refused() {
    let plain = server(ServerOptions::new());
    for headers in [
        "Host: localhost\r\nOrigin: https://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
        "Host: evil.example\r\n",
        "Host: localhost:3000.evil.example\r\nOrigin: http://localhost\r\n",
    ] {
        assert!(answer(&plain, &upgrade(headers)).starts_with("HTTP/1.1 403"), "{headers}");
        let metrics = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
        assert!(answer(&plain, &metrics).starts_with("HTTP/1.1 403"), "{headers}");
    }
    let twice = upgrade("Host: localhost\r\nHost: evil.example\r\n");
    assert!(answer(&plain, &twice).starts_with("HTTP/1.1 400"));
    assert!(answer(&plain, &upgrade("Host: localhost\r\n")).starts_with("HTTP/1.1 101"));
    let options = ServerOptions::new().with_origins(["https://good.example"]).with_hosts(["kiln.example"]);
    let open = server(options);
    let headers = "Host: kiln.example:3000\r\nOrigin: https://good.example\r\n";
    assert!(answer(&open, &upgrade(headers)).starts_with("HTTP/1.1 101"));
    serves(&open, "");
}

#[test]
fn before_the_token_frames_are_small_and_the_version_is_not_told() {
    let server = server(ServerOptions::new().with_token("secret"));
    let other_version = Hello { fingerprint: 1, ..hello("wrong") };
    let said = refusal(&server, &other_version);
    assert!(said.contains("token") && !said.contains(env!("CARGO_PKG_VERSION")), "{said}");
    let said = refusal(&server, &Hello { token: "secret".into(), ..other_version });
    assert!(said.contains("another version"), "{said}");
    // A frame of 1 MiB is refused by its header.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    stream.write_all(upgrade("Host: localhost\r\n").as_bytes()).unwrap();
    stream.write_all(&[0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]).unwrap();
    let since = Instant::now();
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(since.elapsed() < Duration::from_secs(2), "the server waits for the rest");
    serves(&server, "secret");
}

#[test]
fn wrong_tokens_are_answered_later_and_later_and_right_ones_at_once() {
    let server = server(ServerOptions::new().with_token("secret"));
    let times: Vec<Duration> = (0..4)
        .map(|_| {
            let since = Instant::now();
            assert!(refusal(&server, &hello("wrong")).contains("token"));
            since.elapsed()
        })
        .collect();
    assert!(times[3] >= Duration::from_millis(800), "{times:?}");
    serves(&server, "secret");
}

#[test]
fn a_client_that_is_away_holds_no_place() {
    let server = server(ServerOptions::new().with_sessions(2));
    for _ in 0..10 {
        let mut stream = greeted(&server, &hello(""));
        stream.read_exact(&mut [0; 8]).unwrap();
        drop(stream);
        std::thread::sleep(Duration::from_millis(20));
    }
    serves(&server, "");
}

fn session(quotas: Quotas) -> Session {
    Session::new(kiln_backends::Flex::stack(&Default::default()), quotas)
}

fn handle(session: &mut Session, request: &Request) -> Result<(), Error> {
    session.handle(&encode(request, &[]).unwrap(), &mut |_, _| Ok(()))
}

fn step(op: Op, operands: Vec<Source>) -> Step {
    Step { op: SentOp(op), operands }
}

/// Ones of a type, and then `count` times their exponential, of which each is needed until the end or only by the next.
fn chain(ty: TensorType, count: u32, outputs: Vec<u32>) -> Template {
    let first = step(Op::Full(ty), vec![Source::Number]);
    let rest = (0..count).map(|of| step(Op::Unary(Unary::Exp), vec![Source::Result(of)]));
    Template { inputs: vec![], steps: std::iter::once(first).chain(rest).collect(), outputs }
}

fn run(first: u64) -> Request {
    Request::Run { program: 0, inputs: vec![], numbers: vec![1.0.into()], first }
}

fn failure(session: &mut Session, id: u64) -> Option<String> {
    use kiln_remote::message::{Answer, Question, Reply};
    let mut failure = None;
    let ask = Request::Ask { question: 1, about: Question::Data(id) };
    session
        .handle(&encode(&ask, &[]).unwrap(), &mut |reply, _| {
            if let Reply::Answer { answer: Answer::Failed(error), .. } = reply {
                failure = Some(error.to_string());
            }
            Ok(())
        })
        .unwrap();
    failure
}

#[test]
fn a_limit_holds_before_anything_is_computed() {
    let ty = TensorType::new([1 << 10], DType::F32);
    let mut session = session(Quotas::default());
    handle(&mut session, &Request::Memory(MemoryChange::Limit(Some(0)))).unwrap();
    handle(&mut session, &Request::Define { program: 0, template: chain(ty, 3, vec![3]) }).unwrap();
    handle(&mut session, &run(0)).unwrap();
    assert_eq!(session.usage().bytes, 0);
    assert!(failure(&mut session, 6).unwrap().contains("quota of 0 bytes"));
}

#[test]
fn intermediates_of_a_batch_count_while_they_are_needed() {
    let ty = TensorType::new([1 << 10], DType::F32);
    // A value and its successor fit, exactly.
    for (memory_bytes, fits) in [(2 * 4096, true), (2 * 4096 - 1, false)] {
        let mut session = session(Quotas { memory_bytes, ..Quotas::default() });
        handle(&mut session, &Request::Define { program: 0, template: chain(ty, 20, vec![20]) }).unwrap();
        handle(&mut session, &run(0)).unwrap();
        let failure = failure(&mut session, 40);
        assert_eq!(failure.is_none(), fits, "{failure:?}");
        assert!(failure.is_none_or(|failure| failure.contains(&format!("quota of {memory_bytes} bytes"))));
        assert_eq!(session.usage().bytes, if fits { 4096 } else { 0 });
    }
}

#[test]
fn a_small_view_counts_with_the_memory_that_it_keeps() {
    let ty = TensorType::new([1 << 10], DType::F32);
    let mut session = session(Quotas { memory_bytes: 10 * 4096, ..Quotas::default() });
    let all = kiln_ir::SliceAxis { start: 0, len: 1, step: 1 };
    let slice = step(Op::Slice(vec![all]), vec![Source::Result(0)]);
    let steps = vec![step(Op::Full(ty), vec![Source::Number]), slice];
    handle(
        &mut session,
        &Request::Define { program: 0, template: Template { inputs: vec![], steps, outputs: vec![1] } },
    )
    .unwrap();
    for round in 0..20 {
        handle(&mut session, &run(4 * round)).unwrap();
    }
    assert!(session.usage().bytes <= 10 * 4096);
    assert!(failure(&mut session, 4 * 19 + 2).unwrap().contains("quota of 40960 bytes"));
    handle(&mut session, &Request::Free { ids: (0..20).map(|round| 4 * round + 2).collect() }).unwrap();
    assert_eq!(session.usage().bytes, 0);
}

#[test]
fn errors_and_programs_count() {
    let quotas = Quotas { overhead_bytes: 1 << 20, ..Quotas::default() };
    let ty = TensorType::new([1], DType::F32);
    let mut errors = session(quotas);
    let error = Error::value("x", "y".repeat(10_000));
    let poison = |id| Request::Poison { id, ty, error: error.clone() };
    let failed = (0..1000).find_map(|id| handle(&mut errors, &poison(id)).err()).unwrap();
    assert!(failed.to_string().contains("quota of 1048576 bytes of programs and errors"), "{failed}");
    assert!(errors.usage().tensors < 110);
    let mut programs = session(quotas);
    let define = |program| Request::Define { program, template: chain(ty, 1000, vec![0]) };
    let failed = (0..1000).find_map(|program| handle(&mut programs, &define(program)).err()).unwrap();
    assert!(failed.to_string().contains("programs and errors"), "{failed}");
    // One number again and again takes the room of one.
    let mut again = session(quotas);
    (0..100).for_each(|_| handle(&mut again, &define(0)).unwrap());
}

#[test]
fn sessions_share_the_memory_of_the_server() {
    let server = server(ServerOptions::new().with_memory(32 << 20));
    let device = |token: &str| RemoteDevice::new(server.url()).with_token(token);
    let [one, other] = [device("1"), device("2")];
    let data = || kiln_ir::TensorData::from(vec![1f32; 4 << 20]);
    let held = Tensor::<RemoteBackend, 1>::from_data(data(), &one);
    assert_eq!(held.clone().slice(0..1).into_scalar::<f32>(), 1.0);
    let refused = Tensor::<RemoteBackend, 1>::from_data(data(), &other);
    let refused = (refused.clone() + 1, refused).0.try_into_data().unwrap_err().to_string();
    assert!(refused.contains("server would exceed its quota of 33554432 bytes"), "{refused}");
    drop((held, one));
    serves(&server, "3");
    assert!(server.metrics().contains("kiln_server_held_bytes"));
    const { assert!(CHUNK < 32 << 20) };
}

#[test]
fn an_input_that_is_not_there_ends_only_its_session() {
    let mut session = session(Quotas::default());
    let missing = Argument { id: 1, is_last: true };
    let request = Request::Run { program: 0, inputs: vec![missing], numbers: vec![], first: 0 };
    assert!(handle(&mut session, &request).is_err());
}

/// Deadlines follow the monotonic clock, which nobody sets: the sources name no other one.
#[test]
fn no_deadline_follows_the_clock_of_the_wall() {
    fn visit(folder: &std::path::Path, found: &mut usize) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                *found += text.matches("Instant").count();
                assert!(!text.contains("SystemTime"), "{}", path.display());
            }
        }
    }
    let mut found = 0;
    visit(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found > 10);
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;

    fn identity(certificate: &str) -> (kiln_remote::TlsIdentity, std::path::PathBuf) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates");
        let certificates = folder.join(certificate);
        let key = folder.join("localhost.key.pem");
        (kiln_remote::TlsIdentity { certificates: certificates.clone(), key }, certificates)
    }

    #[test]
    fn wrong_certificates_are_errors_that_name_the_reason() {
        for (certificate, is_trusted, words) in [
            ("expired.pem", true, "xpired"),
            ("other-name.pem", true, "not valid for"),
            ("localhost.pem", false, "UnknownIssuer"),
        ] {
            let (identity, roots) = identity(certificate);
            let server = server(ServerOptions::new().with_tls(identity));
            let device = RemoteDevice::new(server.url());
            let device = if is_trusted { device.with_root_certificates(roots) } else { device };
            let error = device.open().unwrap_err().to_string();
            assert!(error.contains("TLS with 127.0.0.1") && error.contains(words), "{certificate}: {error}");
        }
    }

    #[test]
    fn broken_handshakes_harm_nobody() {
        let (identity, roots) = identity("localhost.pem");
        let server = server(ServerOptions::new().with_tls(identity));
        let beginnings: [&[u8]; 4] =
            [&[], &[0x16, 3, 1, 2, 0, 1, 0], &[0xff; 3000], b"GET / HTTP/1.1\r\n\r\n"];
        let open: Vec<TcpStream> = (0..40)
            .map(|round| {
                let mut stream = TcpStream::connect(server.address()).unwrap();
                let _ = stream.write_all(beginnings[round % 4]);
                stream
            })
            .collect();
        let device = RemoteDevice::new(server.url()).with_root_certificates(roots);
        let x = Tensor::<RemoteBackend, 1>::from_floats([1.0], &device);
        assert_eq!((x + 1).into_scalar::<f32>(), 2.0);
        drop(open);
    }
}
