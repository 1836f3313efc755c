//! `einsum` against loops, its messages, and the order of contractions.

use kiln_backends::{Device, Flex};
use kiln_tensor::{
    AnyTensor, Autodiff, DType, EinsumPath, Int, Shape, Tensor, TensorData, TensorType, einsum,
};

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// An equation as lists of names: letters, and numbers `0..` for the axes of `...` counted from the right.
#[derive(Clone, Debug)]
struct Case {
    text: String,
    operands: Vec<Vec<char>>,
    shapes: Vec<Vec<usize>>,
    output: Vec<char>,
}

const LETTERS: [char; 6] = ['i', 'j', 'k', 'B', 'x', 'A'];
const ELLIPSIS: [char; 2] = ['1', '0'];

fn draw(random: &mut Random, operands_from: usize) -> Case {
    let choices = if random.chance(20) { 7 } else { 6 };
    let lengths: Vec<usize> = (0..8).map(|_| [2, 3, 2, 1, 3, 4, 0][random.below(choices)]).collect();
    let length_of = |name: char| match name {
        '0' => lengths[6],
        '1' => lengths[7],
        name => lengths[LETTERS.iter().position(|letter| *letter == name).unwrap()],
    };
    let with_ellipsis = random.chance(3);
    let (mut operands, mut shapes, mut terms) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..operands_from + random.below(5) {
        let mut names: Vec<char> = (0..random.below(4)).map(|_| LETTERS[random.below(6)]).collect();
        let mut term: String = names.iter().collect();
        if with_ellipsis && !random.chance(4) {
            let (at, axes) = (random.below(names.len() + 1), random.below(3));
            term = names[..at].iter().collect::<String>() + "..." + &names[at..].iter().collect::<String>();
            names.splice(at..at, ELLIPSIS[2 - axes..].iter().copied());
        }
        let mut shape: Vec<usize> = names.iter().map(|&name| length_of(name)).collect();
        for axis in 0..names.len() {
            let alone = names.iter().filter(|name| **name == names[axis]).count() == 1;
            if alone && random.chance(8) {
                shape[axis] = 1;
            }
        }
        if random.chance(6) {
            term = term.replace('k', " k ");
        }
        operands.push(names);
        shapes.push(shape);
        terms.push(term);
    }
    let used: Vec<char> =
        LETTERS.iter().copied().filter(|name| operands.iter().flatten().any(|other| other == name)).collect();
    let covered: Vec<char> = ELLIPSIS
        .iter()
        .copied()
        .filter(|name| operands.iter().flatten().any(|other| other == name))
        .collect();
    let mut text = terms.join(",");
    let output = if random.chance(4) {
        let mut once: Vec<char> = used.clone();
        once.retain(|name| operands.iter().flatten().filter(|other| *other == name).count() == 1);
        once.sort_unstable();
        [covered, once].concat()
    } else {
        let mut output: Vec<char> = used.into_iter().filter(|_| !random.chance(2)).collect();
        for place in (1..output.len()).rev() {
            output.swap(place, random.below(place + 1));
        }
        let mut right: String = output.iter().collect();
        if with_ellipsis && !random.chance(4) {
            let at = random.below(output.len() + 1);
            right =
                output[..at].iter().collect::<String>() + "..." + &output[at..].iter().collect::<String>();
            output.splice(at..at, covered);
        }
        text = format!("{text}->{right}");
        output
    };
    Case { text, operands, shapes, output }
}

