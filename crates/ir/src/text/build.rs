//! Parsing of ops: from a name and attributes to an op.

use super::attribute::Attribute;
use super::lexer::Position;
use crate::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A parsed op.
pub(super) struct ParsedOp<'t> {
    pub(super) name: &'t str,
    pub(super) place: Position,
    /// The type of the first result, for omitted attributes.
    pub(super) result: Option<TensorType>,
    pub(super) attributes: Vec<(&'t str, Attribute, Position)>,
}

/// Builds the op.
///
/// # Errors
/// When there is no such op, or an attribute is missing, unknown, of the wrong kind or out of range.
pub(super) fn build(mut given: ParsedOp<'_>) -> Result<Op> {
    let op = given.op()?;
    match given.attributes.first() {
        None => Ok(op),
        Some((key, _, place)) => Err(place.error(format!("`{}` has no attribute `{key}`", given.name))),
    }
}

impl<'t> ParsedOp<'t> {
    fn op(&mut self) -> Result<Op> {
        if let Some(op) = self.elementwise() {
            return Ok(op);
        }
        if let Some(reduction) = self.name.strip_prefix("reduce_").and_then(Reduction::from_name) {
            return Ok(Op::Reduce { reduction, axes: self.axes("axes")? });
        }
        if let Some(reduction) = self.name.strip_prefix("scan_").and_then(Reduction::from_name) {
            let (reverse, exclusive) = (self.flag("reverse")?, self.flag("exclusive")?);
            return Ok(Op::Scan { reduction, axis: self.axis()?, reverse, exclusive });
        }
        if let Some(distribution) = self.name.strip_prefix("random_").and_then(RandomKind::from_name) {
            return Ok(Op::Random { ty: self.ty()?, distribution });
        }
        match self.name {
            "full" => Ok(Op::Full(self.ty()?)),
            "iota" => Ok(Op::Iota { ty: self.ty()?, axis: self.axis()? }),
            "select" => Ok(Op::Select),
            "copy" => Ok(Op::Copy),
            "matmul" => Ok(Op::MatMul),
            "matmul_float8" => {
                let formats = [self.float8("left")?, self.float8("right")?];
                Ok(Op::MatMulFloat8 { formats, dtype: self.result_dtype()? })
            }
            "matmul_blocks" => Ok(Op::MatMulBlocks { format: self.block_format()? }),
            "dequantize" => Ok(Op::Dequantize),
            "dequantize_blocks" => {
                Ok(Op::DequantizeBlocks { format: self.block_format()?, dtype: self.result_dtype()? })
            }
            "cast" => Ok(Op::Cast(self.result_dtype()?)),
            "bitcast" => Ok(Op::Bitcast(self.result_dtype()?)),
            "quantize" => Ok(Op::Quantize { dtype: self.result_dtype()? }),
            "reshape" => Ok(Op::Reshape(self.shape()?)),
            "broadcast" => Ok(Op::Broadcast(self.shape()?)),
            "permute" => Ok(Op::Permute(self.axes("axes")?)),
            "slice" => Ok(Op::Slice(self.slices()?)),
            "pad" => Ok(Op::Pad(self.pads()?)),
            "concat" => Ok(Op::Concat { axis: self.axis()? }),
            "windows" => {
                let [size, step, dilation] = [self.int("size")?, self.int("step")?, self.int("dilation")?];
                Ok(Op::Windows { axis: self.axis()?, size, step, dilation })
            }
            "argmin" => self.arg_reduce(Extremum::Min),
            "argmax" => self.arg_reduce(Extremum::Max),
            "sort" => {
                let (descending, index) = (self.flag("descending")?, self.dtype("index")?);
                Ok(Op::Sort { axis: self.axis()?, descending, index })
            }
            "topk" => {
                let (k, largest) = (self.int("k")?, self.flag("largest")?);
                Ok(Op::TopK { axis: self.axis()?, k, largest, index: self.dtype("index")? })
            }
            "take" => Ok(Op::Take { axis: self.axis()? }),
            "gather" => Ok(Op::Gather { axis: self.axis()? }),
            "put" => Ok(Op::Put { axis: self.axis()?, mode: self.mode()? }),
            "scatter" => Ok(Op::Scatter { axis: self.axis()?, mode: self.mode()? }),
            "slice_update" => Ok(Op::SliceUpdate { slices: self.slices()?, mode: self.mode()? }),
            "nonzero" => Ok(Op::NonZero { index: self.dtype("index")? }),
            "check_index" => {
                let user = self.word(
                    "user",
                    "cross_entropy, nll, embedding, one_hot or multinomial",
                    IndexUser::from_name,
                )?;
                Ok(Op::CheckIndex { length: self.int("length")?, user })
            }
            "recover" => Ok(Op::Recover { watched: self.int("watched")? }),
            "log_sum_exp" => Ok(Op::LogSumExp { axis: self.axis()? }),
            "softmax" => Ok(Op::Softmax { axis: self.axis()?, log: false }),
            "log_softmax" => Ok(Op::Softmax { axis: self.axis()?, log: true }),
            "layer_norm" => self.norm(NormKind::Layer),
            "rms_norm" => self.norm(NormKind::Rms),
            "attention" => Ok(Op::Attention(self.attention()?)),
            "attention_grad" => Ok(Op::AttentionGrad(self.attention()?)),
            "resize" => {
                let mode = self.word("mode", "nearest, linear or cubic", ResizeMode::from_name)?;
                let align_corners = self.flag("align_corners")?;
                Ok(Op::Resize { mode, size: self.ints("size")?, align_corners })
            }
            "fft" => self.fft(FftKind::Complex),
            "fft_from_real" => self.fft(FftKind::FromReal),
            "fft_to_real" => {
                let points = self.int("points")?;
                self.fft(FftKind::ToReal { points })
            }
            "custom" => self.custom(),
            "fused" => self.fused(),
            "loop" => self.looped(),
            _ => self.spatial().or_else(|| self.collective()).unwrap_or_else(|| {
                let shown: String = self.name.chars().take(40).collect();
                Err(self.place.error(format!("unknown op `{shown}`")))
            }),
        }
    }

