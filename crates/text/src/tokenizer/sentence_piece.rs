//! Byte-pair encoding of SentencePiece ([Kudo & Richardson 2018](https://arxiv.org/abs/1808.06226)): the pair whose
//! token has the highest score merges first, the leftmost of equals.

use super::gguf::TokenType;
use crate::{Result, TextError};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// The character that stands for a space.
const SPACE: &str = "▁";

/// A vocabulary of SentencePiece's BPE models.
pub(super) struct SentencePiece {
    tokens: Vec<Token>,
    /// The tokens that text may become.
    by_text: HashMap<String, u32>,
    /// Control tokens, which end a segment.
    control: TokenFinder,
    /// User-defined tokens, which never merge with others.
    user_defined: TokenFinder,
    bytes: Box<[Option<u32>; 256]>,
    unknown: Option<u32>,
    add_space_prefix: bool,
}

struct Token {
    text: String,
    kind: TokenType,
    score: f32,
}

impl SentencePiece {
    pub(super) fn new(
        tokens: Vec<String>,
        kinds: &[TokenType],
        scores: &[f32],
        unknown: Option<u32>,
        add_space_prefix: bool,
    ) -> Self {
        let mut by_text = HashMap::with_capacity(tokens.len());
        let (mut control, mut user_defined) = (TokenFinder::default(), TokenFinder::default());
        let mut bytes = Box::new([None; 256]);
        for ((id, text), kind) in (0..).zip(&tokens).zip(kinds) {
            match kind {
                TokenType::Normal | TokenType::Unused => {
                    by_text.entry(text.clone()).or_insert(id);
                }
                TokenType::UserDefined => user_defined.add(&text.replace(' ', SPACE), id),
                TokenType::Control => control.add(text, id),
                TokenType::Byte => {
                    if let Some(byte) = byte_of(text) {
                        bytes[usize::from(byte)] = Some(id);
                    }
                }
                TokenType::Unknown => {}
            }
        }
        let tokens = tokens.into_iter().zip(kinds).zip(scores);
        let tokens = tokens.map(|((text, &kind), &score)| Token { text, kind, score }).collect();
        SentencePiece { tokens, by_text, control, user_defined, bytes, unknown, add_space_prefix }
    }

    /// Encodes text, without special tokens of the sequence. Each segment between control tokens starts with a space,
    /// if the model adds one.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for part in self.control.split(text) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => self.encode_segment(text, &mut ids)?,
            }
        }
        Ok(ids)
    }

    fn encode_segment(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let prefix = if self.add_space_prefix { SPACE } else { "" };
        let text = format!("{prefix}{}", text.replace(' ', SPACE));
        for part in self.user_defined.split(&text) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => self.encode_run(text, ids)?,
            }
        }
        Ok(())
    }

    fn encode_run(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let mut merge = Merge::new(self, text);
        merge.run();
        let mut after_unknown = false;
        for piece in merge.pieces() {
            after_unknown = self.push_piece(piece, &merge.unused, after_unknown, ids)?;
        }
        Ok(())
    }

    /// Appends the ids of a piece: its token, else its bytes, else the unknown token once for a run. Returns whether it
    /// is unknown.
    fn push_piece<'t>(
        &self,
        piece: &'t str,
        unused: &HashMap<&'t str, usize>,
        after_unknown: bool,
        ids: &mut Vec<u32>,
    ) -> Result<bool> {
        let mut stack = vec![piece];
        let mut is_unknown = after_unknown;
        while let Some(piece) = stack.pop() {
            if let Some(&left) = unused.get(piece) {
                stack.extend([&piece[left..], &piece[..left]]);
                continue;
            }
            let known = self.by_text.get(piece).copied();
            let bytes =
                || piece.bytes().map(|byte| self.bytes[usize::from(byte)]).collect::<Option<Vec<u32>>>();
            let next = match known.map(|id| vec![id]).or_else(bytes) {
                Some(known) => {
                    ids.extend(known);
                    false
                }
                None => {
                    let id = self.unknown.ok_or_else(|| TextError::Tokenization {
                        action: "encode the text",
                        problem: format!("{piece:?} has no token, and the vocabulary has no unknown token"),
                    })?;
                    if !is_unknown {
                        ids.push(id);
                    }
                    true
                }
            };
            is_unknown = next;
        }
        Ok(is_unknown)
    }

    pub(super) fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut bytes = Vec::new();
        let mut starts = self.add_space_prefix;
        for token in ids.iter().filter_map(|&id| self.tokens.get(id as usize)) {
            match token.kind {
                TokenType::Byte => bytes.extend(byte_of(&token.text)),
                TokenType::Control | TokenType::Unknown => {
                    if !skip_special {
                        bytes.extend_from_slice(token.text.as_bytes());
                    }
                    continue;
                }
                TokenType::Normal | TokenType::UserDefined | TokenType::Unused => {
                    let text = token.text.replace(SPACE, " ");
                    let text = if starts { text.strip_prefix(' ').unwrap_or(&text) } else { &text };
                    bytes.extend_from_slice(text.as_bytes());
                }
            }
            starts = false;
        }
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    pub(super) fn token_to_id(&self, token: &str) -> Option<u32> {
        let others =
            || self.tokens.iter().position(|own| own.text == token).and_then(|id| u32::try_from(id).ok());
        self.by_text.get(token).copied().or_else(others)
    }

    pub(super) fn id_to_token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(|token| token.text.as_str())
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        let token = self.tokens.get(id as usize);
        token.is_some_and(|token| matches!(token.kind, TokenType::Control | TokenType::Unknown))
    }

    pub(super) fn vocabulary_size(&self) -> usize {
        self.tokens.len()
    }
}

