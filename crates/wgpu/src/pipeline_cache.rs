//! The compiled pipelines of a device, kept on disk for later processes.
//!
//! Kernels are kept as text, so that each process compiles them twice: wgpu translates WGSL to the language of the API, and
//! the driver translates that to machine code. The second step takes most of the time. Its results are in a pipeline cache
//! of the API, which only Vulkan has.

use crate::failure::Failure;
use kiln_gpu::disk;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Longer files are neither read nor written.
const LONGEST: u64 = 256 << 20;

/// The time between two saves is at least this multiple of the time of a save.
const INTERVAL: u32 = 100;

/// The first bytes of a file. The digit is the version of the format.
const MAGIC: [u8; 8] = *b"KILNPIP1";

/// The bytes before the key and the data.
const HEADER_BYTES: usize = 32;

/// The pipeline cache of a device and its file.
pub(crate) struct PipelineCache {
    cache: wgpu::PipelineCache,
    file: PathBuf,
    key: String,
    /// Whether a pipeline was created since the last save.
    has_new: AtomicBool,
    saved: Mutex<Saved>,
}

struct Saved {
    /// The bytes of the data in the file. Drivers only add to it, so that data of the same length is the same.
    bytes: usize,
    /// The earliest time of the next save.
    next: Instant,
}

