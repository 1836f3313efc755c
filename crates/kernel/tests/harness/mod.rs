//! Runs a region as a kernel and as a program and compares.

use kiln_ir::{
    DType, Elements, Engine, Operand, Program, ProgramOperand, Scalar, TensorData, TensorType, Value,
    block_on,
};
use kiln_kernel::{Argument, Layout, Lowered, Nest, Slot, interpret, verify};
use kiln_reference::Reference;

/// A pseudorandom generator: SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// An operand: a scalar, or elements in memory with a layout.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) ty: TensorType,
    pub(crate) elements: Elements,
    pub(crate) offset: usize,
    pub(crate) layout: Layout,
    pub(crate) number: Option<Scalar>,
    /// The same elements, row-major.
    pub(crate) data: TensorData,
}

/// The contents of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fill {
    /// Multiples of a quarter, so that sums are exact.
    Quarters,
    /// Values that include NaN, infinities and zeros.
    Special,
    /// Integers below this bound.
    Below(usize),
}

fn element(random: &mut Random, dtype: DType, fill: Fill) -> f64 {
    if let Fill::Below(bound) = fill {
        return random.below(bound) as f64;
    }
    if dtype.is_bool() {
        return random.below(2) as f64;
    }
    if dtype.is_unsigned_int() {
        return random.below(9) as f64;
    }
    if !dtype.is_float() {
        return random.below(17) as f64 - 8.0;
    }
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0];
    if fill == Fill::Special && random.chance(30) {
        random.pick(&special)
    } else {
        random.below(33) as f64 / 4.0 - 4.0
    }
}

impl Source {
    /// A scalar operand.
    pub(crate) fn number(random: &mut Random, dtype: DType) -> Source {
        let x = element(random, dtype, Fill::Quarters);
        let data = TensorData::scalar(x).convert(dtype);
        let number = match dtype {
            dtype if dtype.is_float() => Scalar::Float(x),
            dtype if dtype.is_bool() => Scalar::Bool(x != 0.0),
            _integer => Scalar::Int(x as i64),
        };
        let elements = data.elements().clone();
        Source { ty: data.ty(), elements, offset: 0, layout: Layout(vec![]), number: Some(number), data }
    }

    /// A contiguous tensor.
    pub(crate) fn contiguous(random: &mut Random, ty: TensorType, fill: Fill) -> Source {
        let strides = ty.shape.row_major_strides()[..ty.rank()].iter().map(|&s| s as isize).collect();
        Source::laid_out(random, ty, fill, 0, strides)
    }

    /// A tensor with permuted, reversed, strided or broadcast axes.
    pub(crate) fn random(random: &mut Random, ty: TensorType, fill: Fill) -> Source {
        if random.chance(30) {
            return Source::contiguous(random, ty, fill);
        }
        let mut order: Vec<usize> = (0..ty.rank()).collect();
        if random.chance(50) {
            for i in (1..order.len()).rev() {
                order.swap(i, random.below(i + 1));
            }
        }
        let mut strides = vec![0; ty.rank()];
        let (mut step, mut offset) = (if random.chance(15) { 2 } else { 1 }, 0);
        for &axis in order.iter().rev() {
            if random.chance(12) {
                continue;
            }
            strides[axis] = step;
            if random.chance(15) {
                strides[axis] = -step;
                offset += step * (ty.shape[axis] as isize - 1);
            }
            step *= ty.shape[axis] as isize;
            if random.chance(10) {
                step += 3;
            }
        }
        Source::laid_out(random, ty, fill, offset as usize, strides)
    }

