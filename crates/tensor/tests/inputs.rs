//! Invalid numbers and sizes are errors that name them.

use kiln_backends::{Cpu, Device, Dyn, Flex};
use kiln_tensor::module::{InterpolateMode, InterpolateOptions, Pooling};
use kiln_tensor::random::Key;
use kiln_tensor::signal::Window;
use kiln_tensor::{
    AnyTensor, Autodiff, Backend, DType, Float, Int, Tensor, TensorData, TensorType, no_grad, s, transform,
};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let payload = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("no panic"),
        Err(payload) => payload,
    };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast_ref::<&str>().expect("a message")).into(),
    }
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

#[track_caller]
fn fails(result: kiln_tensor::Result<AnyTensor>, words: &[&str]) {
    // Errors of the data surface when the value is read.
    let error = result.and_then(AnyTensor::into_data).map(|data| format!("{data:?}")).expect_err("an error");
    has(&error.to_string(), words);
}

fn devices() -> [Device; 3] {
    [Device::flex(), Device::cpu(), Device::cpu().autodiff()]
}

fn bytes(device: &Device) -> AnyTensor {
    AnyTensor::from_data(TensorData::from([0u8, 44, 200, 255]), device)
}

#[test]
fn scalars_out_of_range_are_errors_in_every_method() {
    let words = ["the number 300 is out of bounds for u8", "u8 represents 0 to 255"];
    for device in devices() {
        let x = || bytes(&device);
        let mask = || x().compare_scalar(kiln_ir::Comparison::Lt, 50).unwrap();
        fails(x().clamp_max(300), &words);
        fails(x().clamp(-5, 300), &["[clamp]", "the number -5 is out of bounds for u8"]);
        fails(x().add_scalar(300), &words);
        fails(x().fmod_scalar(300), &words);
        fails(x().mask_fill(mask(), 300), &words);
        fails(x().one_hot_fill(256, 300, 0, -1), &words);
        fails(x().one_hot_fill(256, 0, 300, -1), &words);
        fails(AnyTensor::full(*x().ty(), 300, &device), &words);
        let index = || AnyTensor::from_data(TensorData::from([1i32]), &device);
        fails(x().index_fill(0, index(), 300), &words);
        // Scalars in range work, and floats promote.
        assert_eq!(x().clamp_max(50).unwrap().into_data().unwrap().to_vec::<u8>(), [0, 44, 50, 50]);
        assert_eq!(x().add_scalar(0.5).unwrap().dtype(), DType::F32);
    }
}

#[test]
fn comparisons_with_scalars_out_of_range_are_mathematically_correct() {
    for device in devices() {
        let x = || bytes(&device);
        let read =
            |result: kiln_tensor::Result<AnyTensor>| result.unwrap().into_data().unwrap().to_vec::<bool>();
        for number in [300i64, 256, i64::MAX] {
            assert_eq!(read(x().lower_elem(number)), [true; 4]);
            assert_eq!(read(x().lower_equal_elem(number)), [true; 4]);
            assert_eq!(read(x().greater_elem(number)), [false; 4]);
            assert_eq!(read(x().greater_equal_elem(number)), [false; 4]);
            assert_eq!(read(x().equal_elem(number)), [false; 4]);
            assert_eq!(read(x().not_equal_elem(number)), [true; 4]);
        }
        assert_eq!(read(x().lower_elem(-1)), [false; 4]);
        assert_eq!(read(x().greater_elem(-1)), [true; 4]);
        assert_eq!(read(x().equal_elem(300 - 256)), [false, true, false, false]);
    }
}

