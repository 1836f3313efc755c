//! Special functions against values of mpmath 1.4.1 with 40 digits.

use kiln_backends::Flex;
use kiln_tensor::{Autodiff, DType, Tensor};

type B = Flex;

/// Checks that a function is accurate to a few units in the last place in `f64` and `f32`. Near roots, the allowed
/// error includes the rounding of the argument.
#[track_caller]
fn check(name: &str, function: fn(Tensor<B, 1>) -> Tensor<B, 1>, points: &[(f64, f64)]) {
    for (dtype, bound) in [(DType::F64, 4e-15), (DType::F32, 2e-6)] {
        for &(x, wanted) in points {
            // Arguments and results out of the dtype's range are skipped.
            if dtype == DType::F32 && (x != 0.0 && x < 1e-37 || wanted.abs() > 1e38) {
                continue;
            }
            let device = Default::default();
            let argument = Tensor::<B, 1>::from_data_dtype([x], dtype, &device);
            let y = function(argument).into_data().to_vec::<f64>()[0];
            let error = (y - wanted).abs();
            assert!(error <= bound * wanted.abs().max(0.05), "{name}({x}) is {y}, not {wanted} ({dtype:?})");
        }
    }
}

#[test]
fn values_match_mpmath() {
    check(
        "ndtri",
        Tensor::ndtri,
        &[
            (1e-300, -37.0470962993612),
            (1e-30, -11.464024688443615),
            (1e-10, -6.361340902404057),
            (0.001, -3.0902323061678136),
            (0.2, -0.8416212335729142),
            (0.5, 0.0),
            (0.7, 0.5244005127080407),
            (0.999, 3.090232306167813),
        ],
    );
    check(
        "bessel_j0",
        Tensor::bessel_j0,
        &[
            (0.0, 1.0),
            (1e-06, 0.99999999999975),
            (0.3, 0.9776262465382961),
            (1.0, 0.7651976865579666),
            (2.0, 0.22389077914123567),
            (2.4, 0.002507683297243859),
            (4.9, -0.2097383275853262),
            (5.1, -0.14433474706050065),
            (9.5, -0.19392874768742235),
            (25.0, 0.09626678327595811),
            (100.5, 0.054436573814413594),
        ],
    );
    check(
        "bessel_j1",
        Tensor::bessel_j1,
        &[
            (0.0, 0.0),
            (1e-06, 4.999999999999375e-07),
            (0.3, 0.148318816273104),
            (1.0, 0.4400505857449335),
            (2.0, 0.5767248077568734),
            (2.4, 0.520185268181931),
            (4.9, -0.31469467101519066),
            (5.1, -0.3370972020182318),
            (9.5, 0.16126443075752986),
            (25.0, -0.1253502495802899),
            (100.5, -0.05779112399693202),
        ],
    );
    check(
        "bessel_y0",
        Tensor::bessel_y0,
        &[
            (1e-06, -8.869031481659444),
            (0.1, -1.5342386513503667),
            (0.9, 0.005628306635205559),
            (1.9, 0.4968199712838202),
            (2.1, 0.5182937375137607),
            (5.1, -0.3216024491248594),
            (9.5, 0.17121062620272384),
            (25.0, -0.12724943226800614),
            (80.0, -0.05562033908977),
        ],
    );
    check(
        "bessel_y1",
        Tensor::bessel_y1,
        &[
            (1e-06, -636619.772372175),
            (0.1, -6.4589510947020266),
            (0.9, -0.8731265824563288),
            (1.9, -0.1644057723315953),
            (2.1, -0.05167861213042353),
            (5.1, 0.11373644197749973),
            (9.5, 0.20317989938720768),
            (25.0, -0.09882996478323741),
            (80.0, 0.06939591378458805),
        ],
    );
    check(
        "modified_bessel_k0",
        Tensor::modified_bessel_k0,
        &[
            (1e-06, 13.93144207362642),
            (0.1, 2.4270690247020164),
            (0.9, 0.4867303081629005),
            (1.9, 0.1288459792760475),
            (2.1, 0.10078374088996693),
            (5.1, 0.0033083102180174657),
            (9.5, 3.0057884957934336e-05),
            (25.0, 3.4641615622131143e-12),
            (80.0, 2.5251198425054717e-36),
        ],
    );
    check(
        "modified_bessel_k1",
        Tensor::modified_bessel_k1,
        &[
            (1e-06, 999999.9999927843),
            (0.1, 9.853844780870606),
            (0.9, 0.7165335787760191),
            (1.9, 0.15966015303266762),
            (2.1, 0.12274641153350789),
            (5.1, 0.0036191814623178),
            (9.5, 3.160203411042674e-05),
            (25.0, 3.5327780731999337e-12),
            (80.0, 2.54085312752117e-36),
        ],
    );
    check(
        "scaled_modified_bessel_k0",
        Tensor::scaled_modified_bessel_k0,
        &[
            (1e-06, 13.931456005075459),
            (0.1, 2.6823261022628944),
            (0.9, 1.1971633802518509),
            (1.9, 0.8614506167517558),
            (2.1, 0.8230171525316621),
            (5.1, 0.5426353518989783),
            (9.5, 0.40156513211540534),
            (25.0, 0.2494366045755967),
            (80.0, 0.13990735522662032),
            (10000.0, 0.012532984717699286),
        ],
    );
    check(
        "scaled_modified_bessel_k1",
        Tensor::scaled_modified_bessel_k1,
        &[
            (1e-06, 1000000.9999932843),
            (0.1, 10.890182683049696),
            (0.9, 1.7623882196059197),
            (1.9, 1.0674709298145701),
            (2.1, 1.0023680527405792),
            (5.1, 0.5936250463138127),
            (9.5, 0.42219454297695785),
            (25.0, 0.25437732954208525),
            (80.0, 0.14077907713800053),
            (10000.0, 0.012533611351270506),
        ],
    );
    check(
        "spherical_bessel_j0",
        Tensor::spherical_bessel_j0,
        &[
            (1e-06, 0.9999999999998334),
            (0.3, 0.9850673555377986),
            (2.0, 0.45464871341284085),
            (9.5, -0.007910644259137822),
        ],
    );
}

