//! Globs of the prelude, of `nn`, `tensor` and the root beside each other: every name that they share means one item.

/// The prelude beside `nn`, as in most programs.
mod prelude_and_layers {
    use kiln::nn::*;
    use kiln::prelude::*;

    #[derive(Module, Clone, Debug)]
    struct Net<B: Backend> {
        linear: Linear<B>,
        relu: activation::Relu,
    }

    #[derive(Config, Debug)]
    struct NetConfig {
        width: usize,
    }

    #[test]
    fn functions_and_layers_of_a_family_are_in_one_module() {
        let device = Default::default();
        let config = NetConfig::new(3);
        let net = Net::<Flex> {
            linear: LinearConfig::new(2, config.width).init(&device),
            relu: activation::Relu::new(),
        };
        let x = net.linear.forward(Tensor::ones([4, 2], &device));
        let hidden = activation::relu(x.clone());
        assert_eq!(hidden.to_data(), net.relu.forward(x).to_data());
        let classes = Tensor::<Flex, 1, Int>::from_data([0, 1, 2, 0], &device);
        let function = loss::cross_entropy(hidden.clone(), classes.clone(), &loss::ClassOptions::default());
        let layer = loss::CrossEntropyLossConfig::new().init(&device).forward(hidden.clone(), classes);
        assert_eq!(function.to_data(), layer.to_data());
        let zero = loss::MseLoss::new().forward(hidden.clone(), hidden, loss::Reduction::Mean);
        assert_eq!(zero.into_scalar::<f32>(), 0.0);
    }
}

/// Everything at once, with the functions of modules.
mod root_tensor_and_layers {
    use kiln::nn::*;
    use kiln::prelude::*;
    use kiln::tensor::*;
    use kiln::*;

    #[test]
    fn shared_names_of_all_globs_are_one_item() {
        let device = Default::default();
        let x = tensor::Tensor::<Flex, 2>::ones([2, 2], &device);
        let linear = module::linear(x.clone(), x.clone(), None);
        assert_eq!(activation::relu(linear.clone()).to_data(), linear.to_data());
        let zero = loss::mse(x.clone(), x, loss::Reduction::Sum);
        assert_eq!(zero.into_scalar::<f32>(), 0.0);
        let _path: fn() -> module::Path = module::Path::new;
        // Of the module `tensor` and of the root alone.
        assert_eq!(cast::ToElement::to_f64(&2), 2.0);
        assert!(lr_scheduler::Cosine::new(0.1, 0.0, 10).is_ok());
    }

    /// A configuration in a scope with all globs: its derive names no item of the scope.
    #[derive(config::Config, Debug)]
    struct Width {
        width: usize,
    }

    #[test]
    fn derives_work_beside_the_globs() {
        assert_eq!(Width::new(3).width, 3);
    }
}
