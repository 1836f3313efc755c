//! Loggers: exact numbers, resumed runs, invalid logs, hostile names, folders of runs.

mod csv;
mod folders;
mod jsonl;
mod stream;
