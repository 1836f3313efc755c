//! Attacks before the token, and by connections.

use super::wire::{Attacker, answer, connect, hello, open, receive, send, upgrade};
use super::{server, serves, text, within};
use kiln_remote::codec::{decode, encode};
use kiln_remote::message::Frame;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub(super) fn many_sessions() -> Result<(), String> {
    let server = server()?;
    for _ in 0..300 {
        // It breaks off at once. A place may be short for a moment.
        drop(Attacker::new(server.address()));
    }
    std::thread::sleep(Duration::from_millis(200));
    serves(&server)
}

pub(super) fn silent_connections_400() -> Result<(), String> {
    let server = server()?;
    let silent: Vec<TcpStream> = (0..400).map(|_| connect(server.address())).collect::<Result<_, _>>()?;
    serves(&server)?;
    drop(silent);
    Ok(())
}

pub(super) fn large_frame_before_token() -> Result<(), String> {
    let server = server()?;
    let mut open = (0..100).map(|_| open(server.address())).collect::<Result<Vec<_>, _>>()?;
    for stream in &mut open {
        // The server may have ended it already.
        let _ = send(stream, &vec![0; 1 << 20]);
    }
    serves(&server)
}

pub(super) fn wrong_tokens() -> Result<(), String> {
    let server = server()?;
    let since = Instant::now();
    let mut last = String::new();
    for guess in 0..5 {
        let mut stream = open(server.address())?;
        send(&mut stream, &encode(&Frame::Hello(Box::new(hello(&guess.to_string()))), &[]).map_err(text)?)?;
        let answer = decode::<Frame>(&receive(&mut stream)?).map_err(text)?.0;
        let Frame::Refused(error) = answer else {
            return Err(format!("a wrong token is answered by {answer:?}"));
        };
        last = error.to_string();
    }
    if since.elapsed() < Duration::from_secs(2) {
        return Err(format!("five wrong tokens took {:?} only", since.elapsed()));
    }
    if !last.contains("token") {
        return Err(format!("the error does not name the token: {last}"));
    }
    serves(&server)
}

fn refused_by_headers(headers: &str) -> Result<(), String> {
    let server = server()?;
    for request in [upgrade(headers), format!("GET /metrics HTTP/1.1\r\n{headers}\r\n")] {
        let answer = answer(server.address(), &request)?;
        if !answer.starts_with("HTTP/1.1 403") {
            return Err(format!("`{request}` is answered by `{answer}`"));
        }
    }
    serves(&server)
}

pub(super) fn foreign_origin() -> Result<(), String> {
    refused_by_headers("Host: 127.0.0.1\r\nOrigin: https://evil.example\r\n")
}

pub(super) fn foreign_host() -> Result<(), String> {
    refused_by_headers("Host: evil.example\r\n")
}

/// Headers of one byte every 50 ms: the time of a greeting ends them.
pub(super) fn slow_header() -> Result<(), String> {
    let server = server()?;
    let mut slow = (0..50).map(|_| connect(server.address())).collect::<Result<Vec<_>, _>>()?;
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(7) && !slow.is_empty() {
        slow.retain_mut(|stream| stream.write_all(b"G").is_ok());
        std::thread::sleep(Duration::from_millis(50));
    }
    if !slow.is_empty() {
        return Err(format!("{} connections greet for over 7 s", slow.len()));
    }
    serves(&server)
}

pub(super) fn truncated_and_garbage_frames() -> Result<(), String> {
    let server = server()?;
    let hello = encode(&Frame::Hello(Box::new(hello(super::TOKEN))), &[]).map_err(text)?;
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..200 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut frame = hello.clone();
        let place = (random >> 33) as usize % frame.len();
        match round % 3 {
            0 => frame.truncate(place),
            1 => frame[place] ^= 1 << (random >> 60 & 7),
            _ => frame = random.to_le_bytes().repeat(16),
        }
        let mut stream = open(server.address())?;
        send(&mut stream, &frame)?;
        // Behind a greeting that was right by chance: garbage as a message. The server may have ended it.
        let _ = send(&mut stream, &random.to_le_bytes());
    }
    serves(&server)
}

pub(super) fn tls_garbage() -> Result<(), String> {
    let server = server()?;
    let since = Instant::now();
    for round in 0..64u8 {
        let mut stream = connect(server.address())?;
        // The beginning of a handshake of TLS, and noise.
        stream
            .write_all(&[&[0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3][..], &[round; 9000]].concat())
            .map_err(text)?;
        let _ = stream.read(&mut [0; 64]);
    }
    within(since, Duration::from_secs(8), "garbage")?;
    serves(&server)
}
