//! Checks that matches over `Op` have no catch-all arm, so that a new op makes the compiler list every match.
//!
//! Clippy denies `_` where the matched value itself is an enum. This check also finds it in tuples and options, and
//! lower-case bindings that match everything. An engine's match may end with `_ => Err(self.caps.unsupported(op))`, which
//! leaves the other ops to their expansions.

use super::{Finding, Tree, line_of, words};

/// The arm of an engine for the ops that it leaves to the expanding layer.
const UNSUPPORTED: &str = "_ => Err(self.caps.unsupported(op))";

/// Crates with matches over `Op`.
const CRATES: &[&str] = &[
    "crates/ir/src/",
    "crates/reference/src/",
    "crates/cpu/src/",
    "crates/autodiff/src/",
    "crates/vmap/src/",
];

/// Checks that no match with arms for an `Op` has a catch-all arm.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.rust().filter(|(file, _)| CRATES.iter().any(|start| file.path.starts_with(start)));
    let check = |(file, code): (&super::File, &str)| {
        let offsets = catch_all_arms(code).into_iter();
        let report = |offset| {
            let problem = "a match over `Op` has a catch-all arm";
            file.finding(
                line_of(code, offset),
                problem,
                "name the remaining variants, so that a new op must be decided here",
            )
        };
        offsets.map(report).collect::<Vec<_>>()
    };
    sources.flat_map(check).collect()
}

/// Offsets of catch-all patterns in matches that also name variants of `Op`.
fn catch_all_arms(code: &str) -> Vec<usize> {
    let matches = words(code, "match").filter_map(|offset| Some((offset, match_body(code, offset)?)));
    let suspects = matches.filter_map(|(offset, (start, body))| {
        let arms = patterns(body);
        let inside_op = is_inside_impl_op(&code[..offset]);
        let over_op = arms.iter().any(|(_, pattern)| names_op(pattern, inside_op));
        let leaves_out = |at: usize| body[at..].starts_with(UNSUPPORTED);
        let catch_all = arms.iter().find(|(at, pattern)| is_catch_all(pattern) && !leaves_out(*at));
        catch_all.filter(|_| over_op).map(|(at, _)| start + at)
    });
    suspects.collect()
}

/// The body of the match at `offset`, with its offset.
fn match_body(code: &str, offset: usize) -> Option<(usize, &str)> {
    let open = find_outside_brackets(code, offset, |byte, depth| byte == b'{' && depth == 0)?;
    let close = closing(code, open)?;
    Some((open + 1, &code[open + 1..close]))
}

/// Each arm's pattern, trimmed, with its offset in `body`.
fn patterns(body: &str) -> Vec<(usize, &str)> {
    let bytes = body.as_bytes();
    let mut arms = Vec::new();
    let mut start = 0;
    while let Some(arrow) = find_arrow(body, start) {
        let pattern = body[start..arrow].trim();
        arms.push((arrow - body[start..arrow].trim_start().len(), pattern));
        let value =
            (arrow + 2..bytes.len()).find(|&at| !bytes[at].is_ascii_whitespace()).unwrap_or(bytes.len());
        let end = if bytes.get(value) == Some(&b'{') {
            closing(body, value).map(|close| close + 1)
        } else {
            find_outside_brackets(body, value, |byte, depth| byte == b',' && depth == 0)
        };
        let Some(end) = end else { break };
        start = if bytes.get(end) == Some(&b',') { end + 1 } else { end };
    }
    arms
}

fn find_arrow(body: &str, start: usize) -> Option<usize> {
    let bytes = body.as_bytes();
    let arrow = |at: usize| bytes[at] == b'=' && bytes.get(at + 1) == Some(&b'>');
    let mut depth = 0usize;
    (start..bytes.len()).find(|&at| {
        depth = depth_after(bytes[at], depth);
        depth == 0 && arrow(at)
    })
}

/// The first byte from `start` that `wanted` accepts, given how many brackets are open before it.
fn find_outside_brackets(code: &str, start: usize, wanted: impl Fn(u8, usize) -> bool) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut depth = 0usize;
    (start..bytes.len()).find(|&at| {
        let found = wanted(bytes[at], depth);
        depth = depth_after(bytes[at], depth);
        found
    })
}

