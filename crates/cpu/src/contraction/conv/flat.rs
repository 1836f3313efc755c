//! The forward and the input pass by strips of positions, over a source in the layout of [`Lines`].

use super::layout::lay_out;
use super::lines::{Lines, Map};
use super::share::share;
use super::strip::{MaskedStore, Strip, VECTORS, WIDE};
use super::window::Windows;
use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::Float;
use crate::copy::Shared;
use alloc::vec::Vec;
use core::ops::Range;
use kiln_ir::Result;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 18;

/// Bytes of weights that stay in the L2 cache while strips are computed.
const WEIGHTS: usize = 1 << 18;

/// Bytes of a source that one thread copies for itself.
const OWN: usize = 1 << 18;

/// The minimum copied elements per task: fewer are not worth waking a thread.
const COPIED: usize = 1 << 15;

/// The maximum number of lanes.
const MAX_LANES: usize = 16;

/// One convolution from a source to a result.
pub(super) struct Flat<'a> {
    pub(super) lines: &'a Lines,
    pub(super) batch: usize,
    pub(super) groups: usize,
    /// Channels of the source and of the result, per group.
    pub(super) channels_in: usize,
    pub(super) channels_out: usize,
    /// Elements of one channel of the result.
    pub(super) plane_out: usize,
}

/// The strips of a map, with the source that they read.
struct Strips<'a> {
    map: &'a Map,
    /// The offset of each channel and tap, relative to a position.
    offsets: Vec<usize>,
    tiles: Vec<Tile>,
}

/// One strip.
struct Tile {
    /// Its first position.
    position: usize,
    places: [MaskedStore; WIDE],
    vectors: usize,
    /// The range of its grid elements.
    elements: Range<usize>,
}

/// The layout of the channels of a source.
#[derive(Clone, Copy)]
pub(super) struct Planes<T> {
    pub(super) start: Shared<T>,
    /// The image stride and the channel stride.
    pub(super) image: usize,
    pub(super) plane: usize,
}