    fn elementwise(&self) -> Option<Op> {
        let unary = Unary::from_name(self.name).map(Op::Unary);
        let binary = || Binary::from_name(self.name).map(Op::Binary);
        unary.or_else(binary).or_else(|| Comparison::from_name(self.name).map(Op::Compare))
    }

    fn spatial(&mut self) -> Option<Result<Op>> {
        match self.name {
            "conv" => Some(self.conv(|_| Ok(ConvPass::Forward))),
            "conv_input" => Some(self.conv(|given| Ok(ConvPass::Input { size: given.ints("size")? }))),
            "conv_weight" => Some(self.conv(|given| Ok(ConvPass::Weight { size: given.ints("size")? }))),
            "max_pool" => Some(self.pool(false).map(Op::Pool)),
            "avg_pool" => Some(self.pool(true).map(Op::Pool)),
            "max_pool_grad" => Some(self.pool_grad(false)),
            "avg_pool_grad" => Some(self.pool_grad(true)),
            _ => None,
        }
    }

    fn conv(&mut self, pass: impl Fn(&mut Self) -> Result<ConvPass>) -> Result<Op> {
        let spec = ConvSpec {
            stride: self.ints("stride")?,
            padding: self.pairs("padding")?,
            dilation: self.ints("dilation")?,
            groups: self.int("groups")?,
        };
        Ok(Op::Conv { spec, pass: pass(self)? })
    }

    fn pool(&mut self, average: bool) -> Result<PoolSpec> {
        let kind = if average {
            PoolKind::Average { include_padding: self.flag("include_padding")? }
        } else {
            PoolKind::Max
        };
        Ok(PoolSpec {
            kind,
            window: self.ints("window")?,
            stride: self.ints("stride")?,
            padding: self.pairs("padding")?,
            overhang: self.ints("overhang")?,
            dilation: self.ints("dilation")?,
        })
    }

    fn pool_grad(&mut self, average: bool) -> Result<Op> {
        Ok(Op::PoolGrad { spec: self.pool(average)?, size: self.ints("size")? })
    }

    fn collective(&mut self) -> Option<Result<Op>> {
        let kind = match self.name {
            "all_reduce" => self.reduction().map(CollectiveKind::AllReduce),
            "all_gather" => self.axis().map(|axis| CollectiveKind::AllGather { axis }),
            "reduce_scatter" => self.reduction().and_then(|reduction| {
                let axis = self.axis()?;
                Ok(CollectiveKind::ReduceScatter { reduction, axis })
            }),
            "collective_broadcast" => self.int("root").map(|root| CollectiveKind::Broadcast { root }),
            "send" => self.int("to").and_then(|to| Ok(CollectiveKind::Send { to, tag: self.tag()? })),
            "recv" => self
                .int("from")
                .and_then(|from| Ok(CollectiveKind::Recv { from, tag: self.tag()?, ty: self.ty()? })),
            _ => return None,
        };
        let collective = |kind| {
            let (group, rank) = (self.unsigned("group")?, self.int("rank")?);
            Ok(Op::Collective(Collective { kind, group, rank, size: self.int("size")? }))
        };
        Some(kind.and_then(collective))
    }