#[test]
fn special_functions_have_their_limits() {
    let device = Default::default();
    let of = |function: fn(Tensor<B, 1>) -> Tensor<B, 1>, x: [f32; 4]| {
        function(Tensor::from_floats(x, &device)).into_data().to_vec::<f32>()
    };
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let same = |a: &[f32], b: [f32; 4]| a.iter().zip(b).all(|(a, b)| *a == b || a.is_nan() && b.is_nan());
    assert!(same(&of(Tensor::ndtri, [0.0, 1.0, -0.1, 1.1]), [-inf, inf, nan, nan]));
    assert!(same(&of(Tensor::bessel_j0, [inf, -inf, nan, 0.0]), [0.0, 0.0, nan, 1.0]));
    assert!(same(&of(Tensor::bessel_j1, [inf, -inf, nan, 0.0]), [0.0, 0.0, nan, 0.0]));
    assert!(same(&of(Tensor::bessel_y0, [inf, 0.0, -1.0, nan]), [0.0, -inf, nan, nan]));
    assert!(same(&of(Tensor::bessel_y1, [inf, 0.0, -1.0, nan]), [0.0, -inf, nan, nan]));
    assert!(same(&of(Tensor::modified_bessel_k0, [inf, 0.0, -1.0, nan]), [0.0, inf, nan, nan]));
    assert!(same(&of(Tensor::scaled_modified_bessel_k1, [inf, 0.0, -1.0, nan]), [0.0, inf, nan, nan]));
    assert!(same(&of(Tensor::spherical_bessel_j0, [inf, 0.0, -inf, nan]), [0.0, 1.0, 0.0, nan]));
    // An odd and an even function.
    assert_eq!(of(Tensor::bessel_j1, [-2.0; 4])[0], -of(Tensor::bessel_j1, [2.0; 4])[0]);
    assert_eq!(of(Tensor::bessel_j0, [-2.0; 4])[0], of(Tensor::bessel_j0, [2.0; 4])[0]);
}

#[test]
fn zeta_matches_mpmath() {
    let device = Default::default();
    for (s, q, wanted) in [
        (1.0000001, 1.0, 10000000.571377),
        (1.5, 0.3, 8.237761671459724),
        (2.0, 1.0, 1.6449340668482264),
        (3.0, 2.5, 0.1181020258208637),
        (2.5, 100.0, 0.0006716874994531716),
        (30.0, 1.5, 5.215096203815732e-06),
        (50.0, 10.0, 1.0086304954352791e-50),
        (120.0, 1.0, 1.0),
    ] {
        for (dtype, bound) in [(DType::F64, 1e-13), (DType::F32, 1e-4)] {
            if dtype == DType::F32 && (wanted < 1e-37 || s < 1.001) {
                continue;
            }
            let of = |x: f64| Tensor::<B, 1>::from_data_dtype([x], dtype, &device);
            let y = of(s).zeta(of(q)).into_data().to_vec::<f64>()[0];
            assert!((y / wanted - 1.0).abs() < bound, "ζ({s}, {q}) is {y}, not {wanted} ({dtype:?})");
        }
    }
    let of = |x: [f32; 4]| Tensor::<B, 1>::from_floats(x, &device);
    let y = of([1.0, 0.5, 2.0, 2.0]).zeta(of([1.0, 1.0, 0.0, -2.0])).into_data().to_vec::<f32>();
    assert!(
        y[0] == f32::INFINITY && y[1].is_nan() && y[2] == f32::INFINITY && y[3] == f32::INFINITY,
        "{y:?}"
    );
}