impl PipelineCache {
    /// Opens the cache of a device with the pipelines of its file. `None` where the device has no pipeline cache, or where
    /// nothing is kept on disk.
    pub(crate) fn open(
        adapter: &wgpu::AdapterInfo,
        device: &wgpu::Device,
        failure: &Failure,
    ) -> Option<PipelineCache> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let key = key(adapter)?;
        let file = disk::folder("pipelines", &key)?.join("pipelines");
        let contents = disk::read(&file, LONGEST);
        let data = contents.as_deref().and_then(|contents| unpack(contents, &key));
        let filled = data.and_then(|data| Some((create(device, failure, Some(data))?, data.len())));
        let (cache, bytes) = match filled {
            Some(filled) => filled,
            None => (create(device, failure, None)?, 0),
        };
        let saved = Mutex::new(Saved { bytes, next: Instant::now() });
        Some(PipelineCache { cache, file, key, has_new: AtomicBool::new(false), saved })
    }

    /// The cache, for the descriptor of a pipeline.
    pub(crate) fn of_pipelines(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    /// The bytes of the compiled pipelines; `None` if the device is lost.
    pub(crate) fn bytes(&self) -> Option<usize> {
        Some(self.cache.get_data()?.len())
    }

    /// Notes that a pipeline was created.
    pub(crate) fn note(&self) {
        self.has_new.store(true, Ordering::Relaxed);
    }

    /// Saves new pipelines, unless the last save was a short time ago.
    pub(crate) fn save_if_due(&self) {
        if !self.has_new.load(Ordering::Relaxed) {
            return;
        }
        let mut saved = self.saved();
        if Instant::now() >= saved.next {
            self.save_to(&mut saved);
        }
    }

    /// Saves new pipelines, and returns whether the file has all of them. A failure, such as a full disk, only means that a
    /// later process compiles them again.
    pub(crate) fn save(&self) -> bool {
        self.save_to(&mut self.saved())
    }

    fn save_to(&self, saved: &mut Saved) -> bool {
        let start = Instant::now();
        // Another thread may create a pipeline while the data is read: it is then noted again.
        self.has_new.store(false, Ordering::Relaxed);
        let is_done = self.write(saved);
        saved.next = Instant::now() + start.elapsed() * INTERVAL;
        is_done
    }

    fn write(&self, saved: &mut Saved) -> bool {
        let Some(data) = self.cache.get_data() else { return false };
        if data.len() == saved.bytes {
            return true;
        }
        let header = header(&self.key, &data);
        let length = header.len() + self.key.len() + data.len();
        if length as u64 > LONGEST {
            return false;
        }
        let is_done = disk::replace(&self.file, &[&header, self.key.as_bytes(), &data]).is_ok();
        if is_done {
            saved.bytes = data.len();
        }
        is_done
    }

    fn saved(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PipelineCache {
    fn drop(&mut self) {
        if self.has_new.load(Ordering::Relaxed) {
            self.save();
        }
    }
}

/// The devices and versions that can use the same file; `None` where the API has no pipeline cache.
fn key(adapter: &wgpu::AdapterInfo) -> Option<String> {
    let class = wgpu::util::pipeline_cache_key(adapter)?;
    let wgpu::AdapterInfo { name, driver, driver_info, .. } = adapter;
    Some(format!("{class}; {name}; {driver}; {driver_info}; kiln {}", env!("CARGO_PKG_VERSION")))
}

/// Creates a cache with the data of a file; `None` if wgpu or the driver reports an error.
fn create(device: &wgpu::Device, failure: &Failure, data: Option<&[u8]>) -> Option<wgpu::PipelineCache> {
    let described = wgpu::PipelineCacheDescriptor { label: Some("kiln"), data, fallback: true };
    let create = || {
        // SAFETY: `get_data` returned the data for an adapter and a driver of the same names and versions. `save`
        // alone writes such files, and renames them once they are complete. `unpack` has checked key, length and hash, so
        // that the data is neither damaged, nor from another program. Another program of this user could forge all of
        // them, but it could also replace this program. wgpu checks the device's UUID of the cache itself, and starts with
        // an empty cache if the driver has changed.
        unsafe { device.create_pipeline_cache(&described) }
    };
    failure.done(device, "creating a pipeline cache", create).ok()
}

/// The header of a file: format, length of the key, length of the data, and a hash of both.
fn header(key: &str, data: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let words = [key.len() as u64, data.len() as u64, disk::hash(&(key, data))].map(u64::to_le_bytes);
    for (place, word) in header.chunks_exact_mut(8).zip([MAGIC, words[0], words[1], words[2]]) {
        place.copy_from_slice(&word);
    }
    header
}

/// The data in the contents of a file; `None` if they are damaged or for another key.
fn unpack<'a>(contents: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let (found, rest) = contents.split_first_chunk::<HEADER_BYTES>()?;
    let (found_key, data) = rest.split_at_checked(key.len())?;
    (found_key == key.as_bytes() && *found == header(key, data)).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "vulkan; lavapipe; kiln 1";

    fn packed(key: &str, data: &[u8]) -> Vec<u8> {
        [&header(key, data)[..], key.as_bytes(), data].concat()
    }

    #[test]
    fn the_data_of_a_file_is_found_by_its_key() {
        for length in [0, 1, 40] {
            let data = vec![7; length];
            assert_eq!(unpack(&packed(KEY, &data), KEY), Some(&data[..]));
        }
    }

    #[test]
    fn a_truncated_or_longer_file_is_refused() {
        let whole = packed(KEY, &[9; 40]);
        for cut in 0..whole.len() {
            assert_eq!(unpack(&whole[..cut], KEY), None, "cut at {cut}");
        }
        assert_eq!(unpack(&[&whole[..], &[9]].concat(), KEY), None);
    }

    #[test]
    fn a_file_of_another_key_is_refused() {
        let whole = packed(KEY, &[9; 40]);
        for other in ["", "vulkan; lavapipe; kiln 2", "vulkan; lavapipe; kiln", "vulkan; lavapipe; kiln 10"] {
            assert_eq!(unpack(&whole, other), None, "{other}");
        }
        // The key of one file and the data of another.
        let other = packed("vulkan; lavapipe; kiln 2", &[9; 40]);
        let mixed = [&other[..HEADER_BYTES], &whole[HEADER_BYTES..]].concat();
        assert_eq!(unpack(&mixed, KEY), None);
    }

    #[test]
    fn a_file_with_a_flipped_bit_is_refused() {
        let whole = packed(KEY, &[9; 40]);
        for bit in 0..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unpack(&bytes, KEY), None, "bit {bit}");
        }
    }

    #[test]
    fn lengths_beyond_the_file_are_refused() {
        let mut bytes = packed(KEY, &[9; 40]);
        bytes[8..24].fill(0xff);
        assert_eq!(unpack(&bytes, KEY), None);
    }
}
