//! Client and server over the loopback address.

use crate::relay::Relay;
use kiln_backends::Cpu;
use kiln_ir::{CacheStrategy, MemoryConfig};
use kiln_nn::{GradientsParams, Linear, LinearConfig, Module};
use kiln_optim::{AdamConfig, Optimizer};
use kiln_remote::codec::encode;
use kiln_remote::message::{Frame, Hello, MAGIC, PROTOCOL, Resume, fingerprint};
use kiln_remote::server::{Server, ServerOptions};
use kiln_remote::{Quotas, RemoteBackend, RemoteDevice};
use kiln_tensor::{
    Autodiff, AutodiffBackend, Backend, Distribution, Int, Tensor, TensorData, activation, loss,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn server(options: ServerOptions) -> Server {
    Server::bind::<Cpu>(&Default::default(), options).unwrap()
}

fn quick() -> ServerOptions {
    ServerOptions::new().with_heartbeat(Duration::from_millis(100)).with_grace(Duration::from_millis(500))
}

#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn is_empty(server: &Server) {
    eventually("an empty server", || server.sessions() == 0);
    let usage = server.usage();
    assert_eq!((usage.tensors, usage.bytes, usage.programs), (0, 0, 0));
}

/// A network for images of 28 by 28, and its losses over some steps of Adam.
#[derive(Debug, Module)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

fn losses<B: AutodiffBackend>(device: &B::Device, steps: usize) -> Vec<u32> {
    B::seed(device, 7);
    let mut model = Mlp::<B> {
        hidden: LinearConfig::new(784, 64).init(device),
        output: LinearConfig::new(64, 10).init(device),
    };
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for step in 0..steps {
        let pixel = |i: usize| ((i * 7919 + step * 104_729) % 256) as f32 / 255.0;
        let images: Vec<f32> = (0..32 * 784).map(pixel).collect();
        let labels: Vec<i32> = (0..32).map(|i| ((i + step) % 10) as i32).collect();
        let images = Tensor::<B, 2>::from_data(TensorData::new(images, [32, 784]).unwrap(), device);
        let labels = Tensor::<B, 1, Int>::from_data(TensorData::from(labels), device);
        let y = model.output.forward(activation::relu(model.hidden.forward(images)));
        let loss = loss::cross_entropy(y, labels, &Default::default());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        losses.push(loss.into_scalar::<f32>().to_bits());
    }
    losses
}

#[test]
fn training_gives_the_same_losses_bit_for_bit() {
    let server = server(ServerOptions::new());
    let device = RemoteDevice::new(server.url());
    let local = losses::<Autodiff<Cpu>>(&Default::default(), 20);
    let remote = losses::<Autodiff<RemoteBackend>>(&device, 10);
    let before = device.statistics();
    assert_eq!(remote, local[..10]);
    assert_eq!(losses::<Autodiff<RemoteBackend>>(&device, 20), local);
    let after = device.statistics();
    println!(
        "20 steps: {} messages and {} bytes sent, {} and {} received; {} ops in {} batches of {} new programs",
        after.messages_sent - before.messages_sent,
        after.bytes_sent - before.bytes_sent,
        after.messages_received - before.messages_received,
        after.bytes_received - before.bytes_received,
        after.ops - before.ops,
        after.batches - before.batches,
        after.programs - before.programs,
    );
    assert!(after.programs - before.programs <= 10, "programs are not found again: {after:?}");
    drop(device);
    is_empty(&server);
}

#[test]
fn a_device_keeps_its_session_and_its_seed() {
    type B = RemoteBackend;
    let server = server(ServerOptions::new());
    let device = RemoteDevice::new(server.url());
    let draw = || Tensor::<B, 1>::random([4], Distribution::Default, &device.clone()).into_data();
    B::seed(&device, 7);
    let first = [draw(), draw()];
    assert_ne!(first[0], first[1]);
    B::seed(&device, 7);
    assert_eq!([draw(), draw()], first);
    assert!(server.metrics().contains("kiln_server_sessions_opened_total 1"), "{}", server.metrics());
    // The device of a tensor is a name only: it would keep the session open forever.
    let x = Tensor::<B, 1>::from_floats([1.0], &device);
    let name = x.device();
    assert_eq!(name, device);
    drop((x, device));
    is_empty(&server);
    assert_eq!(Tensor::<B, 1>::from_floats([2.0], &name).into_scalar::<f32>(), 2.0);
}

