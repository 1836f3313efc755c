//! State dicts that PyTorch wrote load by name, without renames, and the modules compute PyTorch's outputs.
//!
//! `fixtures/state_dicts.py` made the file.

use kiln_backends::Flex;
use kiln_nn::conv::*;
use kiln_nn::*;
use kiln_store::{LoadOptions, TensorFile, load_module_with};
use kiln_tensor::{Float, Int, Kind, Tensor};
use std::path::PathBuf;

type B = Flex;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state_dicts.safetensors")
}

/// A module's state dict in the file, with its inputs and its output.
struct Case {
    name: &'static str,
}

impl Case {
    fn tensor<const D: usize, K: Kind>(&self, name: &str) -> Tensor<B, D, K> {
        let file = TensorFile::open(path()).unwrap();
        let data = file.read(&format!("{}/@{name}", self.name)).unwrap();
        Tensor::from_data(data, &Default::default())
    }

    /// Loads a module strictly: every name and shape is PyTorch's.
    fn load<M: Module>(&self, module: M) -> M {
        let prefix = format!("{}/", self.name);
        let own = move |name: &str| {
            name.strip_prefix(&prefix).filter(|name| !name.starts_with('@')).map(str::to_owned)
        };
        let (module, report) = load_module_with(module, path(), &LoadOptions::new().rename(own)).unwrap();
        assert!(report.missing.is_empty() && report.cast.is_empty(), "{}: {report:?}", self.name);
        module
    }

    #[track_caller]
    fn compare<const D: usize>(&self, y: Tensor<B, D>) {
        let expected: Tensor<B, D> = self.tensor("y");
        assert_eq!(y.dims(), expected.dims(), "{}", self.name);
        let difference = (y - expected).abs().max().into_scalar::<f32>();
        assert!(difference < 2e-5, "{}: differs by {difference}", self.name);
    }
}

macro_rules! state_dicts {
    ($($name:ident: $module:expr, |$m:ident $(, $input:ident: $rank:literal $kind:ident)+| $forward:expr;)+) => {$(
        #[test]
        fn $name() {
            let case = Case { name: stringify!($name) };
            let device = Default::default();
            let build = $module;
            let $m = case.load(build(&device));
            $(let $input: Tensor<B, $rank, $kind> = case.tensor(stringify!($input));)+
            case.compare($forward);
        }
    )+};
}

type Device = <B as kiln_tensor::Backend>::Device;

state_dicts! {
    linear: |d: &Device| LinearConfig::new(3, 2).init::<B>(d), |m, a: 2 Float| m.forward(a);
    embedding: |d: &Device| EmbeddingConfig::new(5, 4).init::<B>(d), |m, a: 2 Int| m.forward(a);
    conv1d: |d: &Device| Conv1dConfig::new([2, 3], [2]).init::<B>(d), |m, a: 3 Float| m.forward(a);
    conv2d: |d: &Device| Conv2dConfig::new([2, 4], [3, 3]).with_groups(2).with_padding(PaddingConfig2d::Same).init::<B>(d),
        |m, a: 4 Float| m.forward(a);
    conv3d: |d: &Device| Conv3dConfig::new([1, 2], [2, 2, 2]).init::<B>(d), |m, a: 5 Float| m.forward(a);
    conv_transpose1d: |d: &Device| ConvTranspose1dConfig::new([2, 3], [2]).init::<B>(d), |m, a: 3 Float| m.forward(a);
    conv_transpose2d: |d: &Device| ConvTranspose2dConfig::new([2, 3], [2, 2]).with_stride([2, 2]).init::<B>(d),
        |m, a: 4 Float| m.forward(a);
    conv_transpose3d: |d: &Device| ConvTranspose3dConfig::new([1, 2], [2, 2, 2]).init::<B>(d), |m, a: 5 Float| m.forward(a);
    batch_norm: |d: &Device| BatchNormConfig::new(3).init::<B>(d), |m, a: 4 Float| m.forward(a);
    group_norm: |d: &Device| GroupNormConfig::new(2, 4).init::<B>(d), |m, a: 3 Float| m.forward(a);
    layer_norm: |d: &Device| LayerNormConfig::new(4).init::<B>(d), |m, a: 2 Float| m.forward(a);
    rms_norm: |d: &Device| RmsNormConfig::new(4).init::<B>(d), |m, a: 2 Float| m.forward(a);
    sequential: |d: &Device| {
        Sequential::<B>::new().push(LinearConfig::new(3, 4).init::<B>(d)).push(Relu::new()).push(LinearConfig::new(4, 2).init::<B>(d))
    }, |m, a: 2 Float| m.forward(a);
}
