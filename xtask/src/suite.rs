//! `cargo xtask suite`: the conformance suite on one engine, on a GPU with goldens and random programs.

use std::ops::Range;
use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::programs::{Launch, Program};
use crate::workspace::Workspace;
use crate::{fuzz, process};

const ACCEPTS: Accepts = Accepts { flags: &[], options: &["--engine", "--part", "--limits"], words: false };

/// The program of the package that runs it.
const PROGRAM: Program = Program::Binary("conformance");

/// An engine. The [features](crate::programs::FEATURES) of the tests contain that of each.
pub(crate) struct Engine {
    name: &'static str,
    /// The number of random programs that run beside the cases.
    programs: u64,
}

/// Random programs on a GPU.
const GPU_PROGRAMS: u64 = 20_000;

/// Every engine. The names are those of `kiln_suite::engines::NAMED` and of the fuzzer's option `--engine`.
const ENGINES: &[Engine] = &[
    Engine { name: "reference", programs: 0 },
    Engine { name: "flex", programs: 0 },
    Engine { name: "cpu", programs: 0 },
    Engine { name: "router", programs: 0 },
    Engine { name: "remote", programs: 0 },
    Engine { name: "candle", programs: 0 },
    Engine { name: "libtorch", programs: 0 },
    Engine { name: "cuda", programs: GPU_PROGRAMS },
    Engine { name: "wgpu", programs: GPU_PROGRAMS },
    Engine { name: "webgpu", programs: GPU_PROGRAMS },
];

/// A run of the suite.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) engine: &'static Engine,
    /// Number and count of parts; the whole is part 1 of 1.
    pub(crate) part: (u64, u64),
}

/// Cases or programs that passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals([u64; 3]);

/// `cargo xtask suite`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let name = args.last("--engine").ok_or("`--engine` is missing\n  hint: such as `--engine cpu`")?;
    let engine = named(limited(name, args.last("--limits"))?)?;
    let part = args.last("--part").map_or(Ok((1, 1)), checked_part)?;
    Run { engine, part }.start(&Workspace::load()?)?;
    Ok(ExitCode::SUCCESS)
}

/// The engine of that name.
///
/// # Errors
/// When the suite has none, with the names.
pub(crate) fn named(name: &str) -> Result<&'static Engine, String> {
    ENGINES.iter().find(|engine| engine.name == name).ok_or_else(|| {
        let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
        format!("no engine is called `{name}`\n  hint: the engines are {}", names.join(", "))
    })
}

/// The name of an engine with limits: `webgpu` for `wgpu` with those of browsers.
fn limited<'a>(engine: &'a str, limits: Option<&str>) -> Result<&'a str, String> {
    match (engine, limits) {
        (engine, None) => Ok(engine),
        ("wgpu" | "webgpu", Some("webgpu")) => Ok("webgpu"),
        (_, Some(limits)) => Err(format!(
            "`--engine {engine}` has no limits `{limits}`\n  hint: `--engine wgpu --limits webgpu`"
        )),
    }
}

/// Such as `2/8`.
fn checked_part(text: &str) -> Result<(u64, u64), String> {
    let numbers =
        text.split_once('/').and_then(|(k, n)| Some((k.parse::<u64>().ok()?, n.parse::<u64>().ok()?)));
    match numbers {
        Some((number, parts)) if (1..=parts).contains(&number) => Ok((number, parts)),
        Some(_) | None => Err(format!("`--part {text}`: not a part like 2/8")),
    }
}

impl Run {
    /// Builds the programs and runs them. Where there are random programs, prints the totals of all as the last line.
    ///
    /// # Errors
    /// When a case or a program failed, or nothing runs, such as without the engine's driver or library.
    pub(crate) fn start(&self, workspace: &Workspace) -> Result<(), String> {
        let mut totals = Totals::default();
        let mut outcome = totals.add_run(&mut self.conformance(workspace));
        // Without totals the program has said why nothing runs, such as a missing driver: random programs cannot run either.
        let has_run = totals != Totals::default();
        if self.engine.programs > 0 && has_run {
            outcome = outcome.and(totals.add_run(&mut self.fuzzer(workspace)));
            let Totals([passed, failed, skipped]) = totals;
            println!("{passed} passed, {failed} failed, {skipped} skipped");
        }
        outcome
    }