#[test]
fn many_clients_have_sessions_of_their_own() {
    let server = server(ServerOptions::new());
    let url = server.url();
    std::thread::scope(|scope| {
        for client in 0..4 {
            let url = &url;
            scope.spawn(move || {
                // Another token makes another session.
                let device = RemoteDevice::new(url).with_token(format!("{client}"));
                let mut x = Tensor::<RemoteBackend, 1>::from_floats([client as f32], &device);
                for _ in 0..50 {
                    x += 1;
                    assert!(x.clone().into_scalar::<f32>() > client as f32);
                }
                assert_eq!(x.into_scalar::<f32>(), client as f32 + 50.0);
            });
        }
    });
    is_empty(&server);
    assert!(server.metrics().contains("kiln_server_sessions_opened_total 4"), "{}", server.metrics());
}

#[test]
fn large_tensors_pass_both_ways() {
    let server = server(ServerOptions::new().with_window(0));
    let device = RemoteDevice::new(server.url());
    // 64 MB each way through a window of 8.
    let elements: Vec<f32> = (0..16 << 20).map(|i| (i % 1000) as f32).collect();
    let x = Tensor::<RemoteBackend, 1>::from_data(TensorData::from(elements.clone()), &device);
    let y = (x + 1).into_data();
    assert!(y.as_slice::<f32>().unwrap().iter().zip(&elements).all(|(y, x)| *y == x + 1.0));
}

#[test]
fn a_wrong_token_is_refused() {
    let server = server(ServerOptions::new().with_token("secret"));
    let error = RemoteDevice::new(server.url()).with_token("wrong").open().unwrap_err().to_string();
    assert!(error.contains("token") && error.contains("KILN_TOKEN"), "{error}");
    RemoteDevice::new(server.url()).with_token("secret").open().unwrap();
    let error = RemoteDevice::new("ws://127.0.0.1:1").open().unwrap_err().to_string();
    assert!(error.contains("ws://127.0.0.1:1") && error.contains("kiln server"), "{error}");
}