    fn arg_reduce(&mut self, extremum: Extremum) -> Result<Op> {
        Ok(Op::ArgReduce { extremum, axis: self.axis()?, index: self.dtype("index")? })
    }

    fn norm(&mut self, kind: NormKind) -> Result<Op> {
        Ok(Op::Norm { kind, axes: self.int("axes")?, epsilon: Real(self.real("epsilon")?) })
    }

    fn fft(&mut self, kind: FftKind) -> Result<Op> {
        Ok(Op::Fft { kind, axis: self.axis()?, inverse: self.flag("inverse")? })
    }

    fn attention(&mut self) -> Result<AttentionSpec> {
        let causal = match self.optional("causal") {
            None => None,
            Some((Attribute::Number(Scalar::Int(offset)), _)) => Some(offset),
            Some((_, place)) => return Err(place.error("`causal` must be an integer")),
        };
        Ok(AttentionSpec { scale: Real(self.real("scale")?), causal })
    }

    fn custom(&mut self) -> Result<Op> {
        let name = self.text("name")?;
        let given = self.attributes.iter().any(|(key, ..)| *key == "attributes");
        let attributes = if given { self.text("attributes")? } else { String::new() };
        let custom = Custom::from_parts(&name, &attributes);
        custom.map(Op::Custom).map_err(|error| self.place.error(error.to_string()))
    }

    fn program(&mut self, key: &str) -> Result<Arc<Program>> {
        match self.required(key)? {
            (Attribute::Program(program), _) => Ok(program),
            (_, place) => Err(place.error(format!("`{key}` must be a program"))),
        }
    }

    fn looped(&mut self) -> Result<Op> {
        let attributes = LoopAttributes {
            carried: self.int("carried")?,
            scanned: self.int("scanned")?,
            steps: self.int("steps")?,
            reverse: self.flag("reverse")?,
        };
        let looped = LoopOp::new(self.program("body")?, attributes);
        looped.map(Op::Loop).map_err(|error| self.place.error(error.to_string()))
    }

    fn fused(&mut self) -> Result<Op> {
        let program = self.program("program")?;
        let fused = FusedOp::with_pattern(program, self.pattern()?);
        fused.map(Op::Fused).map_err(|error| self.place.error(error.to_string()))
    }

    fn pattern(&mut self) -> Result<Pattern> {
        if self.attributes.iter().all(|(key, ..)| *key != "pattern") {
            return Ok(Pattern::Loop);
        }
        let known =
            |word: &str| ["loop", "epilogue", "quantized_matmul"].into_iter().find(|name| *name == word);
        match self.word("pattern", "loop, epilogue or quantized_matmul", known)? {
            "epilogue" => Ok(Pattern::Epilogue(self.epilogue()?)),
            "quantized_matmul" => Ok(Pattern::QuantizedMatMul(QuantizedMatMul {
                product: self.int("product")?,
                x: self.int("x")?,
                dequantized: self.int("dequantized")?,
                values: self.int("values")?,
                scale: self.int("scale")?,
                zero: self.optional_int("zero")?,
            })),
            _ => Ok(Pattern::Loop),
        }
    }

    fn epilogue(&mut self) -> Result<Epilogue> {
        let (value, place) = self.required("factors")?;
        let factors = sizes(&value).and_then(|factors| factors.try_into().ok());
        let factors = factors.ok_or_else(|| place.error("`factors` must be two slots such as [0, 1]"))?;
        let given = self.attributes.iter().any(|(key, ..)| *key == "activation");
        let activation =
            if given { Some(self.word("activation", "relu or gelu", Activation::from_name)?) } else { None };
        let (product, bias) = (self.int("product")?, self.optional_int("bias")?);
        Ok(Epilogue { product, factors, bias, activation, numbers: self.numbers()? })
    }

    /// Slots, each with the number that it must equal.
    fn numbers(&mut self) -> Result<Vec<(usize, Scalar)>> {
        let Some((value, place)) = self.optional("numbers") else { return Ok(Vec::new()) };
        let number = |entry: &Attribute| match entries(entry)? {
            [slot, Attribute::Number(number)] => Some((size(slot)?, *number)),
            _ => None,
        };
        let numbers = entries(&value).and_then(|list| list.iter().map(number).collect());
        numbers.ok_or_else(|| place.error("`numbers` must be a list of slots and numbers such as [[3, 0.0]]"))
    }