    fn laid_out(
        random: &mut Random,
        ty: TensorType,
        fill: Fill,
        offset: usize,
        strides: Vec<isize>,
    ) -> Source {
        let mut places = vec![offset as isize];
        for (axis, &length) in ty.shape.iter().enumerate() {
            let along = |&place: &isize| (0..length as isize).map(move |i| (place, i)).collect::<Vec<_>>();
            places = places.iter().flat_map(along).map(|(place, i)| place + i * strides[axis]).collect();
        }
        let len = places.iter().copied().max().unwrap_or(0) as usize + 1;
        let numbers: Vec<f64> = (0..len).map(|_| element(random, ty.dtype, fill)).collect();
        let data: Vec<f64> = places.iter().map(|&place| numbers[place as usize]).collect();
        let data = TensorData::new(data, ty.shape).unwrap().convert(ty.dtype);
        let elements = Elements::F64(numbers).cast(ty.dtype);
        Source { ty, elements, offset, layout: Layout(strides), number: None, data }
    }

    pub(crate) fn argument(&self) -> Argument<'_> {
        match self.number {
            Some(scalar) => Argument::Number(scalar),
            None => Argument::Tensor { elements: &self.elements, offset: self.offset },
        }
    }
}

/// The program's results on the reference engine.
pub(crate) fn reference(program: &Program, sources: &[Source]) -> Result<Vec<TensorData>, String> {
    let engine = Reference::new();
    let inputs = sources.iter().map(|source| engine.write(source.data.clone())).collect();
    let results: Vec<Value> = program.run(&engine, inputs).into_iter().collect();
    results.into_iter().map(|value| block_on(engine.read(value)).map_err(|error| error.to_string())).collect()
}

/// The kernel's results in the interpreter.
pub(crate) fn run(lowered: &Lowered, sources: &[Source]) -> Result<Vec<Elements>, String> {
    let arguments: Vec<Argument<'_>> = sources.iter().map(Source::argument).collect();
    interpret(&lowered.kernel, &lowered.launch, &arguments).map_err(|error| error.to_string())
}

/// Lowers a region and compares its results with the program's; returns the kernel, or an error message.
pub(crate) fn check(
    nest: &Nest,
    outputs: &[Slot],
    program: &Program,
    sources: &[Source],
    tolerances: &[f64],
) -> Result<Lowered, String> {
    let layouts: Vec<Layout> = sources.iter().map(|source| source.layout.clone()).collect();
    let lowered = nest.lower(outputs, &layouts).map_err(|error| format!("not lowered: {error}"))?;
    verify(&lowered.kernel).map_err(|error| format!("{error}\n{}", lowered.kernel))?;
    reads_back(&lowered)?;
    let expected = reference(program, sources)?;
    let found = run(&lowered, sources)?;
    for (i, (expected, found)) in expected.iter().zip(&found).enumerate() {
        if let Some(problem) = difference(expected.elements(), found, tolerances[i]) {
            return Err(format!("output {i}: {problem}\n{}\n{}", lowered.kernel, lowered.launch));
        }
    }
    assert_eq!(expected.len(), found.len());
    check_in_order(nest, outputs, &layouts, sources, &expected, tolerances)?;
    Ok(lowered)
}

/// Like [`check`], with results in the memory order of the operands.
fn check_in_order(
    nest: &Nest,
    outputs: &[Slot],
    layouts: &[Layout],
    sources: &[Source],
    expected: &[TensorData],
    tolerances: &[f64],
) -> Result<(), String> {
    let results = nest.result_layouts(outputs, layouts);
    let lowered =
        nest.lower_to(outputs, layouts, &results).map_err(|error| format!("not lowered: {error}"))?;
    verify(&lowered.kernel).map_err(|error| format!("{error}\n{}", lowered.kernel))?;
    let found = run(&lowered, sources)?;
    for (i, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let found = row_major(found, &expected.ty(), &results[i]);
        if let Some(problem) = difference(expected.elements(), &found, tolerances[i]) {
            let (kernel, launch) = (&lowered.kernel, &lowered.launch);
            return Err(format!("output {i} as {:?}: {problem}\n{kernel}\n{launch}", results[i]));
        }
    }
    Ok(())
}

