//! Tensors that exceed the limit of a binding: each is bound in parts, and accessed by functions that select the part.

use crate::print::Unprintable;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// The source of a WGSL module in which tensors are bound in several parts.
///
/// `parts` is the number of parts of each tensor, in the order of the bindings; a tensor beyond the slice has one. The
/// parts of a tensor are consecutive bindings: windows of `part_bytes` bytes of its buffer, the last one possibly
/// shorter. The uniform buffer follows the last part, with the same words. Indices stay those of the whole tensor. Only
/// accesses to tensors of several parts change in the text.
///
/// ```
/// use kiln_kernel::print::split_tensors;
///
/// let text = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
/// @compute @workgroup_size(64) fn twice(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] = 2.0 * x[id.x]; }
/// ";
/// let split = split_tensors(text, &[2], 1 << 27).unwrap();
/// assert!(split.contains("kiln_store_x(u32(id.x), 2.0 * kiln_load_x(u32(id.x)));"));
/// assert!(split.contains("@binding(1) var<storage, read_write> x_part1: array<f32>;"));
/// ```
///
/// # Errors
/// When an access to a tensor of several parts is none to an element, or when the size of its elements does not divide
/// the parts.
///
/// # Panics
/// When `part_bytes` is not a power of two.
pub fn split_tensors(text: &str, parts: &[usize], part_bytes: usize) -> Result<String, Unprintable> {
    assert!(part_bytes.is_power_of_two(), "the bytes of a part are a power of two");
    let lacking = |lack: String| Unprintable { lacks: alloc::vec![lack] };
    let (declarations, rest) = declarations(text).map_err(lacking)?;
    let tensors: Vec<Tensor<'_>> = declarations
        .iter()
        .filter_map(|declaration| Tensor::new(declaration, parts))
        .filter(|tensor| tensor.parts > 1)
        .collect();
    let mut accesses = Accesses { tensors: &tensors, used: BTreeSet::new() };
    let mut split = accesses.rewritten(&rest).map_err(lacking)?;
    split.push_str(&bindings(&declarations, &tensors));
    for &(tensor, access) in &accesses.used {
        let function = tensors[tensor].function(access, part_bytes).map_err(lacking)?;
        split.push_str(&function);
    }
    if accesses.used.iter().any(|(_, access)| *access == EXCHANGE) {
        split.push_str(&exchanged_types(&tensors));
    }
    Ok(split)
}

/// The functions of an element that is no atomic.
const LOAD: &str = "load";
const STORE: &str = "store";

/// The builtin functions of an atomic element.
const EXCHANGE: &str = "atomicCompareExchangeWeak";
const ATOMICS: [&str; 11] = [
    "atomicLoad",
    "atomicStore",
    "atomicAdd",
    "atomicSub",
    "atomicMax",
    "atomicMin",
    "atomicAnd",
    "atomicOr",
    "atomicXor",
    "atomicExchange",
    EXCHANGE,
];

/// A variable with a binding.
struct Declaration<'a> {
    binding: usize,
    /// The text from `var`, with the semicolon.
    text: &'a str,
}

/// The declarations with a binding, by their bindings, and the other lines of a module.
fn declarations(text: &str) -> Result<(Vec<Declaration<'_>>, String), String> {
    let mut rest = String::with_capacity(text.len());
    let mut list = Vec::new();
    for line in text.lines() {
        let declared = line.trim().strip_prefix("@group(0) @binding(").and_then(|line| line.split_once(") "));
        let binding = declared.and_then(|(binding, text)| Some((binding.parse().ok()?, text)));
        match binding {
            Some((binding, text)) if text.ends_with(';') => list.push(Declaration { binding, text }),
            Some(_) => return Err(format!("tensor of several bindings beside `{}`", line.trim())),
            None if line.contains("@binding(") => {
                return Err(format!("tensor of several bindings beside `{}`", line.trim()));
            }
            None => {
                rest.push_str(line);
                rest.push('\n');
            }
        }
    }
    list.sort_by_key(|declaration| declaration.binding);
    Ok((list, rest))
}

/// A tensor of a module.
struct Tensor<'a> {
    binding: usize,
    name: &'a str,
    /// `read` or `read_write`.
    access: &'a str,
    /// The type of its elements.
    ty: &'a str,
    parts: usize,
}

