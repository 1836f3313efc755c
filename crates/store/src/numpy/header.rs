//! The header of a `.npy` file: its version, and a Python dictionary as text.
//!
//! A file contains `\x93NUMPY`, the version (two bytes), the length of the text (two bytes in version 1.0, four since
//! 2.0, little-endian), the text, and the elements. The text is Latin-1, and UTF-8 since version 3.0. Source:
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use kiln_tensor::{DType, MAX_RANK, Shape};

use super::input::Input;
use crate::error::{Result, StoreError};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Alignment of the elements in the file, in bytes.
const ALIGNMENT: usize = 64;

/// Limit on the length of a header's text in bytes, that of version 1.0. Only structured dtypes need more.
const MAX_TEXT_BYTES: usize = 65_535;

/// Digits reserved for the first dimension: NumPy pads to this width, so that a file can grow in place.
const GROWTH_DIGITS: usize = 21;

/// The element type: real or complex.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Numbers {
    Real(DType),
    /// Pairs of real and imaginary parts, both of this dtype.
    Complex(DType),
}

impl Numbers {
    /// Returns the number of bytes per element.
    pub(super) fn size(self) -> usize {
        match self {
            Numbers::Real(dtype) => dtype.size(),
            Numbers::Complex(part) => 2 * part.size(),
        }
    }
}

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Header {
    pub(super) numbers: Numbers,
    pub(super) big_endian: bool,
    /// Whether the first dimension is contiguous (column-major order).
    pub(super) fortran_order: bool,
    pub(super) shape: Shape,
}

impl Header {
    /// Reads a header and checks that exactly its elements follow.
    pub(super) fn read(input: &mut Input<'_>) -> Result<Header> {
        let length = text_length(input)?;
        let base = input.at();
        if length > MAX_TEXT_BYTES {
            let problem = format!(
                "the header is {length} bytes long, more than the {MAX_TEXT_BYTES} allowed for tensors"
            );
            return Err(input.malformed(8, problem));
        }
        let mut text = vec![0; length];
        input.fill(&mut text, "the header")?;
        let header = Parser { text: &text, at: 0 }
            .header()
            .map_err(|(at, problem)| input.malformed(base + at as u64, problem))?;
        header.check_length(input)?;
        Ok(header)
    }

    fn check_length(&self, input: &Input<'_>) -> Result<()> {
        let bytes = self.shape.checked_num_elements().and_then(|n| n.checked_mul(self.numbers.size()));
        let rest = input.rest();
        let problem = match bytes {
            Some(bytes) if bytes as u64 == rest => return Ok(()),
            Some(bytes) if (bytes as u64) < rest => {
                format!(
                    "the array's elements need {bytes} bytes, but {rest} follow\n  hint: a file contains one array; \
                     `numpy.savez` keeps several"
                )
            }
            Some(bytes) => {
                format!(
                    "the array's elements need {bytes} bytes, but only {rest} follow\n  hint: the file is truncated; \
                     get it again"
                )
            }
            None => format!("an array of shape {} is larger than any memory", self.shape),
        };
        Err(input.malformed(input.at(), problem))
    }

    /// Returns the header as bytes, identical to those of `numpy.save`.
    pub(super) fn print(&self) -> Vec<u8> {
        let lengths: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let comma = if lengths.len() == 1 { "," } else { "" };
        let mut text = format!(
            "{{'descr': '{}', 'fortran_order': {}, 'shape': ({}{comma}), }}",
            descr(self.numbers, self.big_endian),
            if self.fortran_order { "True" } else { "False" },
            lengths.join(", ")
        );
        let growing = if self.fortran_order { lengths.last() } else { lengths.first() };
        let room = growing.map_or(0, |length| GROWTH_DIGITS - length.len());
        text.extend(std::iter::repeat_n(' ', room));
        let before = MAGIC.len() + 2 + 2;
        let padding = ALIGNMENT - (before + text.len() + 1) % ALIGNMENT;
        text.extend(std::iter::repeat_n(' ', padding));
        text.push('\n');
        // At most 12 dimensions of 20 digits: far below the limit of version 1.0.
        let mut bytes = [MAGIC.as_slice(), &[1, 0], &(text.len() as u16).to_le_bytes()].concat();
        bytes.extend(text.bytes());
        bytes
    }
}