/// One loop over all names.
fn naive(case: &Case, values: &[Vec<f64>]) -> (Vec<usize>, Vec<f64>) {
    let mut names: Vec<char> = case.operands.iter().flatten().copied().collect();
    names.sort_unstable();
    names.dedup();
    let length = |name: char| {
        let each = case.operands.iter().zip(&case.shapes).flat_map(|(names, shape)| names.iter().zip(shape));
        let own: Vec<usize> = each.filter(|(other, _)| **other == name).map(|(_, &length)| length).collect();
        own.iter().copied().find(|&length| length != 1).unwrap_or(1)
    };
    let lengths: Vec<usize> = names.iter().map(|&name| length(name)).collect();
    let shape: Vec<usize> = case.output.iter().map(|&name| length(name)).collect();
    let mut result = vec![0.0; shape.iter().product()];
    let total: usize = lengths.iter().product();
    for flat in 0..total {
        let mut rest = flat;
        let mut index = vec![0; names.len()];
        for place in (0..names.len()).rev() {
            index[place] = rest % lengths[place];
            rest /= lengths[place];
        }
        let at = |name: char| index[names.iter().position(|other| *other == name).unwrap()];
        let offset = |names: &[char], shape: &[usize]| {
            names
                .iter()
                .zip(shape)
                .fold(0, |offset, (&name, &length)| offset * length + at(name).min(length - 1))
        };
        let operands = case.operands.iter().zip(&case.shapes).zip(values);
        let product: f64 = operands.map(|((names, shape), values)| values[offset(names, shape)]).product();
        result[offset(&case.output, &shape)] += product;
    }
    (shape, result)
}

fn tensor(values: &[f64], shape: &[usize], device: &Device) -> AnyTensor {
    let data = TensorData::new(values.to_vec(), Shape::new(shape)).unwrap();
    AnyTensor::from_data(data, device)
}

#[test]
fn random_equations_agree_with_loops() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let (mut checked, mut wide) = (0, 0);
    while checked < 2000 {
        let case = draw(&mut random, 1);
        let values: Vec<Vec<f64>> = case
            .shapes
            .iter()
            .map(|shape| (0..shape.iter().product()).map(|_| random.below(7) as f64 - 3.0).collect())
            .collect();
        let device = Device::cpu();
        let operands = values.iter().zip(&case.shapes).map(|(values, shape)| tensor(values, shape, &device));
        let found =
            AnyTensor::einsum(&case.text, operands).unwrap_or_else(|error| panic!("{case:?}: {error}"));
        let (shape, expected) = naive(&case, &values);
        assert_eq!(found.shape().to_vec(), shape, "{case:?}");
        assert_eq!(found.into_data().unwrap().to_vec::<f64>(), expected, "{case:?}");
        wide += usize::from(case.operands.len() > 2);
        checked += 1;
    }
    assert!(wide > 500);
}

#[test]
fn equations_with_many_operands_agree_with_loops() {
    let mut random = Random(11);
    let device = Device::cpu();
    for _ in 0..150 {
        let case = draw(&mut random, 6);
        let drawn =
            |shape: &Vec<usize>| (0..shape.iter().product()).map(|_| random.below(5) as f64 - 2.0).collect();
        let values: Vec<Vec<f64>> = case.shapes.iter().map(drawn).collect();
        let operands = values.iter().zip(&case.shapes).map(|(values, shape)| tensor(values, shape, &device));
        let found =
            AnyTensor::einsum(&case.text, operands).unwrap_or_else(|error| panic!("{case:?}: {error}"));
        assert_eq!(found.into_data().unwrap().to_vec::<f64>(), naive(&case, &values).1, "{case:?}");
    }
}

#[test]
fn gradients_match_loops() {
    let mut random = Random(7);
    for _ in 0..60 {
        let case = draw(&mut random, 1);
        let values: Vec<Vec<f64>> = case
            .shapes
            .iter()
            .map(|shape| (0..shape.iter().product()).map(|_| random.below(7) as f64 - 3.0).collect())
            .collect();
        let device = Device::cpu().autodiff();
        let operands: Vec<AnyTensor> = values
            .iter()
            .zip(&case.shapes)
            .map(|(values, shape)| tensor(values, shape, &device).require_grad().unwrap())
            .collect();
        let sum = AnyTensor::einsum(&case.text, operands.clone()).and_then(AnyTensor::sum).unwrap();
        let sum: Tensor<kiln_backends::Dyn, 1> = sum.try_into_tensor().unwrap();
        let gradients = sum.backward();
        for (place, operand) in operands.iter().enumerate() {
            let found = gradients.get(operand).map(|gradient| gradient.into_data().unwrap().to_vec::<f64>());
            for element in 0..values[place].len() {
                // The sum is linear in each operand.
                let mut unit = values.clone();
                unit[place] = vec![0.0; values[place].len()];
                unit[place][element] = 1.0;
                let expected: f64 = naive(&case, &unit).1.iter().sum();
                let found = found.as_ref().map_or(0.0, |gradient| gradient[element]);
                assert_eq!(found, expected, "{case:?}, operand {place}, element {element}");
            }
        }
    }
}

