//! Attacks on Kiln by untrusted clients and files: `cargo xtask attack`.
//!
//! Each attack runs in a process of its own, with a bound on its time and one on its memory: a hang, a panic, an abort, too
//! much memory and a wrong result are failures. The last line is `N passed, M failed`.

#![forbid(unsafe_code)]

mod attack;
mod files;
mod ops;
mod server;

use std::process::ExitCode;

use attack::Attack;

const HELP: &str = "\
kiln-attack [OPTIONS]: attacks by untrusted clients and files

  --short        only the attacks that need a few seconds
  --only TEXT    only the attacks whose name contains the text
  --list         print their names, and run nothing
  --help         print this text
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["--one", name] => run_one(name),
        ["--help" | "-h"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => match Selection::parse(&words) {
            Ok(selection) => selection.run(),
            Err(message) => {
                eprintln!("kiln-attack: {message}\n\n{HELP}");
                ExitCode::FAILURE
            }
        },
    }
}

fn attacks() -> Vec<Attack> {
    [server::attacks(), files::attacks(), ops::attacks()].into_iter().flatten().collect()
}

/// Runs an attack in this process.
fn run_one(name: &str) -> ExitCode {
    let Some(attack) = attacks().into_iter().find(|attack| attack.name == name) else {
        eprintln!("there is no attack `{name}`");
        return ExitCode::FAILURE;
    };
    match attack.run_here() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Selection<'a> {
    short: bool,
    list: bool,
    only: Option<&'a str>,
}

impl<'a> Selection<'a> {
    fn parse(words: &[&'a str]) -> Result<Selection<'a>, String> {
        let mut selection = Selection::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--short" => selection.short = true,
                "--list" => selection.list = true,
                "--only" => selection.only = Some(words.next().ok_or("--only needs a text")?),
                other => return Err(format!("unknown argument `{other}`")),
            }
        }
        Ok(selection)
    }

    fn contains(&self, attack: &Attack) -> bool {
        (attack.short || !self.short) && self.only.is_none_or(|text| attack.name.contains(text))
    }

    fn run(&self) -> ExitCode {
        let selected: Vec<Attack> = attacks().into_iter().filter(|attack| self.contains(attack)).collect();
        if self.list {
            selected.iter().for_each(|attack| println!("{}", attack.name));
            return ExitCode::SUCCESS;
        }
        let failed = selected.iter().filter(|attack| !report(attack)).count();
        println!("{} passed, {failed} failed", selected.len() - failed);
        // A text that selects nothing is a mistake.
        if failed == 0 && !selected.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs an attack, prints its outcome and returns whether Kiln resisted.
fn report(attack: &Attack) -> bool {
    match attack.run_in_child() {
        Ok(resisted) => {
            let seconds = resisted.time.as_secs_f64();
            let megabytes = resisted.megabytes.map_or("?".to_owned(), |megabytes| megabytes.to_string());
            println!("{:<50} ok      {seconds:>7.2} s {megabytes:>6} MiB", attack.name);
            true
        }
        Err(failure) => {
            println!("{:<50} FAILED  {failure}", attack.name);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_attack_has_its_own_name_and_bounds() {
        let attacks = attacks();
        let names: BTreeSet<&str> = attacks.iter().map(|attack| attack.name).collect();
        assert_eq!(names.len(), attacks.len(), "two attacks share a name: {names:?}");
        for attack in attacks {
            assert!(attack.seconds > 0 && attack.megabytes > 0, "{}", attack.name);
        }
    }

    #[test]
    fn options_select_attacks() {
        let attack = |name, short| Attack { name, seconds: 1, megabytes: 1, short, run: || Ok(()) };
        let (quick, slow) = (attack("server/quick", true), attack("files/slow", false));
        let selected = |words: &[&'static str]| {
            let selection = Selection::parse(words).unwrap();
            (selection.contains(&quick), selection.contains(&slow))
        };
        assert_eq!(selected(&[]), (true, true));
        assert_eq!(selected(&["--short"]), (true, false));
        assert_eq!(selected(&["--only", "files"]), (false, true));
        assert_eq!(selected(&["--short", "--only", "files"]), (false, false));
        assert!(Selection::parse(&["--only"]).is_err());
        assert!(Selection::parse(&["--long"]).is_err_and(|error| error.contains("--long")));
    }
}