impl<'a> Tensor<'a> {
    /// The declared tensor; `None` for other variables.
    fn new(declaration: &Declaration<'a>, parts: &[usize]) -> Option<Tensor<'a>> {
        let (access, variable) = declaration.text.strip_prefix("var<storage, ")?.split_once("> ")?;
        let (name, ty) = variable.split_once(": array<")?;
        let ty = ty.strip_suffix(">;")?;
        let parts = parts.get(declaration.binding).copied().unwrap_or(1);
        Some(Tensor { binding: declaration.binding, name, access, ty, parts })
    }

    fn part(&self, part: usize) -> String {
        format!("{}_part{part}", self.name)
    }

    /// The type of an element as a value.
    fn value(&self) -> &'a str {
        self.ty.strip_prefix("atomic<").and_then(|ty| ty.strip_suffix('>')).unwrap_or(self.ty)
    }

    /// The function of an access to an element, which selects the part by the upper bits of the index.
    fn function(&self, access: &str, part_bytes: usize) -> Result<String, String> {
        let bytes = element_bytes(self.value()).filter(|bytes| *bytes <= part_bytes);
        let bytes = bytes.ok_or_else(|| format!("tensor of several bindings with elements `{}`", self.ty))?;
        let elements = part_bytes / bytes;
        let value = self.value();
        let exchanged = format!("kiln_exchanged_{value}");
        let (operands, arguments, result) = match access {
            LOAD | "atomicLoad" => (String::new(), "", value),
            STORE | "atomicStore" => (format!(", value: {value}"), ", value", ""),
            EXCHANGE => (format!(", old: {value}, value: {value}"), ", old, value", &*exchanged),
            _ => (format!(", value: {value}"), ", value", value),
        };
        let arrow = if result.is_empty() { "" } else { " -> " };
        let name = function_name(access, self.name);
        let mut text = format!("fn {name}(at: u32{operands}){arrow}{result} {{\n");
        let _ = writeln!(text, "  let place = at & {}u;", elements - 1);
        for part in 0..self.parts {
            let element = format!("{}[place]", self.part(part));
            let statement = match access {
                LOAD => format!("return {element};"),
                STORE => format!("{element} = value;"),
                "atomicStore" => format!("atomicStore(&{element}, value);"),
                EXCHANGE => format!(
                    "let found = {EXCHANGE}(&{element}, old, value); return {exchanged}(found.old_value, found.exchanged);"
                ),
                _ => format!("return {access}(&{element}{arguments});"),
            };
            let end = if result.is_empty() { " return;" } else { "" };
            let _ = match part + 1 == self.parts {
                true => writeln!(text, "  {statement}"),
                false => {
                    let by = elements.ilog2();
                    writeln!(text, "  if ((at >> {by}u) == {part}u) {{ {statement}{end} }}")
                }
            };
        }
        text.push_str("}\n");
        Ok(text)
    }
}

/// The bytes of an element in an array, of the types whose size is a power of two.
fn element_bytes(ty: &str) -> Option<usize> {
    let scalar = |ty: &str| match ty {
        "f16" => Some(2),
        "f32" | "i32" | "u32" => Some(4),
        "f64" | "i64" | "u64" => Some(8),
        _ => None,
    };
    let vector = |prefix: &str| ty.strip_prefix(prefix).and_then(|ty| ty.strip_suffix('>')).and_then(scalar);
    let pair = || vector("vec2<").map(|bytes| 2 * bytes);
    let four = || vector("vec4<").map(|bytes| 4 * bytes);
    scalar(ty).or_else(pair).or_else(four)
}

fn function_name(access: &str, tensor: &str) -> String {
    format!("kiln_{access}_{tensor}")
}

/// The bindings with those of the parts.
fn bindings(declarations: &[Declaration<'_>], tensors: &[Tensor<'_>]) -> String {
    let mut text = String::new();
    let mut next = 0;
    let mut bind = |variable: &str| {
        let _ = writeln!(text, "@group(0) @binding({next}) {variable}");
        next += 1;
    };
    for declaration in declarations {
        match tensors.iter().find(|tensor| tensor.binding == declaration.binding) {
            None => bind(declaration.text),
            Some(tensor) => {
                for part in 0..tensor.parts {
                    let (name, access, ty) = (tensor.part(part), tensor.access, tensor.ty);
                    bind(&format!("var<storage, {access}> {name}: array<{ty}>;"));
                }
            }
        }
    }
    text
}

