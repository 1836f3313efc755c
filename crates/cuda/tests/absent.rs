//! Errors on a machine without a GPU.

#[test]
fn a_missing_device_error_names_the_missing_part() {
    // No machine has a device with this number, with or without CUDA.
    let error = kiln_cuda::open(4096).err().expect("no machine has that many devices").to_string();
    let without_driver = error.contains("libcuda.so.1") || error.contains("nvcuda.dll");
    assert!(without_driver || error.contains("no such device") || error.contains("starting CUDA"), "{error}");
    assert!(error.contains("cuda"), "{error}");
}