impl Flat<'_> {
    /// Whether strips waste little: positions between lines, and lanes past the last position, are computed and
    /// discarded.
    pub(super) fn suits(&self, lanes: usize) -> bool {
        let vectors = self.vectors(lanes);
        let elements: usize = self.lines.maps.iter().map(|map| map.count).sum();
        self.channels_out * 4 <= lanes || 2 * elements >= vectors * lanes
    }

    /// Writes the whole result. `weights` holds `[groups * channels_out, channels_in * taps]` for each map.
    ///
    /// # Errors
    /// When there is not enough memory.
    ///
    /// # Safety
    /// Source and weights have the sizes that the fields state; `result` has room for
    /// `[batch, groups * channels_out, plane_out]` and has no other writer.
    pub(super) unsafe fn run<T: Float>(
        &self,
        cpu: &Cpu,
        lanes: usize,
        source: &Array,
        weights: &[*const T],
        result: *mut T,
    ) -> Result<()> {
        let covered: usize = self.lines.maps.iter().map(|map| map.count).sum();
        if covered < self.plane_out {
            let planes = self.batch * self.groups * self.channels_out;
            // SAFETY: the size of the result.
            unsafe { result.write_bytes(0, planes * self.plane_out) };
        }
        let weights: Vec<Shared<T>> = weights.iter().map(|weight| Shared::new(weight.cast_mut())).collect();
        let result = Shared::new(result);
        // SAFETY: the caller upholds the conditions.
        unsafe {
            if let Some(planes) = self.bare(source, lanes) {
                let strips = self.strips(planes.plane, lanes, true);
                self.shared(cpu, lanes, planes, &strips, &weights, result);
            } else if self.is_split_by_group::<T>() {
                self.by_group(cpu, lanes, source, &weights, result);
            } else {
                let mut copy = Scratch::try_new(self.copied())?;
                let planes = self.laid_out(cpu, source, copy.as_mut_ptr());
                let strips = self.strips(planes.plane, lanes, false);
                self.shared(cpu, lanes, planes, &strips, &weights, result);
            }
        }
        Ok(())
    }

    /// The source itself, if it already has the layout of [`Lines`] and strips need not read past its end.
    pub(super) fn bare<T>(&self, source: &Array, lanes: usize) -> Option<Planes<T>> {
        let strides = source.strides();
        let dense = self
            .lines
            .axes
            .iter()
            .zip(&strides[2..])
            .all(|(axis, &stride)| axis.length == 1 || axis.stride as isize == stride);
        let long =
            self.lines.maps.iter().all(|map| map.length(&self.lines.axes) >= self.strip_vectors() * lanes);
        let ordered = strides[0] >= 0 && strides[1] >= 0;
        (self.lines.is_bare() && dense && long && ordered).then(|| Planes {
            start: Shared::new(source.as_mut_ptr::<T>()),
            image: strides[0] as usize,
            plane: strides[1] as usize,
        })
    }

    /// Whether groups and images are split between threads: there are enough of them, and each fits a thread's own
    /// cache.
    fn is_split_by_group<T>(&self) -> bool {
        self.batch * self.groups >= 16 && self.channels_in * self.lines.plane * size_of::<T>() <= OWN
    }

    /// Elements of a padded source: all channels, and the last strip's overread.
    pub(super) fn copied(&self) -> usize {
        let planes = self.batch * self.groups * self.channels_in;
        planes.saturating_mul(self.lines.plane).saturating_add(WIDE * MAX_LANES)
    }

    /// Vectors of positions per channel of the result.
    pub(super) fn vectors(&self, lanes: usize) -> usize {
        self.lines.maps.iter().map(|map| map.length(&self.lines.axes).div_ceil(lanes)).sum()
    }

    /// Copies the source into the layout, followed by zeros.
    ///
    /// # Safety
    /// `to` has room for [`copied`](Self::copied) elements.
    pub(super) unsafe fn laid_out<T: Float>(&self, cpu: &Cpu, source: &Array, to: *mut T) -> Planes<T> {
        let plane = self.lines.plane;
        let channels = self.groups * self.channels_in;
        let start = Shared::new(to);
        share(&cpu.pool, self.batch * channels, COPIED.div_ceil(plane.max(1)), |range| {
            for i in range {
                // SAFETY: a channel of the source; its place in the copy.
                unsafe {
                    lay_out(cpu, self.lines, source, i / channels, i % channels, start.get().add(i * plane))
                };
            }
        });
        // SAFETY: the room after the last channel.
        unsafe { start.get().add(self.batch * channels * plane).write_bytes(0, WIDE * MAX_LANES) };
        Planes { start, image: channels * plane, plane }
    }

    /// The strips of every map. With `exact`, the last one starts early enough to end with the positions.
    fn strips<'s>(&'s self, plane: usize, lanes: usize, exact: bool) -> Vec<Strips<'s>> {
        let strips = |map: &'s Map| {
            let channel = |c: usize| move |&offset: &usize| c * plane + offset;
            let of = |c| map.offsets.iter().map(channel(c));
            Strips {
                map,
                offsets: (0..self.channels_in).flat_map(of).collect(),
                tiles: tiles(map, self.lines, lanes, self.strip_vectors(), exact),
            }
        };
        self.lines.maps.iter().map(strips).collect()
    }

    /// Vectors of a full strip.
    fn strip_vectors(&self) -> usize {
        if self.channels_out <= 2 { WIDE } else { VECTORS }
    }

    /// The number of result channels per chunk, whose weights a strip reuses.
    fn chunk<T>(&self, steps: usize) -> usize {
        let rows = WEIGHTS / (steps * size_of::<T>()).max(1);
        (rows / 8 * 8).max(8).min(self.channels_out.max(1))
    }

    /// All threads process strips of one shared source copy.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn shared<T: Float>(
        &self,
        cpu: &Cpu,
        lanes: usize,
        planes: Planes<T>,
        all: &[Strips<'_>],
        weights: &[Shared<T>],
        result: Shared<T>,
    ) {
        for (strips, &weight) in all.iter().zip(weights) {
            let steps = strips.offsets.len();
            let chunk = self.chunk::<T>(steps);
            let chunks = self.channels_out.div_ceil(chunk);
            let tiles = strips.tiles.len();
            let work = (VECTORS * lanes * steps * chunk).max(1);
            let tasks = chunks * self.groups * self.batch * tiles;
            // Adjacent strips share cache lines.
            let grain = GRAIN.div_ceil(work).max((tasks / 64).min(8));
            share(&cpu.pool, tasks, grain, |tasks| {
                let mut sums = self.sums(strips, lanes, chunk);
                for task in tasks {
                    let (tile, rest) = (task % tiles, task / tiles);
                    let (n, rest) = (rest % self.batch, rest / self.batch);
                    let (group, number) = (rest % self.groups, rest / self.groups);
                    let channels = number * chunk..((number + 1) * chunk).min(self.channels_out);
                    // SAFETY: the group's channels of an image; strips of different tasks are disjoint.
                    unsafe {
                        let source = planes
                            .start
                            .get()
                            .add(n * planes.image + group * self.channels_in * planes.plane);
                        let place = Part { n, group, channels };
                        self.strip(cpu, lanes, strips, tile, source, weight, &place, &mut sums, result);
                    }
                }
            });
        }
    }

    /// Every thread copies groups of channels for itself, and processes all their strips.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn by_group<T: Float>(
        &self,
        cpu: &Cpu,
        lanes: usize,
        source: &Array,
        weights: &[Shared<T>],
        result: Shared<T>,
    ) {
        let plane = self.lines.plane;
        let depthwise = self.channels_in == 1 && self.channels_out == 1;
        let windows = if depthwise { Windows::new(self.lines, lanes) } else { None };
        let all = self.strips(plane, lanes, false);
        let work: usize = all
            .iter()
            .map(|strips| {
                strips.tiles.len() * self.strip_vectors() * lanes * strips.offsets.len() * self.channels_out
            })
            .sum();
        let work = work + 4 * self.channels_in * plane;
        share(&cpu.pool, self.batch * self.groups, GRAIN.div_ceil(work.max(1)), |tasks| {
            let mut own = Scratch::<T>::new(self.channels_in * plane + WIDE * MAX_LANES);
            let chunk = |strips: &Strips<'_>| self.chunk::<T>(strips.offsets.len());
            let mut sums: Vec<_> = all.iter().map(|strips| self.sums(strips, lanes, chunk(strips))).collect();
            for task in tasks {
                let (n, group) = (task / self.groups, task % self.groups);
                // SAFETY: channels of the group; planes of the result that are this task's alone.
                unsafe {
                    for c in 0..self.channels_in {
                        let to = own.as_mut_ptr().add(c * plane);
                        lay_out(cpu, self.lines, source, n, group * self.channels_in + c, to);
                    }
                    if let Some(windows) = &windows {
                        let target = result.get().add(task * self.plane_out);
                        let weight = weights[0].get().add(group * all[0].offsets.len());
                        windows.run(cpu, own.as_mut_ptr(), weight, target);
                        continue;
                    }
                    for ((strips, &weight), sums) in all.iter().zip(weights).zip(&mut sums) {
                        let chunk = chunk(strips);
                        for first in (0..self.channels_out).step_by(chunk) {
                            let channels = first..(first + chunk).min(self.channels_out);
                            let place = Part { n, group, channels };
                            for tile in 0..strips.tiles.len() {
                                let source = own.as_mut_ptr();
                                self.strip(cpu, lanes, strips, tile, source, weight, &place, sums, result);
                            }
                        }
                    }
                }
            }
        });
    }

    /// Scratch memory for the sums of a strip, if they are not written to the result directly.
    fn sums<T: Float>(&self, strips: &Strips<'_>, lanes: usize, chunk: usize) -> Scratch<T> {
        Scratch::new(if strips.map.out.is_some() { chunk * self.strip_vectors() * lanes } else { 0 })
    }

    /// Computes one strip of some channels.
    ///
    /// # Safety
    /// As [`run`](Self::run); the source is that of the place's image and group.
    unsafe fn strip<T: Float>(
        &self,
        cpu: &Cpu,
        lanes: usize,
        strips: &Strips<'_>,
        tile: usize,
        source: *const T,
        weight: Shared<T>,
        place: &Part,
        sums: &mut Scratch<T>,
        result: Shared<T>,
    ) {
        let tile = &strips.tiles[tile];
        let steps = strips.offsets.len();
        let channel = place.group * self.channels_out + place.channels.start;
        let start = (place.n * self.groups * self.channels_out + channel) * self.plane_out;
        // SAFETY: positions of the map; channels of weight and result.
        unsafe {
            let target = result.get().add(start);
            let strip = Strip {
                source: source.add(tile.position),
                offsets: &strips.offsets,
                weights: weight.get().add(channel * steps),
                weight_row: steps,
                rows: place.channels.len(),
                places: &tile.places[..tile.vectors],
                target,
                target_row: self.plane_out,
            };
            let Some(out) = &strips.map.out else {
                T::dispatch(cpu.level, strip);
                return;
            };
            let row = self.strip_vectors() * lanes;
            let mut places = tile.places;
            places.iter_mut().for_each(|place| place.start = place.start.saturating_sub(tile.elements.start));
            let sums = sums.as_mut_ptr();
            let places = &places[..tile.vectors];
            T::dispatch(cpu.level, Strip { places, target: sums, target_row: row, ..strip });
            for c in 0..place.channels.len() {
                for (i, &out) in out[tile.elements.clone()].iter().enumerate() {
                    *target.add(c * self.plane_out + out) = *sums.add(c * row + i);
                }
            }
        }
    }
}