/// The results of exchanges: no function can return that of the builtin.
fn exchanged_types(tensors: &[Tensor<'_>]) -> String {
    let types: BTreeSet<&str> =
        tensors.iter().filter(|tensor| tensor.value() != tensor.ty).map(Tensor::value).collect();
    let declared =
        |ty: &&str| format!("struct kiln_exchanged_{ty} {{ old_value: {ty}, exchanged: bool, }}\n");
    types.iter().map(declared).collect()
}

/// The accesses of a module to tensors of several parts.
struct Accesses<'a> {
    tensors: &'a [Tensor<'a>],
    /// The functions that are called: tensor and access.
    used: BTreeSet<(usize, &'static str)>,
}

impl Accesses<'_> {
    /// The text with calls of functions in place of the accesses.
    fn rewritten(&mut self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_word) {
            let (before, from) = rest.split_at(start);
            out.push_str(before);
            let (word, after) = from.split_at(from.find(|c| !is_word(c)).unwrap_or(from.len()));
            let is_member = out.ends_with('.');
            match self.tensors.iter().position(|tensor| tensor.name == word && !is_member) {
                None => {
                    out.push_str(word);
                    rest = after;
                }
                Some(tensor) => rest = self.access(tensor, &mut out, from, after)?,
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Rewrites the access to a tensor at the start of `from`, where `after` follows the name. Returns the rest.
    fn access<'t>(
        &mut self,
        tensor: usize,
        out: &mut String,
        from: &'t str,
        after: &'t str,
    ) -> Result<&'t str, String> {
        let refused =
            || format!("tensor of several bindings in `{}`", from.lines().next().unwrap_or_default());
        let (index, rest) = element(after).ok_or_else(refused)?;
        let index = self.rewritten(index)?;
        let name = self.tensors[tensor].name;
        if out.ends_with('&') && !out.ends_with("&&") {
            let access = ATOMICS.into_iter().find(|atomic| out.ends_with(&format!("{atomic}(&")));
            let access = access.ok_or_else(refused)?;
            out.truncate(out.len() - access.len() - "(&".len());
            self.used.insert((tensor, access));
            // The other arguments are in the rest.
            let _ = write!(out, "{}(u32({index})", function_name(access, name));
            return Ok(rest);
        }
        match assignment(rest) {
            Assignment::Plain(value, rest) => {
                self.used.insert((tensor, STORE));
                let value = self.rewritten(value)?;
                let _ = write!(out, "{}(u32({index}), {value});", function_name(STORE, name));
                Ok(rest)
            }
            Assignment::None => {
                self.used.insert((tensor, LOAD));
                let _ = write!(out, "{}(u32({index}))", function_name(LOAD, name));
                Ok(rest)
            }
            Assignment::Other => Err(refused()),
        }
    }
}

/// An assignment to an element.
enum Assignment<'t> {
    /// The element is only read.
    None,
    /// A plain assignment: the value, and the text after the semicolon.
    Plain(&'t str, &'t str),
    /// A compound assignment, or one to a component.
    Other,
}

fn assignment(after: &str) -> Assignment<'_> {
    let next = after.trim_start();
    let mut component = next;
    while let Some(rest) = component.strip_prefix('.') {
        component = rest.trim_start_matches(is_word).trim_start();
    }
    let is_assigned = |text: &str| text.starts_with('=') && !text.starts_with("==");
    if is_assigned(next) {
        return match next[1..].split_once(';') {
            Some((value, rest)) => Assignment::Plain(value.trim(), rest),
            None => Assignment::Other,
        };
    }
    let compound = ["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--"];
    match is_assigned(component) || compound.iter().any(|operator| component.starts_with(operator)) {
        true => Assignment::Other,
        false => Assignment::None,
    }
}

