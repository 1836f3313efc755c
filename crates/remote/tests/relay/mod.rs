//! A relay between client and server that delays, stalls and cuts connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    server: SocketAddr,
    delay: Duration,
    is_stalled: AtomicBool,
    is_down: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    accepted: AtomicUsize,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr, delay: Duration) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            server,
            delay,
            is_stalled: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            connections: Mutex::default(),
            accepted: AtomicUsize::new(0),
        });
        thread::spawn({
            let state = state.clone();
            move || listener.incoming().flatten().for_each(|client| state.accept(client))
        });
        Relay { address, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Cuts all connections, at whatever byte they are.
    pub(crate) fn cut(&self) {
        for connection in self.state.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Whether there is a connection that was not cut.
    pub(crate) fn is_connected(&self) -> bool {
        !self.state.connections.lock().unwrap().is_empty()
    }

    /// Nothing passes while it is stalled.
    pub(crate) fn stall(&self, is_stalled: bool) {
        self.state.is_stalled.store(is_stalled, Ordering::SeqCst);
    }

    /// Nobody is let in while it is down.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::SeqCst);
        if is_down {
            self.cut();
        }
    }

    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

impl State {
    fn accept(self: &Arc<Self>, client: TcpStream) {
        if self.is_down.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect(self.server) else { return };
        self.accepted.fetch_add(1, Ordering::SeqCst);
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let clone = |stream: &TcpStream| stream.try_clone().unwrap();
        self.connections.lock().unwrap().extend([clone(&client), clone(&server)]);
        self.pump(clone(&client), clone(&server));
        self.pump(server, client);
    }

    fn pump(self: &Arc<Self>, mut from: TcpStream, mut to: TcpStream) {
        let (sender, receiver) = mpsc::sync_channel::<(Instant, Vec<u8>)>(1024);
        let delay = self.delay;
        let closed = from.try_clone().unwrap();
        thread::spawn(move || {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                if sender.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                    break;
                }
            }
        });
        let state = self.clone();
        thread::spawn(move || {
            for (due, bytes) in receiver {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                while state.is_stalled.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(2));
                }
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = (to.shutdown(Shutdown::Both), closed.shutdown(Shutdown::Both));
        });
    }
}