    fn optional(&mut self, key: &str) -> Option<(Attribute, Position)> {
        let place = self.attributes.iter().position(|(other, ..)| *other == key)?;
        let (_, value, place) = self.attributes.remove(place);
        Some((value, place))
    }

    fn required(&mut self, key: &str) -> Result<(Attribute, Position)> {
        let problem = || self.place.error(format!("`{}` needs the attribute `{key}`", self.name));
        let missing = problem();
        self.optional(key).ok_or(missing)
    }

    fn unsigned(&mut self, key: &str) -> Result<u64> {
        let (value, place) = self.required(key)?;
        integer(&value).ok_or_else(|| place.error(format!("`{key}` must be a non-negative integer")))
    }

    fn int(&mut self, key: &str) -> Result<usize> {
        let (value, place) = self.required(key)?;
        size(&value).ok_or_else(|| place.error(format!("`{key}` must be a non-negative integer")))
    }

    fn optional_int(&mut self, key: &str) -> Result<Option<usize>> {
        let given = self.attributes.iter().any(|(other, ..)| *other == key);
        if given { self.int(key).map(Some) } else { Ok(None) }
    }

    fn axis(&mut self) -> Result<usize> {
        self.int("axis")
    }

    fn tag(&mut self) -> Result<u32> {
        let (value, place) = self.required("tag")?;
        let tag = integer(&value).and_then(|tag| u32::try_from(tag).ok());
        tag.ok_or_else(|| place.error("`tag` must be an integer below 2^32"))
    }

    fn real(&mut self, key: &str) -> Result<f64> {
        match self.required(key)? {
            (Attribute::Number(Scalar::Float(x)), _) => Ok(x),
            (Attribute::Number(Scalar::Int(x)), _) => Ok(x as f64),
            (_, place) => Err(place.error(format!("`{key}` must be a real number"))),
        }
    }

    fn flag(&mut self, key: &str) -> Result<bool> {
        match self.required(key)? {
            (Attribute::Number(Scalar::Bool(x)), _) => Ok(x),
            (_, place) => Err(place.error(format!("`{key}` must be true or false"))),
        }
    }

    fn text(&mut self, key: &str) -> Result<String> {
        match self.required(key)? {
            (Attribute::Text(text), _) => Ok(text),
            (_, place) => Err(place.error(format!("`{key}` must be a text in quotes"))),
        }
    }

    fn word<T>(&mut self, key: &str, wanted: &str, make: impl Fn(&str) -> Option<T>) -> Result<T> {
        let (value, place) = self.required(key)?;
        let made = if let Attribute::Word(word) = &value { make(word) } else { None };
        made.ok_or_else(|| place.error(format!("`{key}` must be {wanted}")))
    }

    fn dtype(&mut self, key: &str) -> Result<DType> {
        self.word(key, "a dtype", DType::from_name)
    }

    fn float8(&mut self, key: &str) -> Result<Float8> {
        self.word(key, "e4m3 or e5m2", Float8::from_name)
    }

    fn block_format(&mut self) -> Result<BlockFormat> {
        self.word("format", "a format of quantized blocks, such as q4_0 or q4_k", BlockFormat::from_name)
    }

    fn mode(&mut self) -> Result<UpdateMode> {
        self.word("mode", "set, add, mul, min or max", UpdateMode::from_name)
    }

    fn reduction(&mut self) -> Result<Reduction> {
        self.word("reduction", "sum, prod, min or max", Reduction::from_name)
    }

    fn ints(&mut self, key: &str) -> Result<Vec<usize>> {
        let (value, place) = self.required(key)?;
        sizes(&value).ok_or_else(|| place.error(format!("`{key}` must be a list of non-negative integers")))
    }

    fn pairs(&mut self, key: &str) -> Result<Vec<(usize, usize)>> {
        let (value, place) = self.required(key)?;
        let pair = |entry: &Attribute| match sizes(entry)?.as_slice() {
            [low, high] => Some((*low, *high)),
            _ => None,
        };
        let pairs = entries(&value).and_then(|list| list.iter().map(pair).collect());
        pairs.ok_or_else(|| place.error(format!("`{key}` must be a list of pairs such as [[1, 1]]")))
    }

