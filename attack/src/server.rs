//! The attacks of clients on a server.

mod network;
mod quotas;
mod wire;

use crate::attack::Attack;
use kiln_backends::Cpu;
use kiln_remote::server::{Server, ServerOptions};
use kiln_remote::{RemoteBackend, RemoteDevice};
use kiln_tensor::Tensor;
use std::time::{Duration, Instant};

/// The token of the servers, which only some attackers know.
const TOKEN: &str = "secret";

/// The memory that a server may use for its sessions, in bytes; attacks may use some more for themselves.
const MEMORY: u64 = 256 << 20;

pub(crate) fn attacks() -> Vec<Attack> {
    let attack = |name, seconds, megabytes, run| Attack { name, seconds, megabytes, short: true, run };
    vec![
        attack("server/resize_huge", 10, 400, quotas::resize_huge),
        attack("server/zero_elements_tril", 10, 400, quotas::zero_elements_tril),
        attack("server/iota_of_zero_elements", 10, 400, quotas::iota_of_zero_elements),
        attack("server/run_after_limit_zero", 10, 400, quotas::run_after_limit_zero),
        attack("server/poison_flood", 20, 600, quotas::poison_flood),
        attack("server/define_flood", 20, 600, quotas::define_flood),
        attack("server/intermediates_of_one_batch", 10, 600, quotas::intermediates_of_one_batch),
        attack("server/views_that_keep_memory", 10, 600, quotas::views_that_keep_memory),
        attack("server/inputs_that_wait", 20, 900, quotas::inputs_that_wait),
        attack("server/window_ignored", 20, 600, quotas::window_ignored),
        attack("server/client_gone_during_work", 20, 600, quotas::client_gone_during_work),
        attack("server/many_sessions", 20, 400, network::many_sessions),
        attack("server/silent_connections_400", 10, 200, network::silent_connections_400),
        attack("server/large_frame_before_token", 10, 200, network::large_frame_before_token),
        attack("server/wrong_tokens", 20, 200, network::wrong_tokens),
        attack("server/foreign_origin", 10, 200, network::foreign_origin),
        attack("server/foreign_host", 10, 200, network::foreign_host),
        attack("server/slow_header", 20, 200, network::slow_header),
        attack("server/truncated_and_garbage_frames", 20, 200, network::truncated_and_garbage_frames),
        attack("server/tls_garbage", 10, 200, network::tls_garbage),
    ]
}

fn server() -> Result<Server, String> {
    let options = ServerOptions::new().with_token(TOKEN).with_memory(MEMORY);
    Server::bind::<Cpu>(&Default::default(), options).map_err(|error| error.to_string())
}

/// Whether an honest client gets right results within a second.
fn serves(server: &Server) -> Result<(), String> {
    let since = Instant::now();
    let device = RemoteDevice::new(server.url()).with_token(TOKEN);
    let x = Tensor::<RemoteBackend, 1>::from_floats([1.0, 2.0], &device);
    let y = (x * 3 + 1).try_into_data().map_err(|error| format!("an honest client got an error: {error}"))?;
    let found = y.to_vec::<f32>();
    if found != [4.0, 7.0] {
        return Err(format!("an honest client got {found:?} in place of [4.0, 7.0]"));
    }
    within(since, Duration::from_secs(1), "an honest client")
}

fn within(since: Instant, most: Duration, who: &str) -> Result<(), String> {
    let time = since.elapsed();
    if time > most { Err(format!("{who} waited for {time:?}, allowed are {most:?}")) } else { Ok(()) }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