fn get(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn memory_is_that_of_the_server_and_limits_are_a_session_s_own() {
    type B = RemoteBackend;
    let server = server(ServerOptions::new());
    let device = RemoteDevice::new(server.url());
    // Written data is in memory at once, unlike results of ops that wait to be fused.
    let x = Tensor::<B, 1>::from_data(TensorData::from(vec![0f32; 1 << 20]), &device);
    let usage = B::memory(&device).expect("the processor's engine tracks it");
    assert!(usage.live_bytes >= 4 << 20 && usage.peak_live_bytes >= usage.live_bytes, "{usage:?}");
    B::reset_peak_memory(&device);
    B::memory_cleanup(&device);
    B::configure_memory(&device, MemoryConfig::new().with_limit(5 << 20)).unwrap();
    let error = (x.clone() + 1).try_into_data().unwrap_err().to_string();
    assert!(error.contains("quota of 5242880 bytes"), "{error}");
    let other = RemoteDevice::new(server.url()).with_token("other");
    assert!((Tensor::<B, 1>::zeros([1 << 21], &other) + 1).try_into_data().is_ok());
    let strategy = MemoryConfig::new().with_cache(CacheStrategy::Disabled);
    let error = B::configure_memory(&device, strategy).unwrap_err().to_string();
    assert!(error.contains("Disabled") && error.contains("set it on the server"), "{error}");
    drop(x);
    // A server that is lost has no statistics.
    assert!(B::memory(&RemoteDevice::new("ws://127.0.0.1:1")).is_none());
}

#[test]
fn metrics_are_on_the_same_port() {
    let server = server(ServerOptions::new().with_token("secret"));
    let device = RemoteDevice::new(server.url()).with_token("secret");
    let x = Tensor::<RemoteBackend, 1>::from_floats([1.0, 2.0], &device);
    (x.clone() + 1).into_data();
    let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n";
    assert!(get(&server, &format!("{head}\r\n")).starts_with("HTTP/1.1 401"));
    let answer = get(&server, &format!("{head}Authorization: Bearer secret\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("\nkiln_server_sessions 1\n") && answer.contains("kiln_server_ops_total 1"),
        "{answer}"
    );
    assert!(get(&server, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    drop(x);
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn garbage_harms_nobody() {
    let server = server(quick());
    let device = RemoteDevice::new(server.url());
    let x = Tensor::<RemoteBackend, 1>::from_floats([1.0, 2.0], &device);
    get(&server, "\0\0\0\0\r\n\r\n");
    for frame in [
        &[0x82, 0x84, 0, 0, 0, 0, 1, 2, 3, 4][..],
        &[0x82, 0xff, 255, 255, 255, 255, 0, 0, 0, 0],
        &[0xff; 64],
    ] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(UPGRADE.as_bytes()).unwrap();
        stream.write_all(frame).unwrap();
        // Until the server closes the connection, or resets it.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!((x * 2).into_data().to_vec::<f32>(), [2.0, 4.0]);
    eventually("three refusals", || server.metrics().contains("kiln_server_refused_total 3"));
}

/// Greetings with changed bytes, to a server that has another client.
#[test]
fn damaged_greetings_harm_nobody() {
    let server = server(quick());
    let device = RemoteDevice::new(server.url());
    let x = Tensor::<RemoteBackend, 1>::from_floats([1.0, 2.0], &device);
    let hello = Hello {
        magic: MAGIC,
        protocol: PROTOCOL,
        fingerprint: fingerprint(),
        token: "none".into(),
        resume: Some(Resume { session: 1, secret: [1, 2], received: 0 }),
    };
    let hello = encode(&Frame::Hello(Box::new(hello)), &[]).unwrap();
    assert!(hello.len() < 126, "its length is one byte of a WebSocket frame");
    for round in 0..200usize {
        let mut damaged = hello.clone();
        damaged[round * 31 % hello.len()] ^= 1 << (round % 8);
        damaged.truncate(if round % 3 == 0 { hello.len() - round % hello.len() } else { hello.len() });
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        stream.write_all(UPGRADE.as_bytes()).unwrap();
        stream.write_all(&[0x82, 0x80 | damaged.len() as u8, 0, 0, 0, 0]).unwrap();
        let _ = stream.write_all(&damaged);
        let _ = stream.read(&mut [0; 1024]);
    }
    assert_eq!((x.clone() * 2).into_data().to_vec::<f32>(), [2.0, 4.0]);
    eventually("one session", || server.sessions() == 1);
    drop((x, device));
    is_empty(&server);
}

#[test]
fn idle_sessions_end() {
    let server = server(quick().with_idle_timeout(Duration::from_millis(200)));
    let device = RemoteDevice::new(server.url());
    let x = Tensor::<RemoteBackend, 1>::from_floats([1.0], &device);
    x.clone().into_data();
    is_empty(&server);
    let error = (x + 1).try_into_data().unwrap_err().to_string();
    assert!(error.contains("idle for 200ms"), "{error}");
}

#[test]
fn sessions_are_limited() {
    let server = server(ServerOptions::new().with_sessions(1));
    let first = Tensor::<RemoteBackend, 1>::from_floats([1.0], &RemoteDevice::new(server.url()));
    let error = RemoteDevice::new(server.url()).with_token("2").open().unwrap_err().to_string();
    assert!(error.contains("takes no more"), "{error}");
    drop(first);
    is_empty(&server);
    RemoteDevice::new(server.url()).with_token("3").open().unwrap();
}

#[test]
fn a_full_queue_makes_the_client_wait() {
    let quotas = Quotas { requests: 2, ..Quotas::default() };
    let server = server(ServerOptions::new().with_quotas(quotas));
    let device = RemoteDevice::new(server.url());
    let all: Vec<_> =
        (0..500).map(|i| Tensor::<RemoteBackend, 1>::from_floats([i as f32], &device)).collect();
    let sum = Tensor::cat(all, 0).sum();
    assert_eq!(sum.into_scalar::<f32>(), 124_750.0);
}

#[test]
fn shutdown_finishes_work_and_tells_clients() {
    let server = server(ServerOptions::new());
    let device = RemoteDevice::new(server.url());
    let x = Tensor::<RemoteBackend, 1>::from_floats([1.0], &device);
    assert_eq!(x.clone().into_scalar::<f32>(), 1.0);
    server.shutdown();
    let error = (x + 1).try_into_data().unwrap_err().to_string();
    assert!(error.contains("shuts down") || error.contains("stopped"), "{error}");
}

#[test]
fn a_lost_server_gives_an_error_and_never_hangs() {
    let server = server(quick());
    let relay = Relay::to(server.address(), Duration::ZERO);
    let device = RemoteDevice::new(relay.url());
    let x = Tensor::<RemoteBackend, 1>::from_floats([1.0], &device);
    assert_eq!(x.clone().into_scalar::<f32>(), 1.0);
    relay.set_down(true);
    let since = Instant::now();
    let error = (x.clone() + 1).try_into_data().unwrap_err().to_string();
    assert!(error.contains("was lost") && since.elapsed() < Duration::from_secs(10), "{error}");
    let again = (x + 1).try_into_data().unwrap_err().to_string();
    assert!(again.contains("was lost"), "{again}");
    // The server frees the client's values after the grace period.
    is_empty(&server);
}

#[test]
fn a_stalled_connection_is_replaced() {
    let server = server(quick().with_grace(Duration::from_secs(20)));
    let relay = Relay::to(server.address(), Duration::ZERO);
    let device = RemoteDevice::new(relay.url());
    let mut x = Tensor::<RemoteBackend, 1>::from_floats([1.0], &device);
    relay.stall(true);
    let release = std::thread::spawn({
        let pause = Duration::from_millis(700);
        let relay = std::sync::Arc::new(relay);
        let held = relay.clone();
        move || {
            std::thread::sleep(pause);
            held.stall(false);
            held
        }
    });
    for _ in 0..10 {
        x += 1;
    }
    assert_eq!(x.clone().into_scalar::<f32>(), 11.0);
    assert!(device.statistics().reconnections > 0);
    drop((x, device, release.join().unwrap()));
    is_empty(&server);
}

/// Delays of 20 ms, stalls, and 50 cuts at random moments: the same losses, and nothing is left.
#[test]
fn fifty_cuts_lose_nothing() {
    let server = server(quick().with_grace(Duration::from_secs(30)));
    let relay = Relay::to(server.address(), Duration::from_millis(20));
    let device = RemoteDevice::new(relay.url());
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let mut rounds = 0;
    std::thread::scope(|scope| {
        let cutter = scope.spawn(|| {
            let mut random = 0x9e37_79b9_7f4a_7c15u64;
            for cut in 0..50 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // A cut of no connection is none.
                eventually("a connection", || relay.is_connected());
                std::thread::sleep(Duration::from_millis(20 + (random >> 33) % 250));
                if cut % 10 == 9 {
                    relay.stall(true);
                    std::thread::sleep(Duration::from_millis(100));
                    relay.stall(false);
                }
                relay.cut();
            }
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let expected = losses::<Autodiff<Cpu>>(&Default::default(), 5);
        while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
            assert_eq!(losses::<Autodiff<RemoteBackend>>(&device, 5), expected);
            rounds += 1;
        }
        cutter.join().unwrap();
    });
    let statistics = device.statistics();
    println!("{rounds} rounds, {} connections, {statistics:?}", relay.accepted());
    assert!(statistics.reconnections >= 10 && relay.accepted() > 50, "{statistics:?}");
    drop(device);
    is_empty(&server);
}

#[cfg(feature = "tls")]
#[test]
fn tls_with_a_certificate_of_its_own() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates");
    let identity = kiln_remote::TlsIdentity {
        certificates: folder.join("localhost.pem"),
        key: folder.join("localhost.key.pem"),
    };
    let server = server(ServerOptions::new().with_tls(identity));
    assert!(server.url().starts_with("wss://"));
    let device = RemoteDevice::new(server.url()).with_root_certificates(folder.join("localhost.pem"));
    let x = Tensor::<RemoteBackend, 2>::random([64, 64], Distribution::Default, &device);
    assert_eq!(x.clone().matmul(x).into_data().num_elements(), 4096);
    // Nobody else vouches for it, and it does not talk in the clear.
    let error = RemoteDevice::new(server.url()).open().unwrap_err().to_string();
    assert!(error.contains("TLS") && error.contains("with_root_certificates"), "{error}");
    let plain = server.url().replace("wss://", "ws://");
    assert!(RemoteDevice::new(plain).open().is_err());
}
