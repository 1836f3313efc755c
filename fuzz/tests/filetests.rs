//! Runs `filetests/run`: programs with their inputs, on which all engines must agree. Each is a former failure.

use kiln_fuzz::Trial;
use kiln_fuzz::check::{Subjects, check};
use kiln_fuzz::generate::Cubed;
use std::path::Path;

#[test]
fn every_engine_agrees() {
    Cubed::register();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filetests/run");
    let subjects = Subjects::cpu();
    let (mut count, mut problems) = (0, Vec::new());
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        count += 1;
        let problem = match Trial::from_filetest(&text) {
            Ok(trial) => check(&trial, &subjects).failure.map(|failure| failure.to_string()),
            Err(problem) => Some(problem),
        };
        problems.extend(problem.map(|problem| format!("{}: {problem}", path.display())));
    }
    assert!(count > 0, "no files in {}", folder.display());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
