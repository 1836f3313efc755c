//! Metrics as Prometheus text.

use crate::session::Usage;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of connections and sessions.
#[derive(Default)]
pub(super) struct Metrics {
    pub(super) connections: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) opened: AtomicU64,
    pub(super) resumed: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Metrics {
    /// All metrics. `held` is the bytes of the server's budget, `traffic` is messages and bytes received, then sent.
    pub(super) fn text(&self, sessions: usize, usage: &Usage, held: u64, traffic: [u64; 4]) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rows: [(&str, &str, &str, u64); 17] = [
            ("sessions", "gauge", "Sessions that live.", sessions as u64),
            ("tensors", "gauge", "Tensors that clients hold.", usage.tensors as u64),
            ("tensor_bytes", "gauge", "Bytes of tensors that clients hold.", usage.bytes),
            ("held_bytes", "gauge", "Bytes of everything that counts in the server's memory.", held),
            ("programs", "gauge", "Programs that sessions keep.", usage.programs as u64),
            ("connections_total", "counter", "Connections accepted.", count(&self.connections)),
            ("refused_total", "counter", "Connections refused.", count(&self.refused)),
            ("sessions_opened_total", "counter", "Sessions opened.", count(&self.opened)),
            (
                "sessions_resumed_total",
                "counter",
                "Sessions resumed by a new connection.",
                count(&self.resumed),
            ),
            ("sessions_failed_total", "counter", "Sessions ended by an error.", count(&self.failed)),
            ("batches_total", "counter", "Batches of ops run.", usage.runs),
            ("ops_total", "counter", "Ops run.", usage.ops),
            ("questions_total", "counter", "Reads and other questions answered.", usage.questions),
            ("messages_received_total", "counter", "Messages of clients.", traffic[0]),
            ("bytes_received_total", "counter", "Bytes of these messages.", traffic[1]),
            ("messages_sent_total", "counter", "Messages to clients.", traffic[2]),
            ("bytes_sent_total", "counter", "Bytes of these messages.", traffic[3]),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in rows {
            let name = format!("kiln_server_{name}");
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
        text
    }
}

/// The sum of the usage of two sessions.
pub(super) fn add(a: Usage, b: Usage) -> Usage {
    Usage {
        tensors: a.tensors + b.tensors,
        bytes: a.bytes + b.bytes,
        programs: a.programs + b.programs,
        runs: a.runs + b.runs,
        ops: a.ops + b.ops,
        questions: a.questions + b.questions,
    }
}
