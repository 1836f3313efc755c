//! The path of a traversal.

use super::visited::Visited;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// The dotted name of a parameter or module, such as `layers.0.weight`. The root of the traversal has the empty path.
///
/// A traversal extends and truncates one path, so visiting a module rarely allocates. The path also knows the parameters
/// that the traversal has visited, and thus which are [tied](crate::Param#tied-parameters): start each traversal with a
/// new path, and visit submodules with that of the module. A clone is a name without this knowledge.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    text: String,
    /// The length of the text before each name was added.
    starts: Vec<usize>,
    visited: Visited,
}

impl Path {
    /// Returns the empty path.
    pub fn new() -> Path {
        Path::default()
    }

    /// Returns the dotted name. Empty for the root of the traversal.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the last component: `weight` of `layers.0.weight`. Empty for the root of the traversal.
    pub fn name(&self) -> &str {
        match self.starts.last() {
            Some(0) => &self.text,
            Some(&start) => &self.text[start + 1..],
            None => "",
        }
    }

    /// Returns the number of components.
    pub fn depth(&self) -> usize {
        self.starts.len()
    }

    /// Calls a function with this path extended by a name, then restores the path.
    pub fn within<R>(&mut self, name: &str, f: impl FnOnce(&mut Path) -> R) -> R {
        self.push(format_args!("{name}"));
        let result = f(self);
        self.pop();
        result
    }

    /// Calls a function with this path extended by an index, then restores the path.
    pub fn within_index<R>(&mut self, index: usize, f: impl FnOnce(&mut Path) -> R) -> R {
        self.push(format_args!("{index}"));
        let result = f(self);
        self.pop();
        result
    }

    /// Returns the path with these components in place of the last one, in the same traversal. Empty components are
    /// omitted.
    ///
    /// ```
    /// use kiln_nn::Path;
    ///
    /// let mut path = Path::new();
    /// let adapter = path.within("linear", |path| {
    ///     path.within("weight", |path| path.with_last(&["lora_A", path.name()]))
    /// });
    /// assert_eq!(adapter.as_str(), "linear.lora_A.weight");
    /// ```
    #[must_use]
    pub fn with_last(&self, names: &[&str]) -> Path {
        let mut path = self.clone().in_traversal_of(self);
        path.pop();
        for name in names.iter().filter(|name| !name.is_empty()) {
            path.push(format_args!("{name}"));
        }
        path
    }

    /// Returns this name as a path of another one's traversal.
    pub(crate) fn in_traversal_of(self, other: &Path) -> Path {
        Path { visited: other.visited.share(), ..self }
    }

    /// The parameters that the traversal has visited.
    pub(super) fn visited(&self) -> &Visited {
        &self.visited
    }

    pub(super) fn push(&mut self, name: fmt::Arguments<'_>) {
        self.starts.push(self.text.len());
        if !self.text.is_empty() {
            self.text.push('.');
        }
        // Writing to a `String` does not fail.
        let _ = self.text.write_fmt(name);
    }

    pub(super) fn pop(&mut self) {
        if let Some(start) = self.starts.pop() {
            self.text.truncate(start);
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl AsRef<str> for Path {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn path_segments_are_joined_by_dots() {
        let mut path = Path::new();
        assert_eq!((path.as_str(), path.name(), path.depth()), ("", "", 0));
        path.within("layers", |path| {
            assert_eq!((path.as_str(), path.name()), ("layers", "layers"));
            path.within_index(10, |path| {
                path.within("weight", |path| {
                    assert_eq!((path.to_string().as_str(), path.name()), ("layers.10.weight", "weight"));
                    assert_eq!(path.depth(), 3);
                });
                assert_eq!(path.name(), "10");
            });
        });
        assert_eq!(path, Path::new());
    }
}