    /// The suite's cases, in the test profile as the tests are.
    fn conformance(&self, workspace: &Workspace) -> Launch {
        let mut suite = PROGRAM.launch(workspace);
        suite.run.arg(self.engine.name);
        if self.part != (1, 1) {
            suite.run.env("KILN_SUITE_PART", format!("{}/{}", self.part.0, self.part.1));
        }
        suite
    }

    fn fuzzer(&self, workspace: &Workspace) -> Launch {
        let Range { start, end } = self.numbers();
        let (first, programs) = (start.to_string(), (end - start).to_string());
        let words = ["--engine", self.engine.name, "--first", &first, "--programs", &programs];
        fuzz::fuzzer(workspace, &words.map(str::to_owned))
    }

    /// The numbers of the part's random programs.
    fn numbers(&self) -> Range<u64> {
        let (number, parts) = self.part;
        let bound = |part: u64| self.engine.programs * part / parts;
        bound(number - 1)..bound(number)
    }
}

impl Totals {
    /// Builds a program, runs it and adds the totals that it prints.
    fn add_run(&mut self, launch: &mut Launch) -> Result<(), String> {
        process::announce_and_run(&mut launch.build)?;
        println!("$ {}", process::describe(&launch.run));
        let mut last = None;
        let outcome = process::run_and_see(&mut launch.run, |line| last = Totals::parse(line).or(last));
        let Totals(counts) = last.unwrap_or_default();
        self.0.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        outcome
    }

    /// Parses `8 passed, 0 failed, 2 skipped`.
    fn parse(line: &str) -> Option<Totals> {
        let mut counts = [0; 3];
        let mut parts = line.split(", ");
        for (count, what) in counts.iter_mut().zip(["passed", "failed", "skipped"]) {
            let (number, said) = parts.next()?.split_once(' ')?;
            *count = number.parse().ok().filter(|_| said == what)?;
        }
        parts.next().is_none().then_some(Totals(counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_of(name: &str, part: (u64, u64)) -> Run {
        Run { engine: named(name).unwrap(), part }
    }

    #[test]
    fn the_engine_is_handed_on() {
        let suite = part_of("candle", (2, 8)).conformance(&Workspace::default());
        let build = process::describe(&suite.build);
        let expected = "kiln-fuzz/wgpu,kiln-remote/tls --bin conformance --example kill";
        assert!(build.ends_with(expected) && build.contains(",kiln-fuzz/candle,"), "{build}");
        let said = process::describe(&suite.run);
        assert!(said.contains("KILN_SUITE_PART") && said.ends_with("conformance candle"), "{said}");
    }

    #[test]
    fn parts_share_the_random_programs_of_a_gpu() {
        let parts: Vec<_> = (1..=3).map(|number| part_of("wgpu", (number, 3)).numbers()).collect();
        assert_eq!(parts, [0..6_666, 6_666..13_333, 13_333..20_000]);
        let said = process::describe(&part_of("wgpu", (2, 10)).fuzzer(&Workspace::default()).run);
        assert!(said.ends_with("--engine wgpu --first 2000 --programs 2000"), "{said}");
        assert_eq!(part_of("cpu", (1, 1)).numbers(), 0..0);
    }

    #[test]
    fn totals_are_read_from_the_last_line() {
        assert_eq!(Totals::parse("8 passed, 0 failed, 2 skipped"), Some(Totals([8, 0, 2])));
        for line in
            ["8 passed, 0 failed", "0 failed, 8 passed, 2 skipped", "x passed, 0 failed, 2 skipped", ""]
        {
            assert_eq!(Totals::parse(line), None, "{line}");
        }
    }

    #[test]
    fn limits_select_the_engine_of_browsers() {
        assert_eq!(limited("wgpu", Some("webgpu")), Ok("webgpu"));
        assert_eq!(limited("cpu", None), Ok("cpu"));
        assert!(limited("cpu", Some("webgpu")).unwrap_err().contains("--limits webgpu"));
        assert!(limited("wgpu", Some("metal")).is_err());
    }

    #[test]
    fn mistakes_are_named() {
        let said = |words: &[&str]| {
            run(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap_err()
        };
        assert!(said(&[]).contains("`--engine` is missing"));
        assert!(said(&["--engine", "abacus"]).contains("router"));
        assert!(checked_part("3/2").is_err() && checked_part("x").is_err());
        assert_eq!(checked_part("2/8"), Ok((2, 8)));
    }
}
