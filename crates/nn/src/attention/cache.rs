//! Caches of keys and values for autoregressive inference.

use super::scores::Reach;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor, UpdateMode, s};

/// A tensor that grows along one dimension, by concatenation.
#[derive(Clone, Debug)]
pub struct TensorCache<B: Backend, const D: usize> {
    value: Option<Tensor<B, D>>,
}

impl<B: Backend, const D: usize> TensorCache<B, D> {
    /// Returns an empty cache.
    pub fn empty() -> Self {
        TensorCache { value: None }
    }

    /// Returns the tensor; `None` while the cache is empty.
    pub fn get(&self) -> Option<&Tensor<B, D>> {
        self.value.as_ref()
    }

    /// Returns the length of a dimension; 0 while the cache is empty.
    pub fn len(&self, dim: usize) -> usize {
        self.value.as_ref().map_or(0, |value| value.dims()[dim])
    }

    /// Returns whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.value.is_none()
    }

    /// Keeps the first `length` of a dimension. Does nothing if it is shorter.
    pub fn truncate(&mut self, length: usize, dim: usize) {
        if length == 0 {
            self.value = None;
        } else if length < self.len(dim) {
            self.value = self.value.take().map(|value| value.narrow(dim, 0, length));
        }
    }

    /// Appends along a dimension and returns the whole tensor.
    ///
    /// # Panics
    /// When the shapes differ in another dimension.
    #[track_caller]
    pub fn append(&mut self, new: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
        let whole = match self.value.take() {
            Some(old) => Tensor::cat(alloc::vec![old, new], dim),
            None => new,
        };
        self.value = Some(whole.clone());
        whole
    }
}

/// Keys and values of the tokens so far, for
/// [`MultiHeadAttention::forward_cache`](super::MultiHeadAttention::forward_cache) and its companions. The call appends
/// the keys and values of its tokens. Tokens attend to all tokens in the cache, and causally to each other.
///
/// | constructor | shape of keys and values |
/// |---|---|
/// | [`autoregressive`](MhaCache::autoregressive) | grows by the new tokens |
/// | [`from`](MhaCache::from) a [`StaticCache`] | constant; later positions are masked |
/// | [`autoregressive_cross_attention`] | those of the memory, computed by the first call |
///
/// [`autoregressive_cross_attention`]: MhaCache::autoregressive_cross_attention
#[derive(Clone, Debug)]
pub struct MhaCache<B: Backend = Dyn> {
    kind: MhaCacheKind<B>,
}

#[derive(Clone, Debug)]
enum MhaCacheKind<B: Backend> {
    Growing { keys: TensorCache<B, 4>, values: TensorCache<B, 4> },
    Static(StaticCache<B>),
    Memory(Option<(Tensor<B, 4>, Tensor<B, 4>)>),
}

impl<B: Backend> MhaCache<B> {
    /// Returns an empty cache that grows with each token.
    pub fn autoregressive() -> Self {
        MhaCache { kind: MhaCacheKind::Growing { keys: TensorCache::empty(), values: TensorCache::empty() } }
    }

    /// Returns a cache for cross-attention: the first call computes the keys and values of the memory, and later calls
    /// use them and ignore theirs.
    pub fn autoregressive_cross_attention() -> Self {
        MhaCache { kind: MhaCacheKind::Memory(None) }
    }

    /// Returns the number of tokens in the cache; `None` if only the device knows it, or for cross-attention.
    pub fn len(&self) -> Option<usize> {
        match &self.kind {
            MhaCacheKind::Growing { keys, .. } => Some(keys.len(2)),
            MhaCacheKind::Static(cache) => match &cache.position {
                CachePosition::Host(position) => Some(*position),
                CachePosition::Device(_) => None,
            },
            MhaCacheKind::Memory(_) => None,
        }
    }

    /// Returns whether the cache is known to be empty.
    pub fn is_empty(&self) -> bool {
        match &self.kind {
            MhaCacheKind::Memory(memory) => memory.is_none(),
            MhaCacheKind::Growing { .. } | MhaCacheKind::Static(_) => self.len() == Some(0),
        }
    }