#[test]
fn integers_out_of_range_of_the_dtype_are_errors() {
    let device = Default::default();
    has(
        &panic_of(|| Tensor::<Flex, 1, Int>::full([2], 1i64 << 40, &device)),
        &["[full]", "the number 1099511627776 is out of bounds for i32"],
    );
    has(
        &panic_of(|| Tensor::<Flex, 1, Int>::arange(3_000_000_000i64..3_000_000_002, &device)),
        &["[arange]", "the number 3000000000 is out of bounds for i32"],
    );
    let device = Device::flex();
    let arange = |range, step, dtype| AnyTensor::arange(range, step, dtype, &device);
    fails(arange(0..300, 1, DType::U8), &["[arange] the number 299 is out of bounds for u8"]);
    fails(arange(-1..3, 1, DType::U8), &["[arange] the number -1 is out of bounds for u8"]);
    let read = |result: kiln_tensor::Result<AnyTensor>| result.unwrap().into_data().unwrap().to_vec::<i64>();
    // Steps and range ends may be out of range of the dtype.
    assert_eq!(read(arange(Range { start: 255, end: 252 }, -1, DType::U8)), [255, 254, 253]);
    assert_eq!(read(arange(0..1, 1000, DType::U8)), [0]);
    assert_eq!(read(arange(250..256, 1, DType::U8)), [250, 251, 252, 253, 254, 255]);
    assert_eq!(read(arange(3_000_000_000..3_000_000_002, 1, DType::I64)), [3_000_000_000, 3_000_000_001]);
    assert_eq!(read(arange(i64::MIN..i64::MAX, i64::MAX, DType::I64)), [i64::MIN, -1, i64::MAX - 1]);
}

#[test]
fn randint_out_of_range_of_the_dtype_is_an_error() {
    let device = Device::flex();
    let ty = TensorType::new([100], DType::U8);
    fails(AnyTensor::randint(ty, 0..300, Key::new(1), &device), &["[randint]", "299", "u8"]);
    fails(AnyTensor::randint(ty, -1..3, Key::new(1), &device), &["[randint]", "-1", "u8"]);
    let ty = TensorType::new([1000], DType::I8);
    let drawn = AnyTensor::randint(ty, -128..128, Key::new(1), &device).unwrap().into_data().unwrap();
    let drawn = drawn.to_vec::<i8>();
    assert!(drawn.iter().any(|x| *x < -100) && drawn.iter().any(|x| *x > 100), "{drawn:?}");
}

#[test]
fn one_hot_refuses_classes_out_of_range() {
    for device in devices() {
        let ints = |numbers: &[i32]| AnyTensor::from_data(TensorData::from(numbers), &device);
        fails(
            ints(&[0, 7, 1]).one_hot(5),
            &["[one_hot] class 7 at position [1] is out of range for 5 classes", "0 to 4"],
        );
        fails(ints(&[0, -1]).one_hot(5), &["[one_hot] class -1 at position [1]"]);
        let floats = |numbers: &[f32]| AnyTensor::from_data(TensorData::from(numbers), &device);
        fails(floats(&[0.0, 5.0]).one_hot(5), &["[one_hot] class 5 at position [1]"]);
        fails(floats(&[1.5]).one_hot(5), &["[one_hot] class -1 at position [0]"]);
        fails(floats(&[f32::NAN]).one_hot(5), &["[one_hot] class -1 at position [0]"]);
        let good = ints(&[1, 0]).one_hot(3).unwrap().into_data().unwrap().to_vec::<i32>();
        assert_eq!(good, [0, 1, 0, 1, 0, 0]);
        let good = floats(&[2.0]).one_hot(3).unwrap().into_data().unwrap();
        assert_eq!(good.to_vec::<f32>(), [0.0, 0.0, 1.0]);
        let narrow = AnyTensor::from_data(TensorData::from([255u8]), &device).one_hot(300).unwrap();
        assert_eq!(narrow.argmax(1).unwrap().into_data().unwrap().to_vec::<i32>(), [255]);
    }
}

