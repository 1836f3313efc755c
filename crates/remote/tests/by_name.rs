//! `Device::open("remote", n)`: the servers at the addresses of `KILN_REMOTE`.

use kiln_backends::{Cpu, Device, Dyn};
use kiln_remote::server::{Server, ServerOptions};
use kiln_tensor::Tensor;
use std::process::Command;

/// The variable is read by a process of its own: that of this process is shared by all tests.
#[test]
fn devices_open_by_name() {
    let server = Server::bind::<Cpu>(&Default::default(), ServerOptions::new()).unwrap();
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "by_name::opened_by_name", "--ignored"]);
    let output = test.env("KILN_REMOTE", format!("{}, ws://127.0.0.1:1", server.url())).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "needs a server in KILN_REMOTE: `devices_open_by_name` runs it"]
fn opened_by_name() {
    let device = Device::open("remote", 0).unwrap();
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &device);
    assert_eq!((x.clone() * 2).into_data().to_vec::<f32>(), [2.0, 4.0]);
    // Another handle to the same session.
    let same = Tensor::<Dyn, 1>::from_floats([3.0, 4.0], &Device::open("remote", 0).unwrap());
    assert_eq!((x + same).into_data().to_vec::<f32>(), [4.0, 6.0]);
    assert!(device.memory().is_some());
    for (index, words) in [(1, "ws://127.0.0.1:1"), (2, "KILN_REMOTE")] {
        let error = Device::open("remote", index).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
