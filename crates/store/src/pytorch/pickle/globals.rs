//! The globals that a pickle may name.

use crate::pytorch::element::{ELEMENTS, Element};

/// The meaning of a global.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::pytorch) enum Kind {
    /// A class whose instances are dicts.
    Dict,
    /// A class whose instances are lists that are filled later.
    List,
    /// A class or function that makes a list of its first argument.
    Sequence,
    /// `_rebuild_tensor` and `_rebuild_tensor_v2`: storage, offset, shape, strides; metadata as argument 6.
    RebuildTensor,
    /// `_rebuild_tensor_v3`: like `RebuildTensor`, but the dtype as argument 6 and the metadata as argument 7.
    RebuildTensorV3,
    /// `_rebuild_from_type` and `_rebuild_from_type_v2`: function, class, arguments, state.
    RebuildFromType,
    /// A call whose first argument is the tensor.
    Wrapper,
    /// A call that casts a tensor: tensor, dtype.
    Cast,
    /// A call that makes a tensor of another layout, which is not supported: the name of its dtype.
    Unsupported(&'static str),
    /// A class of tensors, whose state is storage, offset, shape, strides.
    Tensor,
    /// A class of storages: its elements.
    Storage(&'static Element),
    /// A storage of bytes; the tensor has the dtype.
    UntypedStorage,
    /// A dtype of PyTorch.
    DType(&'static Element),
    /// `numpy.core.multiarray._reconstruct`: an array, whose state has shape, dtype and bytes.
    NumpyArray,
    /// `numpy.core.numeric._frombuffer`: an array of bytes, dtype, shape, order.
    NumpyBuffer,
    /// `numpy.core.multiarray.scalar`: dtype, bytes.
    NumpyScalar,
    /// `numpy.dtype`: name; the state has the byte order.
    NumpyDType,
    /// `_codecs.encode`: bytes as text of that many code points.
    Encode,
    /// `copyreg._reconstructor`: class, base, state.
    Reconstructor,
    /// A class of plain data, whose state has the attributes.
    Class,
    /// A function or constant that only describes.
    Constant,
}

impl Kind {
    /// Returns the elements of a class of storages: `Some(None)` if they are untyped; `None` for other globals.
    pub(in crate::pytorch) fn storage_element(self) -> Option<Option<&'static Element>> {
        if let Kind::Storage(element) = self {
            return Some(Some(element));
        }
        (self == Kind::UntypedStorage).then_some(None)
    }
}

/// Returns the meaning of a global; `None` if it is not allowed.
pub(super) fn resolve(module: &str, name: &str) -> Option<Kind> {
    if module.is_empty() || name.is_empty() {
        return None;
    }
    match module {
        "collections" => collections(name),
        "builtins" | "__builtin__" => builtins(name),
        "_codecs" => (name == "encode").then_some(Kind::Encode),
        "copyreg" | "copy_reg" => (name == "_reconstructor").then_some(Kind::Reconstructor),
        "numpy" => numpy(name),
        "numpy.core.multiarray" | "numpy._core.multiarray" => match name {
            "_reconstruct" => Some(Kind::NumpyArray),
            "scalar" => Some(Kind::NumpyScalar),
            _ => None,
        },
        "numpy.core.numeric" | "numpy._core.numeric" => (name == "_frombuffer").then_some(Kind::NumpyBuffer),
        "numpy.dtypes" => name.ends_with("DType").then_some(Kind::Constant),
        "torch._utils" | "torch.tensor" => rebuild(name),
        "torch._tensor" => match name {
            "_rebuild_from_type" | "_rebuild_from_type_v2" => Some(Kind::RebuildFromType),
            "Tensor" => Some(Kind::Tensor),
            _ => None,
        },
        "torch.nn.parameter" | "torch.autograd.variable" => match name {
            "Parameter" | "Buffer" | "Variable" => Some(Kind::Wrapper),
            _ => None,
        },
        "torch.serialization" => (name == "_get_layout").then_some(Kind::Constant),
        "torch.jit._pickle" => script(name),
        "torch" | "torch.cuda" | "torch.storage" => torch(name),
        _ => class(module, name),
    }
}

fn collections(name: &str) -> Option<Kind> {
    match name {
        "OrderedDict" | "defaultdict" | "Counter" => Some(Kind::Dict),
        "deque" => Some(Kind::List),
        _ => None,
    }
}

fn builtins(name: &str) -> Option<Kind> {
    match name {
        "set" | "frozenset" | "list" | "tuple" => Some(Kind::Sequence),
        "dict" => Some(Kind::Dict),
        "bytearray" | "bytes" => Some(Kind::Encode),
        "complex" | "slice" | "range" | "xrange" | "object" | "int" | "long" | "float" | "bool" | "str"
        | "unicode" => Some(Kind::Constant),
        _ => None,
    }
}

fn numpy(name: &str) -> Option<Kind> {
    match name {
        "dtype" => Some(Kind::NumpyDType),
        "ndarray" | "bool_" | "float16" | "float32" | "float64" | "int8" | "int16" | "int32" | "int64"
        | "uint8" | "uint16" | "uint32" | "uint64" => Some(Kind::Constant),
        _ => None,
    }
}

fn rebuild(name: &str) -> Option<Kind> {
    Some(match name {
        "_rebuild_tensor" | "_rebuild_tensor_v2" => Kind::RebuildTensor,
        "_rebuild_tensor_v3" => Kind::RebuildTensorV3,
        "_rebuild_parameter" | "_rebuild_parameter_with_state" => Kind::Wrapper,
        "_rebuild_device_tensor_from_cpu_tensor"
        | "_rebuild_device_tensor_from_numpy"
        | "_rebuild_xla_tensor" => Kind::Cast,
        "_rebuild_qtensor" => Kind::Unsupported("quantised"),
        "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor" => Kind::Unsupported("sparse"),
        "_rebuild_nested_tensor" => Kind::Unsupported("nested"),
        "_rebuild_meta_tensor_no_storage" => Kind::Unsupported("meta"),
        "_rebuild_wrapper_subclass" => Kind::Unsupported("wrapper subclass"),
        _ => return None,
    })
}

/// The functions that TorchScript archives use for lists and tensors.
fn script(name: &str) -> Option<Kind> {
    match name {
        "build_intlist" | "build_doublelist" | "build_boollist" | "build_tensorlist" => Some(Kind::Sequence),
        // `restore_type_tag(value, type)`.
        "restore_type_tag" => Some(Kind::Wrapper),
        _ => None,
    }
}

fn torch(name: &str) -> Option<Kind> {
    if let Some(element) = ELEMENTS.iter().find(|element| element.torch == name) {
        return Some(Kind::DType(element));
    }
    if let Some(storage) = name.strip_suffix("Storage") {
        if storage == "Untyped" {
            return Some(Kind::UntypedStorage);
        }
        let mut elements = ELEMENTS.iter();
        return elements.find(|element| element.storage == Some(storage)).map(Kind::Storage);
    }
    match name {
        "Size" => Some(Kind::Sequence),
        "Tensor" | "DoubleTensor" | "FloatTensor" | "HalfTensor" | "BFloat16Tensor" | "LongTensor"
        | "IntTensor" | "ShortTensor" | "CharTensor" | "ByteTensor" | "BoolTensor" => Some(Kind::Tensor),
        "device" | "Generator" | "strided" | "contiguous_format" | "channels_last" | "preserve_format" => {
            Some(Kind::Constant)
        }
        _ => name.starts_with("per_").then_some(Kind::Constant),
    }
}

/// Classes of plain data that checkpoints contain besides tensors. Their attributes are read, no code.
fn class(module: &str, name: &str) -> Option<Kind> {
    let kind = match (module, name) {
        ("argparse", "Namespace") | ("types", "SimpleNamespace") => Kind::Class,
        ("easydict", "EasyDict") => Kind::Dict,
        (
            "pathlib" | "pathlib._local",
            "Path" | "PosixPath" | "WindowsPath" | "PurePosixPath" | "PureWindowsPath",
        ) => Kind::Class,
        ("datetime", "date" | "datetime" | "time" | "timedelta" | "timezone") => Kind::Class,
        (_, "AttributeDict") if is_lightning(module) => Kind::Dict,
        // Older checkpoints of Lightning have classes of callbacks as keys.
        _ if is_lightning(module) && module.contains(".callbacks.") => Kind::Constant,
        // Modules of PyTorch, and the classes of TorchScript archives, which are names only.
        _ if module.starts_with("torch.nn.modules.") || module == "torch.nn.backends.thnn" => Kind::Class,
        _ if module == "__torch__" || module.starts_with("__torch__.") => Kind::Class,
        _ => return None,
    };
    Some(kind)
}

fn is_lightning(module: &str) -> bool {
    ["pytorch_lightning.", "lightning.pytorch.", "lightning.fabric.", "lightning_fabric."]
        .iter()
        .any(|start| module.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_globals_are_unknown() {
        for (module, name) in [
            ("os", "system"),
            ("posix", "system"),
            ("nt", "system"),
            ("subprocess", "Popen"),
            ("builtins", "eval"),
            ("builtins", "exec"),
            ("builtins", "getattr"),
            ("__builtin__", "apply"),
            ("builtins", "__import__"),
            ("operator", "attrgetter"),
            ("runpy", "_run_code"),
            ("torch", "load"),
            ("torch.hub", "load"),
            ("torch.storage", "_load_from_bytes"),
            ("torch.utils.collect_env", "run"),
            ("numpy.testing._private.utils", "runstring"),
            ("torch._utils", "os.system"),
            ("collections", ""),
            ("", "OrderedDict"),
        ] {
            assert_eq!(resolve(module, name), None, "{module}.{name}");
        }
    }

    #[test]
    fn globals_of_checkpoints_are_known() {
        assert_eq!(resolve("collections", "OrderedDict"), Some(Kind::Dict));
        assert_eq!(resolve("torch._utils", "_rebuild_tensor_v2"), Some(Kind::RebuildTensor));
        for (name, bytes) in [("FloatStorage", 4), ("BFloat16Storage", 2), ("ComplexDoubleStorage", 16)] {
            let Some(Kind::Storage(element)) = resolve("torch", name) else { panic!("{name}") };
            assert_eq!(element.bytes, bytes);
        }
        let Some(Kind::DType(element)) = resolve("torch", "float8_e4m3fn") else { panic!("no dtype") };
        assert_eq!((element.name, element.dtype, element.bytes), ("F8_E4M3", None, 1));
    }
}