#[test]
fn multinomial_refuses_invalid_weights() {
    for device in devices() {
        let draw = |weights: TensorData, count: usize, replacement: bool| {
            AnyTensor::from_data(weights, &device).multinomial(count, replacement, Key::new(1))
        };
        let nan = TensorData::from([[1.0f32, 1.0], [f32::NAN, 1.0]]);
        fails(draw(nan, 1, true), &["[multinomial] the weight NaN of class 0 in row [1]"]);
        let negative = TensorData::from([1.0f32, 2.0, -0.5]);
        fails(draw(negative, 1, false), &["[multinomial] the weight -0.5 of class 2 in row []"]);
        let infinite = TensorData::from([f32::INFINITY, 1.0]);
        fails(draw(infinite, 1, true), &["the weight inf of class 0"]);
        let nothing = TensorData::from([[0.5f32, 0.5], [0.0, 0.0]]);
        fails(draw(nothing, 1, true), &["all weights of row [1] are 0"]);
        let few = TensorData::from([0.0f32, 1.0, 0.0]);
        fails(draw(few.clone(), 2, false), &["row [] has 1 weights above 0 for 2 draws without replacement"]);
        let drawn = draw(few, 4, true).unwrap().into_data().unwrap().to_vec::<i32>();
        assert_eq!(drawn, [1, 1, 1, 1]);
    }
}

/// On other devices, the expansion reports the same rows.
#[test]
fn multinomial_by_expansion_refuses_invalid_weights() {
    let device = Device::from_engine(std::sync::Arc::new(kiln_cpu::Cpu::with_threads(1)), "bare");
    let draw = |weights: TensorData| AnyTensor::from_data(weights, &device).multinomial(1, true, Key::new(1));
    for bad in [f32::NAN, f32::INFINITY, -1.0] {
        let weights = TensorData::from([[1.0f32, 1.0], [bad, 1.0]]);
        fails(draw(weights), &["[multinomial] no class can be drawn by the weights of row [1]", "above 0"]);
    }
    fails(draw(TensorData::from([0.0f32, 0.0])), &["[multinomial] no class", "row []"]);
    assert_eq!(draw(TensorData::from([0.0f32, 1.0])).unwrap().into_data().unwrap().to_vec::<i32>(), [1]);
}

#[test]
fn lengths_beyond_i64_are_not_minus_one() {
    let device = Default::default();
    let x = || Tensor::<Flex, 1>::zeros([6], &device);
    has(&panic_of(|| x().reshape([usize::MAX, 2])), &["18446744073709551615"]);
    has(&panic_of(|| x().expand([usize::MAX, 6])), &["18446744073709551615"]);
    assert_eq!(x().reshape([-1i64, 2]).dims(), [3, 2]);
    // A range end beyond the axis is clamped, a start is an error.
    assert_eq!(x().slice(s![2..usize::MAX]).dims(), [4]);
    has(&panic_of(|| x().slice(s![usize::MAX - 1..usize::MAX])), &["beyond its length 6"]);
}

#[test]
fn histograms_of_too_many_bins_are_errors() {
    let x = || AnyTensor::from_data(TensorData::from([1.0f32, 2.0]), &Device::flex());
    for bins in [(1 << 28) + 1, usize::MAX] {
        let problem = format!("{bins} bins are more than 268435456");
        fails(x().histc(bins, None), &["[histc]", &problem]);
        fails(x().histc(bins, Some((0.0, 1.0))), &[&problem]);
    }
}

#[test]
fn bincount_of_a_huge_value_is_an_error() {
    let start = Instant::now();
    let count = |numbers: &[i32], least: usize| {
        AnyTensor::from_data(TensorData::from(numbers), &Device::flex()).bincount(None, least)
    };
    fails(count(&[3, i32::MAX], 0), &["[bincount] the number 2147483647 requires too many counts"]);
    fails(count(&[3], usize::MAX), &["[bincount] a length of 18446744073709551615"]);
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(count(&[3, 1], 0).unwrap().into_data().unwrap().to_vec::<i32>(), [0, 1, 0, 1]);
}

