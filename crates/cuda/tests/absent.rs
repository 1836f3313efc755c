//! Errors on a machine without a GPU.

#[test]
fn a_missing_device_is_an_error_that_says_what_is_missing() {
    // More devices than any machine has: there is none of this number with CUDA either.
    let error = kiln_cuda::open(4096).err().expect("no machine has that many devices").to_string();
    let without_driver = error.contains("libcuda.so.1") || error.contains("nvcuda.dll");
    assert!(without_driver || error.contains("no such device") || error.contains("starting CUDA"), "{error}");
    assert!(error.contains("cuda"), "{error}");
}
