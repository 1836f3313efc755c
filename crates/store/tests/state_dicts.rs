//! State dicts that PyTorch wrote load by name, without renames, and the modules compute PyTorch's outputs.
//!
//! `fixtures/state_dicts.py` made the file.

use kiln_backends::Flex;
use kiln_nn::attention::*;
use kiln_nn::conv::*;
use kiln_nn::reparametrize::WeightNormConfig;
use kiln_nn::transformer::*;
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
    bilinear: |d: &Device| BilinearConfig::new(3, 2, 4).init::<B>(d), |m, a: 2 Float, b: 2 Float| m.forward(a, b);
    embedding_bag: |d: &Device| EmbeddingBagConfig::new(5, 4).with_mode(BagMode::Mean).init::<B>(d), |m, a: 2 Int| m.forward(a);
    instance_norm: |d: &Device| {
        InstanceNormConfig::new(3).with_affine(true).with_track_running_stats(true).init::<B>(d)
    }, |m, a: 4 Float| m.forward(a);
    prelu: |d: &Device| PReluConfig::new().with_num_parameters(3).init::<B>(d), |m, a: 3 Float| m.forward(a);
    rnn: |d: &Device| RnnConfig::new(3, 4, true).init::<B>(d), |m, a: 3 Float| m.forward(a, None).0;
    lstm: |d: &Device| {
        LstmConfig::new(3, 4, true).with_num_layers(2).with_bidirectional(true).with_projection(Some(2)).init::<B>(d)
    }, |m, a: 3 Float| m.forward(a, None).0;
    gru: |d: &Device| GruConfig::new(3, 4, true).with_num_layers(2).init::<B>(d), |m, a: 3 Float| m.forward(a, None).0;
    lstm_cell: |d: &Device| LstmCellConfig::new(3, 4, true).init::<B>(d), |m, a: 2 Float| m.forward(a, None).hidden;
    gru_cell: |d: &Device| GruCellConfig::new(3, 4, true).init::<B>(d), |m, a: 2 Float| m.forward(a, None);
    multi_head_attention: |d: &Device| MultiHeadAttentionConfig::new(4, 2).init::<B>(d),
        |m, a: 3 Float| m.forward(MhaInput::self_attn(a)).context;
    transformer_encoder_layer: |d: &Device| TransformerEncoderLayer::<B>::new(&TransformerEncoderConfig::new(4, 6, 2, 1), d),
        |m, a: 3 Float| m.forward(a);
    transformer_decoder_layer: |d: &Device| TransformerDecoderLayer::<B>::new(&TransformerDecoderConfig::new(4, 6, 2, 1), d),
        |m, a: 3 Float, b: 3 Float| m.forward(TransformerDecoderInput::new(a, b));
    transformer_encoder: |d: &Device| TransformerEncoderConfig::new(4, 6, 2, 2).with_final_norm(true).init::<B>(d),
        |m, a: 3 Float| m.forward(a);
    transformer: |d: &Device| {
        let config = TransformerConfig::new().with_d_model(4).with_n_heads(2).with_d_ff(6);
        config.with_n_encoder_layers(1).with_n_decoder_layers(1).init::<B>(d)
    }, |m, a: 3 Float, b: 3 Float| m.forward(TransformerInput::new(a, b));
    weight_norm: |d: &Device| WeightNormConfig::new().init(LinearConfig::new(3, 2).init::<B>(d)).unwrap(),
        |m, a: 2 Float| m.module().forward(a);
}