    /// Empties the cache for another sequence. A static cache keeps its buffers.
    pub fn reset(&mut self) {
        match &mut self.kind {
            MhaCacheKind::Growing { keys, values } => {
                (*keys, *values) = (TensorCache::empty(), TensorCache::empty());
            }
            MhaCacheKind::Static(cache) => {
                cache.position = match &cache.position {
                    CachePosition::Host(_) => CachePosition::Host(0),
                    CachePosition::Device(position) => CachePosition::Device(position.zeros_like()),
                };
            }
            MhaCacheKind::Memory(memory) => *memory = None,
        }
    }

    /// Drops the tokens after the first `length`. Does nothing if there are fewer. A static cache keeps its buffers.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::attention::{MhaCache, MultiHeadAttentionConfig};
    /// use kiln_tensor::Tensor;
    ///
    /// let attention = MultiHeadAttentionConfig::new(8, 2).init::<Flex>(&Default::default());
    /// let mut cache = MhaCache::autoregressive();
    /// attention.forward_cache(Tensor::<Flex, 3>::ones([1, 5, 8], &Default::default()), &mut cache);
    /// cache.truncate(3);
    /// assert_eq!(cache.len(), Some(3));
    /// ```
    ///
    /// # Panics
    /// When the cache is of cross-attention.
    #[track_caller]
    pub fn truncate(&mut self, length: usize) {
        match &mut self.kind {
            MhaCacheKind::Growing { keys, values } => {
                keys.truncate(length, 2);
                values.truncate(length, 2);
            }
            MhaCacheKind::Static(cache) => {
                cache.position = match &cache.position {
                    CachePosition::Host(position) => CachePosition::Host(length.min(*position)),
                    CachePosition::Device(position) => {
                        CachePosition::Device(position.clone().clamp_max(length as i64))
                    }
                };
            }
            MhaCacheKind::Memory(_) => panic!(
                "[MhaCache] a cache of cross-attention has no tokens to drop\n  hint: call `reset` for another memory"
            ),
        }
    }

    /// Returns the positions `[count]` of the next tokens.
    ///
    /// # Panics
    /// When the cache is of cross-attention, or it grows: its [`len`](MhaCache::len) is the next position.
    #[track_caller]
    pub fn positions(&self, count: usize) -> Tensor<B, 1, Int> {
        match &self.kind {
            MhaCacheKind::Static(cache) => cache.positions(count),
            MhaCacheKind::Growing { .. } | MhaCacheKind::Memory(_) => {
                panic!("[MhaCache] only a static cache has positions on its device\n  hint: use `len`")
            }
        }
    }

    /// Adds the projected keys and values of new tokens, `[batch, heads, length, features]`, and returns all.
    #[track_caller]
    pub(super) fn update(
        &mut self,
        project: impl FnOnce() -> (Tensor<B, 4>, Tensor<B, 4>),
    ) -> (Tensor<B, 4>, Tensor<B, 4>, Reach<B>) {
        match &mut self.kind {
            MhaCacheKind::Growing { keys, values } => {
                let (k, v) = project();
                (keys.append(k, 2), values.append(v, 2), Reach::Causal)
            }
            MhaCacheKind::Static(cache) => {
                let (k, v) = project();
                let positions = cache.positions(k.dims()[2]);
                let (k, v) = cache.write(k, v);
                (k, v, Reach::At(positions))
            }
            MhaCacheKind::Memory(memory) => {
                let (k, v) = memory.get_or_insert_with(project).clone();
                (k, v, Reach::All)
            }
        }
    }
}

impl<B: Backend> From<StaticCache<B>> for MhaCache<B> {
    fn from(cache: StaticCache<B>) -> Self {
        MhaCache { kind: MhaCacheKind::Static(cache) }
    }
}

/// The position of the next token in a [`StaticCache`].
#[derive(Clone, Debug)]
pub enum CachePosition<B: Backend = Dyn> {
    /// A number on the host.
    Host(usize),
    /// A number on the device, `[1]`: every token runs the same program, as CUDA graphs and fusion plans need it.
    Device(Tensor<B, 1, Int>),
}

/// A cache of keys and values with a constant shape. New tokens are written in place, and positions beyond the last
/// token are masked.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::{MhaCache, MultiHeadAttentionConfig, StaticCache};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let attention = MultiHeadAttentionConfig::new(8, 2).init::<Flex>(&device);
/// let mut cache = MhaCache::from(StaticCache::new([1, 2, 16, 4], &device));
/// let prompt = Tensor::<Flex, 3>::ones([1, 5, 8], &device);
/// assert_eq!(attention.forward_cache(prompt, &mut cache).context.dims(), [1, 5, 8]);
/// assert_eq!(cache.len(), Some(5));
/// ```
#[derive(Clone, Debug)]
pub struct StaticCache<B: Backend = Dyn> {
    /// `None` only while a call writes them.
    buffers: Option<(Tensor<B, 4>, Tensor<B, 4>)>,
    shape: [usize; 4],
    position: CachePosition<B>,
}

