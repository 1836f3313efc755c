//! The kernels of random programs compile for a GPU, in batches and alone. Needs the compiler, but no GPU:
//! `pip install nvidia-cuda-nvrtc`.
//!
//! `cargo test -p kiln-fuzz --features cuda --test fuzz kernels -- --ignored` runs it.

#[cfg(not(feature = "cuda"))]
#[test]
#[ignore = "needs NVRTC, and the feature `cuda`"]
fn kernels_compile() {
    panic!("built without the feature `cuda`");
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs NVRTC"]
fn kernels_compile() {
    use kiln_fuzz::campaign::{Options, run};
    use kiln_fuzz::check::Subjects;
    for (ahead, first) in [(8, 0), (0, 16)] {
        let options = Options { programs: 16, first, ahead, ..Options::default() };
        let report = run(&options, || Subjects::dry().unwrap());
        assert!(report.is_good(), "{report}");
    }
}