/// Reads the magic bytes, the version and the length of the text.
fn text_length(input: &mut Input<'_>) -> Result<usize> {
    let mut start = [0; MAGIC.len()];
    let known = input.rest().min(start.len() as u64) as usize;
    input.fill(&mut start[..known], "the start")?;
    if start != *MAGIC {
        return Err(wrong_start(input, &start[..known]));
    }
    let mut version = [0; 2];
    input.fill(&mut version, "the version")?;
    let mut bytes = [0; 4];
    match version.into() {
        (1, 0) => input.fill(&mut bytes[..2], "the header's length")?,
        (2 | 3, 0) => input.fill(&mut bytes, "the header's length")?,
        (major, minor) => {
            let problem = format!("unsupported format version {major}.{minor}; supported: 1.0, 2.0, 3.0");
            return Err(input.malformed(6, problem));
        }
    }
    Ok(u32::from_le_bytes(bytes) as usize)
}

fn wrong_start(input: &Input<'_>, start: &[u8]) -> StoreError {
    let hint = if start.starts_with(b"PK") {
        "it is a zip archive: `numpy::read_archive` reads `.npz` files"
    } else if start.starts_with(b"\x80") {
        "it looks like a pickle, which can run any code when read: save it with `numpy.save` and without objects"
    } else if MAGIC.starts_with(start) {
        "the file is truncated; get it again"
    } else {
        "`numpy.save` writes such files"
    };
    input.malformed(0, format!("is not a `.npy` file, which starts with \\x93NUMPY\n  hint: {hint}"))
}

/// The `descr` string of a type.
fn descr(numbers: Numbers, big_endian: bool) -> String {
    let code = match numbers {
        Numbers::Real(DType::Bool) => "b1",
        Numbers::Real(DType::I8) => "i1",
        Numbers::Real(DType::U8) => "u1",
        Numbers::Real(DType::I16) => "i2",
        Numbers::Real(DType::U16) => "u2",
        Numbers::Real(DType::F16) => "f2",
        Numbers::Real(DType::BF16) => "V2",
        Numbers::Real(DType::I32) => "i4",
        Numbers::Real(DType::U32) => "u4",
        Numbers::Real(DType::F32) => "f4",
        Numbers::Real(DType::I64) => "i8",
        Numbers::Real(DType::U64) => "u8",
        Numbers::Real(DType::F64) => "f8",
        Numbers::Complex(DType::F64) => "c16",
        Numbers::Complex(_) => "c8",
    };
    let order = match numbers.size() {
        1 => '|',
        _ if big_endian => '>',
        _ => '<',
    };
    format!("{order}{code}")
}

/// Parses a `descr` into type and byte order (whether big-endian), or a description of an unsupported type.
fn parse_descr(text: &str) -> Result<(Numbers, bool), String> {
    let native = cfg!(target_endian = "big");
    let (code, big_endian) = match text.as_bytes().first() {
        Some(b'<' | b'|') => (&text[1..], false),
        Some(b'>') => (&text[1..], true),
        Some(b'=') => (&text[1..], native),
        _ => (text, native),
    };
    let numbers = match code {
        "b1" | "?" | "bool" => Numbers::Real(DType::Bool),
        "i1" | "int8" => Numbers::Real(DType::I8),
        "i2" | "int16" => Numbers::Real(DType::I16),
        "i4" | "int32" => Numbers::Real(DType::I32),
        "i8" | "int64" => Numbers::Real(DType::I64),
        "u1" | "uint8" => Numbers::Real(DType::U8),
        "u2" | "uint16" => Numbers::Real(DType::U16),
        "u4" | "uint32" => Numbers::Real(DType::U32),
        "u8" | "uint64" => Numbers::Real(DType::U64),
        "f2" | "float16" => Numbers::Real(DType::F16),
        "f4" | "float32" => Numbers::Real(DType::F32),
        "f8" | "float64" => Numbers::Real(DType::F64),
        "V2" | "bfloat16" => Numbers::Real(DType::BF16),
        "c8" | "complex64" => Numbers::Complex(DType::F32),
        "c16" | "complex128" => Numbers::Complex(DType::F64),
        _ => return Err(foreign(text, code)),
    };
    Ok((numbers, big_endian))
}