/// Regression: each of these calls exhausted memory and aborted the process.
#[test]
fn sizes_are_checked_before_allocation() {
    const HUGE: usize = 1 << 40;
    let device = Device::flex();
    let image = || AnyTensor::from_data(TensorData::from([[[[1.0f32, 2.0, 3.0]; 3]; 1]; 1]), &device);
    let vector = || AnyTensor::from_data(TensorData::from([1.0f32, 2.0, 3.0]), &device);
    fails(image().adaptive_avg_pool(&[HUGE, 1]), &["[adaptive_avg_pool]", "1099511627776"]);
    fails(image().adaptive_max_pool(&[HUGE, 1]), &["[adaptive_max_pool]", "1099511627776"]);
    for (mode, antialias) in [
        (InterpolateMode::NearestExact, false),
        (InterpolateMode::Linear, true),
        (InterpolateMode::Area, false),
    ] {
        let options = InterpolateOptions { antialias, ..InterpolateOptions::new(mode) };
        fails(image().interpolate([HUGE, 2], options), &["1099511627776"]);
    }
    fails(AnyTensor::window(&Window::Hann, HUGE, true, &device), &["[window]", "1099511627776"]);
    fails(AnyTensor::window(&Window::Hann, usize::MAX, true, &device), &["[window]"]);
    fails(AnyTensor::fftfreq(HUGE, 1.0, &device), &["[fftfreq]", "1099511627776"]);
    fails(AnyTensor::rfftfreq(HUGE, 1.0, &device), &["[rfftfreq]"]);
    fails(AnyTensor::tril_indices(HUGE, 2, 0, &device), &["[tril_indices]", "1099511627776"]);
    fails(AnyTensor::triu_indices(HUGE, HUGE, 0, &device), &["[triu_indices]"]);
    fails(
        AnyTensor::sinusoidal_positions(HUGE, 2, 1e4, DType::F32, &device),
        &["[sinusoidal_positions]", "1099511627776"],
    );
    let angles = AnyTensor::rotary_angles(usize::MAX, HUGE, 2, 1e4, DType::F32, &device);
    fails(angles.map(|(cosines, _)| cosines), &["[rotary_angles]"]);
    let parts = vector().tensor_split(HUGE, 0);
    has(&parts.unwrap_err().to_string(), &["[tensor_split] 1099511627776 parts are too many"]);
    let times = AnyTensor::from_data(TensorData::from([1i64, 1 << 40, 1]), &device);
    fails(vector().repeat_interleave_each(times, 0), &["[repeat_interleave_each]", "1099511627778"]);
    let many = AnyTensor::iota(TensorType::new([200], DType::F32), 0, &device).unwrap();
    fails(many.combinations(100, false), &["[combinations]", "100"]);
    assert_eq!(vector().combinations(2, true).unwrap().shape()[..], [6, 2]);
    has(&panic_of(|| Key::new(1).split(HUGE)), &["1099511627776 keys"]);
    has(&panic_of(|| Device::cpu_with_threads(100_000)), &["100000 threads", "1024"]);
    has(&panic_of(|| Device::flex_with_threads(100_000)), &["100000 threads", "1024"]);
}

#[test]
fn padding_and_windows_do_not_overflow() {
    let device = Device::flex();
    let image = || AnyTensor::from_data(TensorData::from([[[[1.0f32, 2.0, 3.0]; 3]; 1]; 1]), &device);
    for ceil_mode in [false, true] {
        let padding =
            Pooling { padding: vec![(usize::MAX, usize::MAX), (1, 1)], ceil_mode, ..Pooling::new(&[2, 2]) };
        let dilation = Pooling { dilation: vec![usize::MAX, 1], ceil_mode, ..Pooling::new(&[2, 2]) };
        let stride = Pooling { stride: vec![usize::MAX, 1], ceil_mode, ..Pooling::new(&[2, 2]) };
        for pooling in [padding, dilation] {
            fails(image().max_pool(&pooling), &["[max_pool]"]);
            fails(image().avg_pool(&pooling, true), &["[avg_pool]"]);
        }
        assert_eq!(image().max_pool(&stride).unwrap().shape()[..], [1, 1, 1, 2]);
    }
    let spec = kiln_ir::ConvSpec { padding: vec![(usize::MAX, usize::MAX); 2], ..kiln_ir::ConvSpec::new(2) };
    assert!(image().unfold4d([2, 2], &spec).is_err());
}