/// The byte of a token such as `<0x0A>`.
fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok()
}

/// A piece of the text, linked to its neighbours. A merged piece belongs to the left one of a pair; the right one has
/// length 0.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    length: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// A pair of neighbours that can merge.
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    /// The length of the merged piece: a candidate with another length is outdated.
    length: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

struct Merge<'m, 't> {
    model: &'m SentencePiece,
    text: &'t str,
    pieces: Vec<Piece>,
    candidates: BinaryHeap<Candidate>,
    /// Merged pieces whose token is unused, with the length of their left part: they split again.
    unused: HashMap<&'t str, usize>,
}

impl<'m, 't> Merge<'m, 't> {
    fn new(model: &'m SentencePiece, text: &'t str) -> Self {
        let characters = text.char_indices().enumerate();
        let mut pieces: Vec<Piece> = characters
            .map(|(index, (start, character))| Piece {
                start,
                length: character.len_utf8(),
                previous: index.checked_sub(1),
                next: Some(index + 1),
            })
            .collect();
        if let Some(last) = pieces.last_mut() {
            last.next = None;
        }
        let count = pieces.len();
        let mut merge = Merge { model, text, pieces, candidates: BinaryHeap::new(), unused: HashMap::new() };
        for right in 1..count {
            merge.consider(Some(right - 1), Some(right));
        }
        merge
    }

    fn run(&mut self) {
        while let Some(Candidate { left, right, length, .. }) = self.candidates.pop() {
            let (first, second) = (self.pieces[left], self.pieces[right]);
            if first.length == 0 || second.length == 0 || first.length + second.length != length {
                continue;
            }
            self.pieces[left] = Piece { length, next: second.next, ..first };
            self.pieces[right].length = 0;
            if let Some(next) = second.next {
                self.pieces[next].previous = Some(left);
            }
            self.consider(first.previous, Some(left));
            self.consider(Some(left), second.next);
        }
    }

    fn consider(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let (first, second) = (self.pieces[left], self.pieces[right]);
        let length = first.length + second.length;
        let merged = &self.text[first.start..first.start + length];
        let Some(&id) = self.model.by_text.get(merged) else { return };
        let token = &self.model.tokens[id as usize];
        self.candidates.push(Candidate { score: token.score, left, right, length });
        if token.kind == TokenType::Unused {
            self.unused.insert(merged, first.length);
        }
    }

    fn pieces(&self) -> impl Iterator<Item = &'t str> {
        let text = self.text;
        let whole = self.pieces.iter().filter(|piece| piece.length > 0);
        whole.map(move |piece| &text[piece.start..piece.start + piece.length])
    }
}

/// Finds tokens in text: the longest at the first position where one starts.
#[derive(Default)]
struct TokenFinder {
    by_text: HashMap<String, u32>,
    /// The lengths of the tokens that start with a byte, longest first.
    lengths: HashMap<u8, Vec<usize>>,
}

enum Part<'t> {
    Text(&'t str),
    Token(u32),
}

impl TokenFinder {
    fn add(&mut self, text: &str, id: u32) {
        let Some(&first) = text.as_bytes().first() else { return };
        self.by_text.entry(text.to_owned()).or_insert(id);
        let lengths = self.lengths.entry(first).or_default();
        if let Err(index) = lengths.binary_search_by(|length| text.len().cmp(length)) {
            lengths.insert(index, text.len());
        }
    }

    fn split<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let (mut start, mut at) = (0, 0);
        while at < text.len() {
            let Some((id, length)) = self.token_at(text, at) else {
                at += 1;
                continue;
            };
            if start < at {
                parts.push(Part::Text(&text[start..at]));
            }
            parts.push(Part::Token(id));
            at += length;
            start = at;
        }
        if start < text.len() {
            parts.push(Part::Text(&text[start..]));
        }
        parts
    }

    fn token_at(&self, text: &str, at: usize) -> Option<(u32, usize)> {
        let lengths = self.lengths.get(&text.as_bytes()[at])?;
        lengths.iter().find_map(|&length| {
            let id = self.by_text.get(text.get(at..at + length)?)?;
            Some((*id, length))
        })
    }
}
