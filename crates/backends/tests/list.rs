//! The list of devices: each entry opens, and each missing kind has a reason.

use kiln_backends::{Device, Dyn};
use kiln_ir::Engine;
use kiln_tensor::{Error, Result, Tensor};
use std::sync::Arc;

fn kind(name: &str) -> kiln_backends::DeviceKind {
    Device::list().into_iter().find(|kind| kind.name == name).unwrap()
}

#[test]
fn every_listed_device_opens_and_computes() {
    let found: Vec<_> = Device::list().into_iter().filter_map(|kind| kind.devices.ok()).flatten().collect();
    assert!(found.iter().any(|device| device.kind == "flex"), "{found:?}");
    for info in found {
        let device = info.open().unwrap();
        let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &device);
        assert_eq!((x * 2).into_data().to_vec::<f32>(), [2.0, 4.0], "{info}");
    }
}

#[test]
fn every_missing_kind_has_the_error_of_opening_it() {
    for kind in Device::list() {
        if let Err(error) = kind.devices {
            let opened = Device::open(&kind.name, 0).unwrap_err();
            assert_eq!(error.kind(), opened.kind(), "{}: {error} and {opened}", kind.name);
        }
    }
}

#[test]
fn a_kind_of_another_build_names_its_feature() {
    let error = match kind("candle-metal").devices {
        Err(error) => error.to_string(),
        Ok(devices) => return assert!(!devices.is_empty()),
    };
    assert!(error.contains("feature `candle-metal`"), "{error}");
    assert!(kind("candle-metal").to_string().starts_with("candle-metal"));
}

#[test]
fn registered_kinds_are_listed_with_their_first_device() {
    fn open(_: usize) -> Result<Arc<dyn Engine>> {
        Ok(Arc::new(kiln_reference::Reference::new()))
    }
    fn refuse(_: usize) -> Result<Arc<dyn Engine>> {
        Err(Error::device("bank", "the vault is closed"))
    }
    Device::register("abacus", open);
    Device::register("bank", refuse);
    assert_eq!(kind("abacus").devices.unwrap().len(), 1);
    let text = kind("bank").to_string();
    assert!(text.contains("bank") && text.contains("the vault is closed"), "{text}");
    assert!(!Device::kinds().contains(&"candle-metal".into()) || cfg!(feature = "candle-metal"));
}