#[test]
fn a_panicking_assignment_leaves_the_tensor_unchanged() {
    let device = Default::default();
    let mut a = Tensor::<Cpu, 1>::from_floats([1.0, 2.0, 3.0], &device);
    let b = Tensor::<Cpu, 1>::from_floats([1.0, 2.0], &device);
    has(&panic_of(|| a += &b), &["[add]", "f32[3] x f32[2]"]);
    has(&panic_of(|| a *= b.clone()), &["[mul]", "f32[3] x f32[2]"]);
    assert_eq!(a.to_data().to_vec::<f32>(), [1.0, 2.0, 3.0]);
    let mut n = Tensor::<Cpu, 1, Int>::from_ints([1, 2], &device);
    has(&panic_of(|| n += 1i64 << 40), &["out of bounds for i32"]);
    n -= 1;
    a /= 2.0;
    a += Tensor::<Cpu, 1>::from_floats([1.0], &device);
    assert_eq!(n.into_data().to_vec::<i32>(), [0, 1]);
    assert_eq!(a.into_data().to_vec::<f32>(), [1.5, 2.0, 2.5]);
}

/// A device has one key stream, shared by the backend and the layers around it.
#[test]
fn a_seed_applies_to_every_layer_of_the_device() {
    let device = crate::own_device();
    let draw = |device: &Device| {
        let ty = TensorType::new([4], DType::F32);
        let drawn = AnyTensor::random(ty, kiln_tensor::Distribution::Default, device).unwrap();
        drawn.into_data().unwrap().to_vec::<f32>()
    };
    Dyn::seed(&device, 7);
    let expected = draw(&device);
    for layered in [device.autodiff(), device.autodiff().autodiff()] {
        Dyn::seed(&device, 7);
        assert_eq!(draw(&layered), expected);
        Dyn::seed(&layered, 7);
        assert_eq!(draw(&device), expected);
        assert_ne!(draw(&device), expected);
    }
}

type B = Autodiff<Flex>;

#[test]
fn no_grad_applies_to_every_tape_of_the_thread() {
    let device = Default::default();
    let x = Tensor::<B, 1>::from_floats([3.0], &device).require_grad();
    let y = no_grad(|| &x * &x);
    assert!(!y.is_tracked() && (&x * &x).is_tracked());
    // An inner transform has its own tape.
    let slope = no_grad(|| transform::grad(|x: Tensor<B, 1>| (&x * &x).sum())(x.clone().inner()));
    assert_eq!(slope.into_data().to_vec::<f32>(), [6.0]);
    let panic = catch_unwind(AssertUnwindSafe(|| no_grad(|| panic!("left early"))));
    assert!(panic.is_err() && (&x * &x).is_tracked());
}

#[test]
fn gradients_of_dyn_need_an_autodiff_device() {
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &Device::flex());
    let error = x.clone().sum().try_backward().unwrap_err().to_string();
    has(&error, &["[backward]", "has no automatic differentiation", "Autodiff<Cpu>", "autodiff()"]);
    has(&panic_of(|| x.clone().require_grad()), &["[require_grad]", "Autodiff<Cpu>"]);
    let y = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &Device::flex().autodiff());
    has(&y.sum().try_backward().unwrap_err().to_string(), &["[backward]", "require_grad"]);
}