#[test]
fn typed_operands_of_several_ranks() {
    type B = Autodiff<Flex>;
    let device = Default::default();
    let a: Tensor<B, 2> = Tensor::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &device);
    let x: Tensor<B, 1> = Tensor::from_floats([1.0f32, 10.0], &device);
    let y: Tensor<B, 1> = einsum("i,ij,j->", (&x, &a, &x));
    assert_eq!(y.into_data().to_vec::<f32>(), [451.0]);
    let product: Tensor<B, 2> = einsum("ij,jk->ik", [&a, &a]);
    assert_eq!(product.into_data().to_vec::<f32>(), [7.0, 10.0, 15.0, 22.0]);
    let counts: Tensor<Flex, 1, Int> = Tensor::from_ints([1, 2, 3], &Default::default());
    let dot: Tensor<Flex, 0, Int> = einsum("i,i", vec![counts.clone(), counts]);
    assert_eq!(dot.into_data().to_vec::<i32>(), [14]);
}

#[test]
fn i8_operands_keep_their_dtype() {
    let x = AnyTensor::from_data(TensorData::from([[1i8, 2], [3, 4]]), &Device::cpu());
    let y = AnyTensor::einsum("ij,jk->ik", [x.clone(), x]).unwrap();
    assert_eq!(y.dtype(), DType::I8);
    assert_eq!(y.into_data().unwrap().to_vec::<i8>(), [7, 10, 15, 22]);
}

fn message(equation: &str, shapes: &[&[usize]]) -> String {
    let device = Device::cpu();
    let zeros = shapes
        .iter()
        .map(|shape| AnyTensor::zeros(TensorType::new(Shape::new(shape), DType::F32), &device).unwrap());
    AnyTensor::einsum(equation, zeros).unwrap_err().to_string()
}

#[test]
fn errors_of_invalid_equations() {
    let table: [(&str, &[&[usize]], &str); 11] = [
        (
            "ij,jk->ik",
            &[&[2, 3], &[4, 5]],
            "[einsum] `j` is 3 in operand 0 and 4 in operand 1: f32[2, 3] x f32[4, 5]\n  hint: axes of one letter have equal lengths, or length 1",
        ),
        (
            "ij,jk->ik",
            &[&[2, 3]],
            "[einsum] `ij,jk->ik` expects 2 operands, got 1: f32[2, 3]\n  hint: operands are separated by commas",
        ),
        (
            "ijk->i",
            &[&[2, 3]],
            "[einsum] operand 0 (in `ijk`): 3 letters for the 2 axes of [2, 3]: f32[2, 3]\n  hint: write one letter for each axis; `...` stands for axes without letters",
        ),
        (
            "ij->ijk",
            &[&[2, 3]],
            "[einsum] `k` is in the output but in no operand: f32[2, 3]\n  hint: each letter of the output must occur in an operand",
        ),
        (
            "ij->ii",
            &[&[2, 3]],
            "[einsum] `i` occurs twice in the output: f32[2, 3]\n  hint: the output has each letter once",
        ),
        (
            "ii->i",
            &[&[2, 3]],
            "[einsum] `i` has lengths 2 and 3 in operand 0: f32[2, 3]\n  hint: a letter repeated in one operand selects its diagonal",
        ),
        (
            "i1->i",
            &[&[2, 3]],
            "[einsum] operand 0 (in `i1`): `1` names no axis: f32[2, 3]\n  hint: axes are letters: `a` to `z` and `A` to `Z`",
        ),
        (
            "i.->i",
            &[&[2, 3]],
            "[einsum] operand 0 (in `i.`): a single `.`: f32[2, 3]\n  hint: other axes are `...`",
        ),
        (
            "...i...->i",
            &[&[2, 3]],
            "[einsum] operand 0 (in `...i...`): `...` occurs twice: f32[2, 3]\n  hint: write it once",
        ),
        (
            "...i,...i->i",
            &[&[2, 3], &[3, 3]],
            "[einsum] axis -1 of `...` is 2 in operand 0 and 3 in operand 1: f32[2, 3] x f32[3, 3]\n  hint: axes of one letter have equal lengths, or length 1",
        ),
        (
            "ij->i->j",
            &[&[2, 3]],
            "[einsum] the output (in `i->j`): `-` names no axis: f32[2, 3]\n  hint: axes are letters: `a` to `z` and `A` to `Z`",
        ),
    ];
    for (equation, shapes, expected) in table {
        assert_eq!(message(equation, shapes), expected, "{equation}");
    }
}