/// The elements of a layout in row-major order.
fn row_major(elements: &Elements, ty: &TensorType, layout: &Layout) -> Elements {
    let (bytes, size) = (elements.bytes(), ty.dtype.size());
    let mut places = vec![0isize];
    for (axis, &length) in ty.shape.iter().enumerate() {
        let along = |&place: &isize| (0..length as isize).map(move |i| (place, i)).collect::<Vec<_>>();
        places = places.iter().flat_map(along).map(|(place, i)| place + i * layout.0[axis]).collect();
    }
    let moved = places.iter().flat_map(|&place| &bytes[place as usize * size..(place as usize + 1) * size]);
    Elements::from_bytes(&moved.copied().collect::<Vec<u8>>(), ty.dtype).unwrap()
}

/// Checks that kernel and launch round-trip through text.
pub(crate) fn reads_back(lowered: &Lowered) -> Result<(), String> {
    let (kernel, launch) = (lowered.kernel.to_string(), lowered.launch.to_string());
    match (kernel.parse::<kiln_kernel::Kernel>(), launch.parse::<kiln_kernel::Launch>()) {
        (Ok(read), Ok(read_launch)) if read == lowered.kernel && read_launch == lowered.launch => Ok(()),
        (read, read_launch) => {
            Err(format!("does not read back:\n{kernel}\n{launch}\n{read:?}\n{read_launch:?}"))
        }
    }
}

/// Describes the first difference above a tolerance relative to the maximum or 1, if any.
pub(crate) fn difference(expected: &Elements, found: &Elements, tolerance: f64) -> Option<String> {
    if expected.dtype() != found.dtype() || expected.len() != found.len() {
        let (a, b) = (expected.len(), found.len());
        return Some(format!("{a} elements of {} and {b} of {}", expected.dtype(), found.dtype()));
    }
    if !expected.dtype().is_float() {
        let place = (0..expected.len()).find(|&i| one(expected, i) != one(found, i))?;
        return Some(format!("element {place}: {} and {}", one(expected, place), one(found, place)));
    }
    let (Elements::F64(a), Elements::F64(b)) = (expected.cast(DType::F64), found.cast(DType::F64)) else {
        return Some("no floats".into());
    };
    let greatest = a.iter().filter(|x| x.is_finite()).fold(1.0f64, |most, x| most.max(x.abs()));
    let alike =
        |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * greatest;
    let place = (0..a.len()).find(|&i| !alike(a[i], b[i]))?;
    Some(format!("element {place}: {} and {}", a[place], b[place]))
}

fn one(elements: &Elements, place: usize) -> i128 {
    if let Elements::U64(wide) = elements {
        return i128::from(wide[place]);
    }
    i128::from(<i64 as kiln_ir::Element>::unwrap(elements.cast(DType::I64)).unwrap()[place])
}

/// The operand of a slot.
pub(crate) fn slot(number: usize) -> ProgramOperand {
    ProgramOperand::Slot(number)
}

/// The scalar or value as an operand of the nest.
pub(crate) fn nest_operand(operand: &ProgramOperand, slots: &[Slot]) -> kiln_kernel::Operand {
    match operand {
        ProgramOperand::Slot(slot) => slots[*slot].into(),
        ProgramOperand::Scalar(scalar) => (*scalar).into(),
    }
}

/// The type of an operand, for inference.
pub(crate) fn typed(operand: &ProgramOperand, types: &[TensorType]) -> Operand {
    match operand {
        ProgramOperand::Slot(slot) => Value::absent(types[*slot]).into(),
        ProgramOperand::Scalar(scalar) => (*scalar).into(),
    }
}

/// Replaces the slots of operands and outputs by those of a list.
pub(crate) fn renumber(program: &mut Program, slots: &[usize]) {
    let operands = program.instructions.iter_mut().flat_map(|i| &mut i.operands);
    for operand in operands.chain(&mut program.outputs) {
        if let ProgramOperand::Slot(slot) = operand {
            *slot = slots[*slot];
        }
    }
}