#[test]
fn moving_a_tracked_tensor_to_a_device_without_autodiff_is_an_error() {
    let (here, there) = (Device::flex().autodiff(), Device::cpu());
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &here).require_grad();
    let y = &x * &x;
    for tracked in [&x, &y] {
        assert!(tracked.clone().to_device(&there.autodiff()).is_tracked());
        let error = tracked.clone().try_to_device(&there).unwrap_err().to_string();
        has(&error, &["[to_device] the gradient would not follow f32[2]", "`detach()`"]);
        assert_eq!(tracked.clone().to_device(&here).dims(), [2]);
    }
    let moved = y.clone().detach().to_device(&there);
    assert_eq!(moved.into_data().to_vec::<f32>(), [1.0, 4.0]);
    let plain = y.inner().to_device(&there);
    assert!(!plain.is_tracked());
}

#[test]
fn constant_functions_have_gradients_of_zero() {
    let device = Default::default();
    let x = || Tensor::<B, 2>::from_floats([[0.0, f32::INFINITY, 3.0], [f32::NAN, 1.0, 0.0]], &device);
    let zeros = |x: &Tensor<B, 2>, y: Tensor<B, 2>| {
        let gradient = x.grad(&y.sum().backward()).expect("it took part");
        assert_eq!(gradient.into_data().to_vec::<f32>(), [0.0; 6]);
    };
    let leaf = x().require_grad();
    let y = kiln_tensor::linalg::vector_norm(leaf.clone(), 0, 1);
    assert_eq!(y.to_data().to_vec::<f32>(), [2.0, 2.0]);
    zeros(&leaf, y);
    let y = leaf.clone().cdist(x(), 0.0);
    zeros(&leaf, y);
}

/// Rows that differ only in their last column, including NaN, against a plain sort.
#[test]
fn unique_dim_sorts_rows_lexicographically() {
    for device in [Device::flex(), Device::cpu()] {
        for (rows, columns, kinds) in
            [(50, 1, 4), (200, 2, 3), (200, 5, 2), (97, 8, 2), (1, 3, 2), (0, 3, 2), (4, 0, 1)]
        {
            let numbers: Vec<f32> =
                (0..rows * columns).map(|i| ((i * 7919 + i / 3) % kinds) as f32).collect();
            let mut expected: Vec<&[f32]> =
                if columns == 0 { vec![&[]; rows] } else { numbers.chunks(columns).collect() };
            expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
            expected.dedup();
            let x = AnyTensor::from_data(TensorData::new(numbers.clone(), [rows, columns]).unwrap(), &device);
            let unique = x.unique_dim(0).unwrap();
            assert_eq!(unique.values.shape()[..], [expected.len(), columns]);
            let values = unique.values.into_data().unwrap().to_vec::<f32>();
            assert_eq!(values, expected.concat());
            let inverse = unique.inverse.into_data().unwrap().to_vec::<i32>();
            for (row, place) in inverse.into_iter().enumerate().filter(|_| columns > 0) {
                assert_eq!(&numbers[row * columns..(row + 1) * columns], expected[place as usize]);
            }
        }
        let odd = TensorData::from([[f32::NAN, 2.0], [1.0, f32::NAN], [f32::NAN, 1.0], [1.0, 0.0]]);
        let unique = AnyTensor::from_data(odd, &device).unique_dim(0).unwrap();
        let inverse = unique.inverse.into_data().unwrap().to_vec::<i32>();
        assert_eq!(inverse, [3, 1, 2, 0], "NaN is greater than every number");
    }
}

/// Typed tensors use the same checks.
#[test]
fn errors_of_typed_tensors_name_the_scalar() {
    let device = Default::default();
    let x = Tensor::<Flex, 1, Int>::from_ints([1, 2], &device);
    has(&panic_of(|| x.clone().clamp_max(1i64 << 40)), &["1099511627776", "i32"]);
    has(&panic_of(|| x.clone() + (1i64 << 40)), &["1099511627776", "i32"]);
    assert_eq!(x.clone().lower_elem(1i64 << 40).into_data().to_vec::<bool>(), [true, true]);
    let y = Tensor::<Flex, 1, Float>::from_floats([1.0], &device);
    assert_eq!((y * 1e300).into_data().to_vec::<f32>(), [f32::INFINITY]);
}
