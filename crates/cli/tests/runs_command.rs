//! `kiln runs` as a process.

use std::fs;
use std::time::{Duration, Instant};

use crate::runs::{HOSTILE, kiln_runs, write};
use kiln_train::logger::{Logger, RunFolder};
use kiln_train::{Record, StepRecord};

/// The line of a text that contains all words.
#[track_caller]
fn line<'a>(text: &'a str, words: &[&str]) -> &'a str {
    let found = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
    found.unwrap_or_else(|| panic!("no line with {words:?} in\n{text}"))
}

#[test]
fn list_shows_the_runs_of_a_folder() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "narrow", 1.0, "x");
    write(root.path(), "wide", 0.5, "x");
    let folder = RunFolder::create(root.path(), "broken").unwrap();
    fs::write(folder.records(), "{}\n").unwrap();
    RunFolder::create(root.path(), "empty").unwrap();
    let (success, text, _) = kiln_runs(&["list", root.path().to_str().unwrap()]);
    assert!(success, "{text}");
    line(&text, &["narrow", "early stopping", "3/3", "30", "2 min 05 s", "valid accuracy 0.7500"]);
    // The best loss is not that of the epoch whose loss is NaN.
    line(&text, &["wide", "valid loss 0.0167"]);
    line(&text, &["broken", "unreadable"]);
    line(&text, &["records.jsonl: line 1: "]);
    line(&text, &["empty", "running", "0"]);
    let (success, _, error) = kiln_runs(&["list", "/no/such/folder"]);
    assert!(!success && error.contains("/no/such/folder"), "{error}");
}

#[test]
fn show_prints_configuration_and_metrics() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "run", 1.0, "a\u{1b}[2Jb");
    let by_name = kiln_runs(&["show", "run", "--root", root.path().to_str().unwrap()]);
    let by_path = kiln_runs(&["show", path.to_str().unwrap()]);
    assert_eq!(by_name, by_path);
    let text = by_path.1;
    line(&text, &["started", "2023-11-14 22:13 UTC"]);
    line(&text, &["optimizer", "adam"]);
    line(&text, &["device", "cpu"]);
    line(&text, &["valid accuracy", "0.7500", "0.7500 at step 30"]);
    line(&text, &["train f1/1", "inf"]);
    line(&text, &["40", "2"]);
    line(&text, &["warning", "a\\u{1b}[2Jb"]);
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let by_file = kiln_runs(&["show", path.join("records.jsonl").to_str().unwrap()]);
    assert!(by_file.0 && by_file.1.contains("early stopping"), "{by_file:?}");
    let (success, _, error) = kiln_runs(&["show", "none", "--root", root.path().to_str().unwrap()]);
    assert!(!success && error.contains("kiln runs list"), "{error}");
}

#[test]
fn compare_marks_the_best_run_and_differences() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "narrow", 1.0, "x");
    write(root.path(), "wide", 0.5, "x");
    let (success, text, error) =
        kiln_runs(&["compare", "narrow", "wide", "--root", root.path().to_str().unwrap()]);
    assert!(success, "{error}");
    let accuracy = line(&text, &["valid accuracy (best)", "0.7500"]);
    assert!(accuracy.trim_end().ends_with("0.8750 *"), "{accuracy}");
    let loss = line(&text, &["valid loss (best)", "0.0333"]);
    assert!(loss.trim_end().ends_with("0.0167 *"), "{loss}");
    let rate = line(&text, &["rate", "0.5"]);
    assert_eq!(rate.split_whitespace().collect::<Vec<_>>(), ["rate", "1", "0.5"]);
    assert!(!text.contains("adam"), "{text}");
    line(&text, &["environment: no difference"]);
    let (success, _, error) = kiln_runs(&["compare", "narrow"]);
    assert!(!success && error.contains("RUN"), "{error}");
}

#[test]
fn a_report_is_one_page_without_markup_of_records() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "<script>alert(0)<", 1.0, HOSTILE);
    write(root.path(), "plain", 0.5, HOSTILE);
    let page = root.path().join("report.html");
    let path = page.to_str().unwrap();
    let at_root = ["--root", root.path().to_str().unwrap()];
    let (success, text, error) =
        kiln_runs(&["report", "<script>alert(0)<", "plain", "-o", path, at_root[0], at_root[1]]);
    assert!(success && text.contains("report.html"), "{error}");
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<script").count(), 2, "data and code");
    assert_eq!(html.matches("</script>").count(), 2);
    for markup in
        ["<img", "alert(0)<\"", "onerror=alert(2)>", "http://", "https://", "src=", "@import", "url("]
    {
        let code = ["http://www.w3.org/2000/svg", "url(#${id})", "src=x onerror"];
        let rest = code.iter().fold(html.clone(), |html, known| html.replace(known, ""));
        assert!(!rest.contains(markup), "{markup}");
    }
    for part in [
        "&lt;script&gt;alert(0)&lt;",
        "<th scope=\"row\">valid accuracy (best)</th><td>0.7500</td><td><strong>0.8750</strong></td>",
        "Differences of hyper-parameters",
        "<td style=\"--heat:70%\">40</td>",
        "<td style=\"--heat:0%\">NaN</td>",
        "<title>0.5000 to 1: 9</title>",
        "<h3>plain: valid worst</h3>\n<svg class=\"image\" width=\"280\" viewBox=\"0 0 2 1\" role=\"img\"><image",
        "An image that cannot be shown: an image of 9x9 with 1 channels has 1 bytes",
        "<pre>a line\nanother &lt;b&gt;</pre>",
        "<pre>&lt;/script&gt;&lt;script&gt;alert(1)",
        "prefers-color-scheme: dark",
        "Content-Security-Policy",
        "[20,\"NaN\"]",
    ] {
        assert!(html.contains(part), "{part}");
    }
    // It is replaced atomically, and a failure leaves the old page and nothing else.
    assert!(kiln_runs(&["report", "plain", "-o", path, at_root[0], at_root[1]]).0);
    assert_ne!(fs::read_to_string(&page).unwrap(), html);
    let missing = root.path().join("none/report.html");
    let failed = kiln_runs(&["report", "plain", "-o", missing.to_str().unwrap(), at_root[0], at_root[1]]);
    assert!(!failed.0 && failed.2.contains("cannot write"), "{failed:?}");
    let folder = root.path().join("plain");
    let failed = kiln_runs(&["report", "plain", "-o", folder.to_str().unwrap(), at_root[0], at_root[1]]);
    assert!(!failed.0, "{failed:?}");
    let names: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn a_long_run_is_reported_in_bounded_time_and_size() {
    let root = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(root.path(), "long").unwrap();
    let mut logger = folder.logger().unwrap();
    for step in 0..100_000 {
        let values = vec![("loss".to_owned(), 1.0 / (step + 1) as f64)];
        logger.record(&Record::Step(StepRecord { step, values, ..Default::default() })).unwrap();
    }
    drop(logger);
    let began = Instant::now();
    let page = root.path().join("report.html");
    let words = ["report", folder.path().to_str().unwrap(), "-o", page.to_str().unwrap()];
    let (success, _, error) = kiln_runs(&words);
    assert!(success, "{error}");
    assert!(fs::metadata(&page).unwrap().len() < 300_000);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