#[test]
fn the_gradient_of_zeta_matches_mpmath() {
    let device = Default::default();
    for (s, q, wanted) in [
        (1.5, 0.3, 3.292037761731204),
        (2.0, 1.0, -0.9375482543158438),
        (3.0, 2.5, -0.14630450848765802),
        (2.5, 100.0, -0.003537671358390219),
    ] {
        let of = |x: f64| Tensor::<Autodiff<B>, 1>::from_data_dtype([x], DType::F64, &device).require_grad();
        let (order, place) = (of(s), of(q));
        let gradients = order.clone().zeta(place).sum().backward();
        let slope = order.grad(&gradients).unwrap().into_data().to_vec::<f64>()[0];
        assert!((slope / wanted - 1.0).abs() < 1e-11, "∂ζ/∂s({s}, {q}) is {slope}, not {wanted}");
    }
}

#[test]
fn incomplete_gamma_functions_match_mpmath() {
    let device = Default::default();
    for (a, x, lower, upper) in [
        (0.01, 0.001, 0.938570652526129, 0.061429347473871014),
        (0.5, 0.3, 0.5614219739190002, 0.4385780260809999),
        (1.0, 1.0, 0.6321205588285577, 0.36787944117144233),
        (1.0, 30.0, 0.9999999999999064, 9.357622968840175e-14),
        (4.0, 3.0, 0.35276811121776874, 0.6472318887822313),
        (15.0, 10.0, 0.08345847293466283, 0.9165415270653372),
        (19.9, 22.0, 0.701708732498917, 0.29829126750108304),
        (20.0, 18.0, 0.34908387201929825, 0.6509161279807018),
        (21.0, 40.0, 0.9996316994432145, 0.00036830055678549223),
        (100.0, 80.0, 0.017108313035133115, 0.9828916869648668),
        (100.0, 130.0, 0.9972495916326934, 0.002750408367306526),
        (1000.0, 1010.0, 0.6276789447369947, 0.3723210552630053),
        (30000.0, 29900.0, 0.2822846159646298, 0.7177153840353703),
    ] {
        for (dtype, bound) in [(DType::F64, 2e-12), (DType::F32, 4e-5)] {
            let of = |x: f64| Tensor::<B, 1>::from_data_dtype([x], dtype, &device);
            let got =
                [of(a).gammainc(of(x)), of(a).gammaincc(of(x))].map(|y| y.into_data().to_vec::<f64>()[0]);
            for (y, wanted) in got.into_iter().zip([lower, upper]) {
                // The smaller of both is as accurate as the greater if it is computed directly, and not as a difference
                // from 1.
                assert!(
                    (y - wanted).abs() < bound * wanted.max(1e-3),
                    "({a}, {x}): {y}, not {wanted} ({dtype:?})"
                );
            }
        }
    }
    let of = |x: [f32; 6]| Tensor::<B, 1>::from_floats(x, &device);
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let (a, x) = (of([0.0, 0.0, 2.0, 2.0, inf, -1.0]), of([0.0, 1.0, 0.0, inf, 1.0, 1.0]));
    let y = a.gammainc(x).into_data().to_vec::<f32>();
    let wanted = [nan, 1.0, 0.0, 1.0, 0.0, nan];
    assert!(y.iter().zip(wanted).all(|(y, w)| *y == w || y.is_nan() && w.is_nan()), "{y:?}");
}

#[test]
fn the_gradient_of_gammainc_by_its_shape_matches_mpmath() {
    let device = Default::default();
    for (a, x, wanted) in [
        (0.5, 0.3, -0.7705703513753519),
        (1.0, 5.0, -0.015881851500723458),
        (4.0, 3.0, -0.20153044213558716),
        (15.0, 22.0, -0.024230206939012754),
        (25.0, 20.0, -0.0500794686563137),
        (100.0, 110.0, -0.023808656854890385),
    ] {
        let of = |x: f64| Tensor::<Autodiff<B>, 1>::from_data_dtype([x], DType::F64, &device).require_grad();
        let (shape, place) = (of(a), of(x));
        let gradients = shape.clone().gammainc(place).sum().backward();
        let slope = shape.grad(&gradients).unwrap().into_data().to_vec::<f64>()[0];
        assert!((slope / wanted - 1.0).abs() < 1e-9, "∂P/∂a({a}, {x}) is {slope}, not {wanted}");
    }
}
