//! The engine of GPUs through wgpu, with the features of the adapter and with those of browsers.
//!
//! The ignore lists are the cases that it does not pass, each with the reason. A listed case that passes fails the run.
//! Cases of a dtype that the device lacks are skipped without an entry.

use super::{Ignored, Subject};
use kiln_fusion::{Fusion, Mode as FusionMode};
use kiln_ir::{Engine, expanding};
use kiln_wgpu::{Api, Profile, WgpuDevice, WgpuOptions};
use std::sync::Arc;

/// The default adapter behind fusion, with all features and limits that it offers.
pub const WGPU: Subject =
    Subject { name: "fusion over wgpu", open: || open(Profile::Adapter), ignored: IGNORED };

/// The default adapter behind fusion, with the features and limits that every browser has.
pub const WEBGPU: Subject = Subject {
    name: "fusion over wgpu, as in browsers",
    open: || open(Profile::WebGpu),
    ignored: IGNORED_WEBGPU,
};

/// Cases that fail with the features of the adapter.
const IGNORED: &[Ignored] = &[];

/// Cases that fail with the features of browsers.
const IGNORED_WEBGPU: &[Ignored] = &[];

/// # Panics
/// When there is no adapter.
fn open(profile: Profile) -> Arc<dyn Engine> {
    let options = WgpuOptions::default().with_profile(profile);
    let engine = kiln_wgpu::shared_with(WgpuDevice::Default, Api::Auto, &options);
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    Arc::new(Fusion::with_mode(expanding(engine), FusionMode::On))
}