impl<B: Backend> StaticCache<B> {
    /// Returns an empty cache for keys and values `[batch, kv_heads, max_length, head_features]`, of the default float
    /// dtype, with the position on the host.
    pub fn new(shape: [usize; 4], device: &B::Device) -> Self {
        let zeros = || Tensor::zeros(shape, device);
        StaticCache::from_buffers(zeros(), zeros())
    }

    /// Returns a cache that writes to these tensors, `[batch, kv_heads, max_length, features]`. The features of keys
    /// and values may differ. The dtype is that of projected keys and values.
    ///
    /// # Panics
    /// When the other dimensions differ.
    #[track_caller]
    pub fn from_buffers(keys: Tensor<B, 4>, values: Tensor<B, 4>) -> Self {
        let (shape, of_values) = (keys.dims(), values.dims());
        assert!(
            shape[..3] == of_values[..3],
            "[StaticCache] keys are {shape:?}, values {of_values:?}\n  hint: only the features may differ"
        );
        StaticCache { buffers: Some((keys, values)), shape, position: CachePosition::Host(0) }
    }

    /// Sets the position of the next token. Earlier positions are visible, later ones are masked until they are
    /// written.
    #[must_use]
    pub fn with_position(mut self, position: CachePosition<B>) -> Self {
        self.position = position;
        self
    }

    /// Returns the position of the next token.
    pub fn position(&self) -> &CachePosition<B> {
        &self.position
    }

    /// Returns the number of positions.
    pub fn max_length(&self) -> usize {
        self.shape[2]
    }

    /// Returns the positions `[count]` of the next tokens.
    #[track_caller]
    pub fn positions(&self, count: usize) -> Tensor<B, 1, Int> {
        let device = self.buffers.as_ref().expect(LOST).0.device();
        match &self.position {
            CachePosition::Host(start) => Tensor::arange(*start as i64..(start + count) as i64, &device),
            CachePosition::Device(start) if count == 1 => start.clone(),
            CachePosition::Device(start) => {
                let steps = Tensor::<B, 1, Int>::arange(0..count as i64, &device).cast(start.dtype());
                start.clone() + steps
            }
        }
    }

    #[track_caller]
    fn write(&mut self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let ([batch, heads, max, features], count) = (self.shape, keys.dims()[2]);
        assert!(
            keys.dims() == [batch, heads, count, features],
            "[StaticCache] new keys are {:?}, the cache is {:?}\n  \
             hint: its shape is [batch, kv_heads, max_length, head_features]",
            keys.dims(),
            self.shape
        );
        if let CachePosition::Host(start) = self.position {
            let end = start + count;
            assert!(end <= max, "[StaticCache] positions {start}..{end} do not fit: max_length is {max}");
        }
        // The buffers are moved, so that they have one owner and the engine writes them in place.
        let (old_keys, old_values) = self.buffers.take().expect(LOST);
        let buffers = (self.written(old_keys, keys), self.written(old_values, values));
        self.position = match &self.position {
            CachePosition::Host(start) => CachePosition::Host(start + count),
            CachePosition::Device(start) => CachePosition::Device(start.clone() + count),
        };
        self.buffers = Some(buffers.clone());
        buffers
    }

    #[track_caller]
    fn written(&self, buffer: Tensor<B, 4>, new: Tensor<B, 4>) -> Tensor<B, 4> {
        let count = new.dims()[2];
        match &self.position {
            CachePosition::Host(start) => buffer.slice_assign(s![.., .., *start..start + count, ..], new),
            CachePosition::Device(start) => {
                let steps = Tensor::<B, 1, Int>::arange(0..count as i64, &new.device()).cast(start.dtype());
                let indices = if count == 1 { start.clone() } else { start.clone() + steps };
                buffer.put(2, indices, new, UpdateMode::Set)
            }
        }
    }
}

const LOST: &str = "[StaticCache] the buffers were lost when a write panicked";