/// Some result channels of a group of an image.
struct Part {
    n: usize,
    group: usize,
    channels: Range<usize>,
}

/// Splits the positions of a map into strips of at most `most` vectors.
fn tiles(map: &Map, lines: &Lines, lanes: usize, most: usize, exact: bool) -> Vec<Tile> {
    let row = map.grid.last().copied().unwrap_or(1);
    // Strips of one vector would need too many loads per multiplication.
    if row % lanes == 0 && row > lanes && lines.axes.len() > 1 {
        return whole_rows(map, lines, lanes, most);
    }
    let places = map.places(&lines.axes, lanes);
    let length = map.length(&lines.axes);
    let mut tiles = Vec::with_capacity(places.len().div_ceil(most));
    for (number, group) in places.chunks(most).enumerate() {
        let mut tile = Tile {
            position: number * most * lanes,
            places: [MaskedStore { lanes: 0, start: 0 }; WIDE],
            vectors: group.len(),
            elements: 0..0,
        };
        if exact && tile.position + most * lanes > length {
            let first = tile.position;
            tile.position = length - most * lanes;
            tile.vectors = most;
            for (v, place) in tile.places[..most].iter_mut().enumerate() {
                *place = from(&places, tile.position + v * lanes, first, lanes);
            }
        } else {
            tile.places[..group.len()].copy_from_slice(group);
        }
        let busy = || tile.places.iter().filter(|place| place.lanes != 0);
        let start = busy().map(|place| place.start).min().unwrap_or(0);
        let end = busy().map(|place| place.start + place.lanes.count_ones() as usize).max().unwrap_or(0);
        tile.elements = start..end;
        tiles.push(tile);
    }
    tiles
}