#[test]
fn mixed_dtypes_are_refused() {
    let device = Device::cpu();
    let zeros = |dtype| AnyTensor::zeros(TensorType::new([2], dtype), &device).unwrap();
    let error = AnyTensor::einsum("i,i", [zeros(DType::F32), zeros(DType::F64)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "[einsum] dtypes differ: f32[2] x f64[2]\n  hint: cast one of the operands"
    );
    let error = AnyTensor::einsum("i", [zeros(DType::Bool)]).unwrap_err();
    assert!(error.to_string().starts_with("[einsum] needs numbers: bool[2]"), "{error}");
}

#[test]
fn the_path_is_the_cheapest_order() {
    let path = EinsumPath::new("ij,jk,k->i", &[[50, 40].into(), [40, 30].into(), [30].into()]).unwrap();
    let pairs: Vec<(usize, usize)> = path.steps().iter().map(|step| (step.left, step.right)).collect();
    assert_eq!(pairs, [(1, 2), (0, 3)]);
    assert_eq!(path.flops(), 2 * 40 * 30 + 2 * 50 * 40);
    assert_eq!(path.naive_flops(), 3 * 50 * 40 * 30);
    assert_eq!(
        path.to_string(),
        "einsum `ij,jk,k->i`: 3 operands, 2 contractions\n  \
         3 = 1 x 2  jk,k->j  2400 flops, 40 elements\n  \
         4 = 0 x 3  ij,j->i  4000 flops, 50 elements\n\
         6400 flops (180000 in one loop), largest result 50 elements"
    );
}

#[test]
fn a_chain_of_twelve_is_contracted_greedily() {
    let equation = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am";
    let device = Device::cpu();
    let ones = |_| AnyTensor::ones(TensorType::new([2, 2], DType::F64), &device).unwrap();
    let product = AnyTensor::einsum(equation, (0..12).map(ones)).unwrap();
    assert_eq!(product.into_data().unwrap().to_vec::<f64>(), [2048.0; 4]);
    let path = EinsumPath::new(equation, &[[2, 2].into(); 12]).unwrap();
    assert_eq!((path.steps().len(), path.largest()), (11, 4));
}

#[test]
fn many_batch_dims_are_merged() {
    let device = Device::cpu();
    let shape = |axes: usize| Shape::new(vec![2; axes]);
    let ones = |axes| AnyTensor::ones(TensorType::new(shape(axes), DType::F32), &device).unwrap();
    let sum = AnyTensor::einsum("abcdefghijkl,abcdefghijkl->abcdefghijk", [ones(12), ones(12)]).unwrap();
    assert_eq!(sum.into_data().unwrap().to_vec::<f32>(), vec![2.0; 2048]);
}