    fn axes(&mut self, key: &str) -> Result<Axes> {
        let (value, place) = self.required(key)?;
        let fits = |axes: &Vec<usize>| axes.len() <= MAX_RANK && axes.iter().all(|&axis| axis < MAX_RANK);
        let axes = sizes(&value).filter(fits).map(|axes| Axes::new(&axes));
        axes.ok_or_else(|| place.error(format!("`{key}` must be a list of at most {MAX_RANK} axes below it")))
    }

    fn ty(&mut self) -> Result<TensorType> {
        match (self.optional("type"), self.result) {
            (Some((Attribute::Type(ty), _)), _) | (None, Some(ty)) => Ok(ty),
            (Some((_, place)), _) => Err(place.error("`type` must be a type such as `f32[2, 3]`")),
            (None, None) => Err(self.place.error("needs a result or the attribute `type`")),
        }
    }

    fn shape(&mut self) -> Result<Shape> {
        let Some((value, place)) = self.optional("shape") else {
            let missing = || self.place.error("needs a result or the attribute `shape`");
            return self.result.map(|ty| ty.shape).ok_or_else(missing);
        };
        let shape =
            sizes(&value).filter(|lengths| lengths.len() <= MAX_RANK).map(|lengths| Shape::new(&lengths));
        shape.ok_or_else(|| place.error(format!("`shape` must be a list of at most {MAX_RANK} lengths")))
    }

    fn result_dtype(&mut self) -> Result<DType> {
        if self.attributes.iter().any(|(key, ..)| *key == "dtype") {
            return self.dtype("dtype");
        }
        let missing = || self.place.error("needs a result or the attribute `dtype`");
        self.result.map(|ty| ty.dtype).ok_or_else(missing)
    }

    fn slices(&mut self) -> Result<Vec<SliceAxis>> {
        let (start, len) = (self.ints("start")?, self.ints("len")?);
        let step = match self.optional("step") {
            None => alloc::vec![1; start.len()],
            Some((value, place)) => {
                let steps =
                    entries(&value).and_then(|list| list.iter().map(signed).collect::<Option<Vec<_>>>());
                steps.ok_or_else(|| place.error("`step` must be a list of integers"))?
            }
        };
        self.same_len("start, len and step", &[start.len(), len.len(), step.len()])?;
        let slice = |i: usize| SliceAxis { start: start[i], len: len[i], step: step[i] };
        Ok((0..start.len()).map(slice).collect())
    }

    fn pads(&mut self) -> Result<Vec<PadAxis>> {
        let (low, high) = (self.ints("low")?, self.ints("high")?);
        let given = self.attributes.iter().any(|(key, ..)| *key == "interior");
        let interior = if given { self.ints("interior")? } else { alloc::vec![0; low.len()] };
        self.same_len("low, high and interior", &[low.len(), high.len(), interior.len()])?;
        let pad = |i: usize| PadAxis { low: low[i], high: high[i], interior: interior[i] };
        Ok((0..low.len()).map(pad).collect())
    }

    fn same_len(&self, lists: &str, lens: &[usize]) -> Result<()> {
        if lens.iter().all(|len| len == &lens[0]) {
            return Ok(());
        }
        Err(self.place.error(format!("{lists} must have one entry per axis each")))
    }
}

fn entries(value: &Attribute) -> Option<&[Attribute]> {
    if let Attribute::List(list) = value { Some(list) } else { None }
}

fn integer(value: &Attribute) -> Option<u64> {
    match value {
        Attribute::Number(Scalar::Int(n)) => u64::try_from(*n).ok(),
        Attribute::Number(Scalar::UInt(n)) => Some(*n),
        Attribute::Number(Scalar::Float(_) | Scalar::Bool(_))
        | Attribute::Word(_)
        | Attribute::Text(_)
        | Attribute::Type(_)
        | Attribute::List(_)
        | Attribute::Program(_) => None,
    }
}

fn size(value: &Attribute) -> Option<usize> {
    integer(value).and_then(|n| usize::try_from(n).ok())
}

fn sizes(value: &Attribute) -> Option<Vec<usize>> {
    entries(value)?.iter().map(size).collect()
}

fn signed(value: &Attribute) -> Option<isize> {
    match value {
        Attribute::Number(Scalar::Int(n)) => isize::try_from(*n).ok(),
        Attribute::Number(Scalar::Float(_) | Scalar::UInt(_) | Scalar::Bool(_))
        | Attribute::Word(_)
        | Attribute::Text(_)
        | Attribute::Type(_)
        | Attribute::List(_)
        | Attribute::Program(_) => None,
    }
}
