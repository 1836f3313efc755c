//! `kiln download`: a model of the Hugging Face hub.

use std::io::{IsTerminal, Write, stderr};

use clap::Args;
use kiln_store::hub::{DownloadProgress, Downloader};

/// Options of `kiln download`. The server, the access token and the cache are those of `HF_ENDPOINT`, `HF_TOKEN` and
/// `HF_HUB_CACHE`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The name of the model, such as `org/name`.
    model: String,
    /// Files, or patterns with `*` and `?`. Default: configuration, tokenizer and one format of weights.
    files: Vec<String>,
    /// A branch, tag or commit.
    #[arg(long, default_value = "main")]
    revision: String,
}

/// Downloads a model into the cache and returns the path of its folder.
///
/// # Errors
/// When the download fails. It continues where it ended when it is repeated.
pub(crate) fn run(options: &Options) -> Result<String, String> {
    let downloader = Downloader::new().map_err(|error| error.to_string())?;
    let is_terminal = stderr().is_terminal();
    let downloader = downloader.on_progress(move |progress| show(progress, is_terminal));
    let files: Vec<&str> = options.files.iter().map(String::as_str).collect();
    let folder = match files.as_slice() {
        [] => downloader.download_model(&options.model, &options.revision),
        files => downloader.download(&options.model, &options.revision, files),
    };
    let folder = folder.map_err(|error| error.to_string())?;
    Ok(format!("{}\n", folder.path().display()))
}

/// Shows progress in one line of a terminal; in a log, one line for each file.
fn show(progress: &DownloadProgress<'_>, is_terminal: bool) {
    let is_complete = progress.size == Some(progress.received);
    let mut output = stderr().lock();
    // Progress that cannot be shown is not an error.
    let _ = match (is_terminal, is_complete) {
        (true, true) => writeln!(output, "\r{progress}\x1b[K"),
        (true, false) => write!(output, "\r{progress}\x1b[K").and_then(|()| output.flush()),
        (false, true) => writeln!(output, "{progress}"),
        (false, false) => Ok(()),
    };
}
