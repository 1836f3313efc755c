//! The commands that are not yet submitted.

use crate::failure::scoped;
use std::mem;

/// The maximum number of launches in one submission.
const MAX_LAUNCHES: usize = 64;

/// The bytes of the uniform buffer, which holds the words of the launches of one submission.
pub(crate) const UNIFORM_BYTES: usize = 64 << 10;

/// Recorded commands: one command encoder, with one compute pass for consecutive launches. wgpu inserts the barriers
/// between dispatches.
#[derive(Default)]
pub(crate) struct Commands {
    // Dropped before the encoder, since that ends the pass.
    pass: Option<wgpu::ComputePass<'static>>,
    encoder: Option<wgpu::CommandEncoder>,
    /// The contents of the uniform buffer.
    words: Vec<u8>,
    launches: usize,
}

/// The parts of a submission.
pub(crate) struct Submission {
    /// The commands; `None` if nothing is recorded.
    pub(crate) encoder: Option<wgpu::CommandEncoder>,
    /// The contents of the uniform buffer.
    pub(crate) words: Vec<u8>,
}

impl Commands {
    pub(crate) fn is_empty(&self) -> bool {
        self.encoder.is_none()
    }

    /// The encoder, outside of a compute pass.
    pub(crate) fn encoder(&mut self, device: &wgpu::Device) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        self.open(device)
    }

    /// The compute pass.
    pub(crate) fn pass(&mut self, device: &wgpu::Device) -> &mut wgpu::ComputePass<'static> {
        if self.pass.is_none() {
            let described = wgpu::ComputePassDescriptor { label: None, timestamp_writes: None };
            let pass = self.open(device).begin_compute_pass(&described).forget_lifetime();
            self.pass = Some(pass);
        }
        self.launches += 1;
        self.pass.as_mut().expect("it was begun above")
    }

    fn open(&mut self, device: &wgpu::Device) -> &mut wgpu::CommandEncoder {
        let described = wgpu::CommandEncoderDescriptor { label: None };
        // `finish` reports the error of an encoder that could not be created. Here it would reach the handler of uncaught
        // errors, which may end the program.
        self.encoder.get_or_insert_with(|| scoped(device, || device.create_command_encoder(&described)).0)
    }

    /// Appends the words of a launch and returns their offset in the uniform buffer, a multiple of `alignment`; `None` if
    /// the recorded commands must be submitted first.
    pub(crate) fn append(&mut self, words: &[u32], alignment: usize) -> Option<u64> {
        let offset = self.words.len().next_multiple_of(alignment);
        // A uniform of WGSL is an array of four words.
        let end = offset + (4 * words.len()).next_multiple_of(16);
        if end > UNIFORM_BYTES || self.launches >= MAX_LAUNCHES {
            return None;
        }
        self.words.resize(offset, 0);
        self.words.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.words.resize(end, 0);
        Some(offset as u64)
    }

    /// Takes everything that is recorded.
    pub(crate) fn take(&mut self) -> Submission {
        let Commands { pass, encoder, words, .. } = mem::take(self);
        drop(pass);
        Submission { encoder, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_launches_are_aligned_and_padded() {
        let mut commands = Commands::default();
        assert_eq!(commands.append(&[1, 2, 3, 4, 5], 64), Some(0));
        assert_eq!(commands.append(&[6], 64), Some(64));
        let words = commands.take().words;
        assert_eq!(words.len(), 80);
        assert_eq!((words[16], words[64]), (5, 6));
        assert!(words[20..64].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_full_uniform_buffer_is_submitted_first() {
        let mut commands = Commands::default();
        let large = vec![0; UNIFORM_BYTES / 4 - 64];
        assert_eq!(commands.append(&large, 256), Some(0));
        assert_eq!(commands.append(&large, 256), None);
        commands.take();
        assert_eq!(commands.append(&large, 256), Some(0));
    }
}