/// Strips that end with the rows of the grid, which are whole vectors: no positions between lines are computed.
fn whole_rows(map: &Map, lines: &Lines, lanes: usize, most: usize) -> Vec<Tile> {
    let (row, outer) = map.grid.split_last().map_or((1, &[][..]), |(&row, outer)| (row, outer));
    let all = (1u32 << lanes) - 1;
    let vectors = row / lanes;
    // Strips of equal lengths, as far as possible.
    let pieces = vectors.div_ceil(most);
    let mut tiles = Vec::new();
    for (number, index) in super::geometry::indices(outer).iter().enumerate() {
        let position: usize = index.iter().zip(&lines.axes).map(|(i, axis)| i * axis.stride).sum();
        for piece in 0..pieces {
            let (first, end) = (piece * vectors / pieces, (piece + 1) * vectors / pieces);
            let start = number * row + first * lanes;
            tiles.push(Tile {
                position: position + first * lanes,
                places: core::array::from_fn(|v| MaskedStore { lanes: all, start: start + v * lanes }),
                vectors: end - first,
                elements: start..number * row + end * lanes,
            });
        }
    }
    tiles
}

/// The masked store of a vector at any position, with only the lanes from position `first` on.
fn from(places: &[MaskedStore], position: usize, first: usize, lanes: usize) -> MaskedStore {
    let mut place = MaskedStore { lanes: 0, start: 0 };
    for lane in 0..lanes {
        let p = position + lane;
        let Some(whole) = places.get(p / lanes) else { continue };
        let bit = 1u32 << (p % lanes);
        if p >= first && whole.lanes & bit != 0 {
            if place.lanes == 0 {
                place.start = whole.start + (whole.lanes & (bit - 1)).count_ones() as usize;
            }
            place.lanes |= 1 << lane;
        }
    }
    place
}