/// The index in brackets at the start of a text, and the text after them.
fn element(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('[')?;
    let mut depth = 1;
    for (place, byte) in inner.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&inner[..place], &inner[place + 1..]));
        }
    }
    None
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const HEAD: &str = "@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> z: array<i64>;
@group(0) @binding(3) var<uniform> launch: array<vec4<u32>, 1>;
";

    fn split(body: &str, parts: &[usize]) -> Result<String, Unprintable> {
        split_tensors(&format!("{HEAD}{body}\n"), parts, 1 << 10)
    }

    #[test]
    fn parts_are_consecutive_bindings_before_the_uniform_buffer() {
        let text = split("fn f() {}", &[2, 1, 3]).unwrap();
        let bindings = "@group(0) @binding(0) var<storage, read> x_part0: array<f32>;
@group(0) @binding(1) var<storage, read> x_part1: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> z_part0: array<i64>;
@group(0) @binding(4) var<storage, read_write> z_part1: array<i64>;
@group(0) @binding(5) var<storage, read_write> z_part2: array<i64>;
@group(0) @binding(6) var<uniform> launch: array<vec4<u32>, 1>;
";
        assert_eq!(text, format!("fn f() {{}}\n{bindings}"));
    }

    #[test]
    fn elements_are_accessed_by_functions_that_select_the_part() {
        let text = split("fn f(i: i32) { z[i + 1] = i64(x[i32(x[i])] == 2f); }", &[3, 1, 2]).unwrap();
        let call = "{ kiln_store_z(u32(i + 1), i64(kiln_load_x(u32(i32(kiln_load_x(u32(i))))) == 2f)); }";
        assert!(text.contains(call), "{text}");
        let load = "fn kiln_load_x(at: u32) -> f32 {
  let place = at & 255u;
  if ((at >> 8u) == 0u) { return x_part0[place]; }
  if ((at >> 8u) == 1u) { return x_part1[place]; }
  return x_part2[place];
}
";
        let store = "fn kiln_store_z(at: u32, value: i64) {
  let place = at & 127u;
  if ((at >> 7u) == 0u) { z_part0[place] = value; return; }
  z_part1[place] = value;
}
";
        assert!(text.contains(load) && text.contains(store), "{text}");
    }

    #[test]
    fn atomic_operations_keep_their_arguments() {
        let body = "fn f(at: i32) {
  let shift = 8u;
  atomicOr(&y[at >> 2u], 1u << shift);
  let swapped = atomicCompareExchangeWeak(&y[at], atomicLoad(&y[at]), 5u);
  if (swapped.exchanged && x[at] > 0f) { atomicStore(&y[0], swapped.old_value); }
}";
        let text = split(body, &[1, 2, 1]).unwrap();
        for call in [
            "  kiln_atomicOr_y(u32(at >> 2u), 1u << shift);\n",
            "= kiln_atomicCompareExchangeWeak_y(u32(at), kiln_atomicLoad_y(u32(at)), 5u);",
            "(swapped.exchanged && x[at] > 0f) { kiln_atomicStore_y(u32(0), swapped.old_value); }",
            "fn kiln_atomicOr_y(at: u32, value: u32) -> u32 {",
            "fn kiln_atomicCompareExchangeWeak_y(at: u32, old: u32, value: u32) -> kiln_exchanged_u32 {",
            "struct kiln_exchanged_u32 { old_value: u32, exchanged: bool, }",
        ] {
            assert!(text.contains(call), "{call}\n{text}");
        }
    }

    #[test]
    fn names_that_only_contain_a_tensors_stay() {
        let body = "fn f(id: vec3<u32>) -> u32 { let x_first = launch[0].x; return id.x + 0x1u + x_first; }";
        assert!(split(body, &[2]).unwrap().contains(body));
    }

    #[test]
    fn other_accesses_are_errors_with_their_line() {
        for access in [
            "let p = &z[i];",
            "z[i] += 1li;",
            "let n = arrayLength(&z);",
            "let z = 1;",
            "z[i].y = 1li;",
            "g(&z[i], 4);",
        ] {
            let error = split(&format!("fn f(i: i32) {{\n  {access}\n}}"), &[1, 1, 2]).unwrap_err();
            assert!(error.to_string().contains("tensor of several bindings in `z"), "{access}: {error}");
            assert!(split(&format!("fn f(i: i32) {{\n  {access}\n}}"), &[2, 2, 1]).is_ok());
        }
        let apart = "@group(0)\n@binding(0) var<storage, read> x: array<f32>;\n";
        assert!(split_tensors(apart, &[2], 1 << 10).is_err());
        let odd = "@group(0) @binding(0) var<storage, read> x: array<vec3<f32>>;\nfn f() -> vec3<f32> { return x[0]; }\n";
        assert!(split_tensors(odd, &[2], 1 << 10).unwrap_err().to_string().contains("vec3<f32>"));
    }
}