fn foreign(text: &str, code: &str) -> String {
    let (what, hint) = match code.as_bytes().first() {
        Some(b'O') => (
            "Python objects, which are pickled",
            "unpickling can run any code; save numbers: `numpy.save(path, array.astype('float32'))`",
        ),
        Some(b'U' | b'S' | b'a') => ("strings", "tensors contain numbers"),
        Some(b'M' | b'm') => ("dates or times", "save them as integers: `array.astype('int64')`"),
        Some(b'V') => ("void bytes", "save numbers: `array.view('uint8')`"),
        _ => ("of an unsupported type", "convert them: `array.astype('float64')`"),
    };
    format!("the elements are {what}: `{}`\n  hint: {hint}", text.escape_debug())
}

/// Parser of the dictionary. An error is a position in the text and a description of the problem.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

type Parsed<T> = Result<T, (usize, String)>;

impl Parser<'_> {
    fn header(mut self) -> Parsed<Header> {
        let (mut numbers, mut fortran_order, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while self.peek() != Some(b'}') {
            let place = self.at;
            let key = self.string()?;
            self.expect(b':')?;
            let twice = match key.as_str() {
                "descr" => numbers.replace(self.descr()?).is_some(),
                "fortran_order" => fortran_order.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.shape()?).is_some(),
                other => {
                    return Err((place, format!("unknown key `{}`", other.escape_debug())));
                }
            };
            if twice {
                return Err((place, format!("duplicate key `{key}`")));
            }
            if self.peek() != Some(b'}') {
                self.expect(b',')?;
            }
        }
        self.expect(b'}')?;
        if self.peek().is_some() {
            return Err((self.at, "the header continues after its dictionary".to_owned()));
        }
        let missing = |key: &str| (0, format!("the header has no key `{key}`"));
        let (numbers, big_endian) = numbers.ok_or_else(|| missing("descr"))?;
        let fortran_order = fortran_order.ok_or_else(|| missing("fortran_order"))?;
        let shape = shape.ok_or_else(|| missing("shape"))?;
        Ok(Header { numbers, big_endian, fortran_order, shape })
    }

    fn descr(&mut self) -> Parsed<(Numbers, bool)> {
        if let Some(b'[' | b'(') = self.peek() {
            let problem = "the elements are records of several fields\n  hint: save each field as an array of its own: \
                           `numpy.savez(path, **{name: array[name] for name in array.dtype.names})`";
            return Err((self.at, problem.to_owned()));
        }
        let place = self.at;
        let text = self.string()?;
        parse_descr(&text).map_err(|problem| (place, problem))
    }

    fn boolean(&mut self) -> Parsed<bool> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err((self.at, "expected True or False".to_owned()))
    }

    fn shape(&mut self) -> Parsed<Shape> {
        let mut lengths = [0; MAX_RANK];
        let mut rank = 0;
        self.expect(b'(')?;
        while self.peek() != Some(b')') {
            if rank == MAX_RANK {
                return Err((self.at, format!("the array has more than {MAX_RANK} dimensions")));
            }
            lengths[rank] = self.length()?;
            rank += 1;
            if self.peek() != Some(b')') {
                self.expect(b',')?;
            }
        }
        self.expect(b')')?;
        Ok(Shape::new(&lengths[..rank]))
    }

    fn length(&mut self) -> Parsed<usize> {
        self.peek();
        let place = self.at;
        let digits = self.text[place..].iter().take_while(|byte| byte.is_ascii_digit());
        let mut length = Some(0usize);
        for digit in digits {
            length = length.and_then(|x| x.checked_mul(10)?.checked_add(usize::from(digit - b'0')));
            self.at += 1;
        }
        if self.at == place {
            return Err((place, "expected a dimension".to_owned()));
        }
        // Python 2 wrote this suffix after long integers.
        if self.text.get(self.at) == Some(&b'L') {
            self.at += 1;
        }
        length.ok_or_else(|| (place, "a dimension exceeds the address space".to_owned()))
    }

    /// Parses a string in single or double quotes, without escapes: no type name needs them.
    fn string(&mut self) -> Parsed<String> {
        let place = match self.peek() {
            Some(b'\'' | b'"') => self.at,
            _ => return Err((self.at, "expected a text in quotes".to_owned())),
        };
        let quote = self.text[place];
        let rest = &self.text[place + 1..];
        let end = rest.iter().position(|&byte| byte == quote || byte == b'\\' || byte == b'\n');
        match end.filter(|&end| rest[end] == quote) {
            Some(end) => {
                self.at = place + 1 + end + 1;
                Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
            }
            None => Err((place, "the text has no end".to_owned())),
        }
    }

    fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err((self.at, format!("expected `{}`", char::from(byte))))
    }

    /// The next byte that is not whitespace.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }
}