/// The offset of the bracket that closes the one at `open`.
fn closing(code: &str, open: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut depth = 0usize;
    (open..bytes.len()).find(|&at| {
        depth = depth_after(bytes[at], depth);
        depth == 0
    })
}

fn depth_after(byte: u8, depth: usize) -> usize {
    match byte {
        b'(' | b'[' | b'{' => depth + 1,
        b')' | b']' | b'}' => depth.saturating_sub(1),
        _ => depth,
    }
}

fn names_op(pattern: &str, inside_op: bool) -> bool {
    let names = |word| words(pattern, word).any(|at| pattern[at + word.len()..].starts_with("::"));
    names("Op") || (inside_op && names("Self"))
}

/// Whether the last `impl` that starts a line before this point is one for `Op`.
fn is_inside_impl_op(before: &str) -> bool {
    let line = before.lines().rev().find(|line| line.starts_with("impl"));
    line.is_some_and(|line| {
        line.trim_end().trim_end_matches('{').trim_end().rsplit([' ', ':']).next() == Some("Op")
    })
}

/// `_`, a lower-case binding, or a tuple of those; a guard makes an arm a special case, not a catch-all.
fn is_catch_all(pattern: &str) -> bool {
    let parts = pattern.trim_start_matches('(').trim_end_matches(')').split(',').map(str::trim);
    let mut parts = parts.filter(|part| !part.is_empty()).peekable();
    parts.peek().is_some()
        && parts.all(|part| {
            let lower =
                part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            (lower && part != "true" && part != "false") || part == ".."
        })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    fn lines(source: &str) -> Vec<String> {
        places(&check(&tree(&[("crates/cpu/src/lib.rs", source)])))
    }

    #[test]
    fn a_wildcard_beside_op_arms_is_reported() {
        let source = "fn f(op: &Op) {\n    match op {\n        Op::Full => { g() }\n        Op::Iota { axis } => h(axis, 1),\n        _ => {}\n    }\n}\n";
        assert_eq!(lines(source), ["crates/cpu/src/lib.rs:5"]);
        assert_eq!(lines(&source.replace("_ =>", "other =>")), ["crates/cpu/src/lib.rs:5"]);
        assert_eq!(lines(&source.replace("_ =>", "Op::Copy =>")), [""; 0]);
        assert_eq!(lines(&source.replace("Op::", "UnaryOp::")), [""; 0]);
    }

    #[test]
    fn an_engine_may_leave_ops_out() {
        let source = "match op {\nOp::Full => { g() }\n_ => Err(self.caps.unsupported(op)),\n}";
        assert_eq!(lines(source), [""; 0]);
        assert_eq!(lines(&source.replace("unsupported", "refused")).len(), 1);
    }

    #[test]
    fn matches_on_tuples_options_and_self_are_found() {
        assert_eq!(lines("match (op, dtype) {\n(Op::Full, F32) => 1,\n(_, _) => 2,\n}").len(), 1);
        assert_eq!(lines("match next {\nSome(Op::Full) => 1,\n_ => 2\n}").len(), 1);
        let own = "impl fmt::Display for Op {\n fn f(&self) { match self { Self::Full => 1, _ => 2 } }\n}";
        assert_eq!(lines(own).len(), 1);
        assert_eq!(lines(&own.replace("for Op ", "for Shop ")), [""; 0]);
    }

    #[test]
    fn nested_matches_and_guards_are_distinguished() {
        let nested =
            "match op {\nOp::Full => match n { 0 => 1, _ => 2 },\nOp::Copy if n > 2 => 3,\nOp::Copy => 4,\n}";
        assert_eq!(lines(nested), [""; 0]);
        let inner = "match n {\n0 => match op { Op::Full => 1, _ => 2 },\n_ => 3,\n}";
        assert_eq!(lines(inner), ["crates/cpu/src/lib.rs:2"]);
    }

    #[test]
    fn other_crates_and_comments_are_ignored() {
        let source = "match op { Op::Full => 1, _ => 2 }";
        assert_eq!(check(&tree(&[("crates/nn/src/lib.rs", source)])), []);
        assert_eq!(lines("// match op { Op::Full => 1, _ => 2 }"), [""; 0]);
    }
}
