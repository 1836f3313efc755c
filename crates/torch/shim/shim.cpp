// The functions of LibTorch that Kiln's engine calls, with a C interface.
//
// An op is called by its name in PyTorch's schema, with its arguments in a list: that interface has stayed the same from LibTorch 1.13 on.
// A handle is a heap-allocated `at::Tensor`. Its owner frees it by `kiln_torch_free`. No C++ exception leaves a function: one that fails
// returns -1 or null, and `kiln_torch_error` then has the reason.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#if defined(__has_include)
#if __has_include(<ATen/detail/MPSHooksInterface.h>)
#include <ATen/detail/MPSHooksInterface.h>
#define KILN_HAS_MPS 1
#endif
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(_WIN32)
#define KILN_API extern "C" __declspec(dllexport)
#else
#define KILN_API extern "C" __attribute__((visibility("default")))
#endif

// The interface between this file and `src/ffi.rs`: both change together.
static constexpr int32_t KILN_ABI = 1;

// An argument of an op. What the fields hold follows from the tag.
struct KilnArgument {
  int32_t tag;
  int32_t unused;
  int64_t integer;   // a number, a flag, or the length of a list
  double real;
  const void* pointer;  // a handle, or the start of a list
};

enum KilnTag : int32_t {
  KILN_NONE = 0,
  KILN_TENSOR = 1,
  KILN_INT = 2,
  KILN_REAL = 3,
  KILN_BOOL = 4,
  KILN_INTS = 5,
  KILN_BOOLS = 6,
  KILN_TENSORS = 7,
  KILN_TEXT = 8,
};

static thread_local std::string last_error;

static const at::Tensor& tensor_of(const void* handle) {
  return *static_cast<const at::Tensor*>(handle);
}

// PyTorch warns of interfaces that may change, which concerns no user of Kiln.
struct Silent final : c10::WarningHandler {
#if TORCH_VERSION_MAJOR < 2
  void process(const c10::SourceLocation&, const std::string&, const bool) override {}
#else
  void process(const c10::Warning&) override {}
#endif
};

#if TORCH_VERSION_MAJOR < 2
using WarningGuard = c10::Warning::WarningHandlerGuard;
#else
using WarningGuard = c10::WarningUtils::WarningHandlerGuard;
#endif

// Runs a function, and returns `failed` with the error kept if it throws.
template <typename T, typename F>
static T guarded(T failed, F&& function) noexcept {
  try {
    static Silent silent;
    WarningGuard without_warnings(&silent);
    c10::InferenceMode without_gradients;
    return function();
  } catch (const c10::Error& error) {
    last_error = error.what_without_backtrace();
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception without a message";
  }
  return failed;
}

static c10::IValue value_of(const KilnArgument& argument) {
  switch (argument.tag) {
    case KILN_NONE:
      return c10::IValue();
    case KILN_TENSOR:
      return tensor_of(argument.pointer);
    case KILN_INT:
      return argument.integer;
    case KILN_REAL:
      return argument.real;
    case KILN_BOOL:
      return argument.integer != 0;
    case KILN_INTS: {
      const auto* start = static_cast<const int64_t*>(argument.pointer);
      return std::vector<int64_t>(start, start + argument.integer);
    }
    case KILN_BOOLS: {
      const auto* start = static_cast<const uint8_t*>(argument.pointer);
      c10::List<bool> flags;
      for (int64_t i = 0; i < argument.integer; ++i) {
        flags.push_back(start[i] != 0);
      }
      return flags;
    }
    case KILN_TENSORS: {
      const auto* start = static_cast<const void* const*>(argument.pointer);
      c10::List<at::Tensor> tensors;
      for (int64_t i = 0; i < argument.integer; ++i) {
        tensors.push_back(tensor_of(start[i]));
      }
      return tensors;
    }
    case KILN_TEXT:
      return std::string(static_cast<const char*>(argument.pointer), static_cast<size_t>(argument.integer));
    default:
      throw std::runtime_error("an argument of an unknown kind");
  }
}

static void keep(const at::Tensor& tensor, void** results, int64_t room, int64_t& count) {
  if (count == room) {
    throw std::runtime_error("the op has more results than expected");
  }
  results[count] = new at::Tensor(tensor);
  ++count;
}

KILN_API int32_t kiln_torch_abi() {
  return KILN_ABI;
}

// The version of the headers, such as "1.13.1".
KILN_API const char* kiln_torch_version() {
  return TORCH_VERSION;
}

// Why the last function of this thread failed; valid until the next one fails.
KILN_API const char* kiln_torch_error() {
  return last_error.c_str();
}

// Numerics that every device shares: exact products of `f32`, sums of 16-bit products in `f32`, subnormal numbers kept.
KILN_API int32_t kiln_torch_configure() {
  return guarded(-1, [] {
    at::Context& context = at::globalContext();
    context.setAllowTF32CuBLAS(false);
    context.setAllowTF32CuDNN(false);
    context.setBenchmarkCuDNN(false);
    context.setDeterministicCuDNN(true);
    context.setFlushDenormal(false);
    return 0;
  });
}

KILN_API int32_t kiln_torch_threads() {
  return guarded(-1, [] { return static_cast<int32_t>(at::get_num_threads()); });
}

// The number of devices of a type, as `c10::DeviceType` numbers them.
KILN_API int32_t kiln_torch_devices(int32_t type) {
  return guarded(-1, [type]() -> int32_t {
    switch (static_cast<c10::DeviceType>(type)) {
      case c10::DeviceType::CPU:
        return 1;
      case c10::DeviceType::CUDA:
        return at::hasCUDA() ? static_cast<int32_t>(at::detail::getCUDAHooks().getNumGPUs()) : 0;
#ifdef KILN_HAS_MPS
      case c10::DeviceType::MPS:
        return at::hasMPS() ? 1 : 0;
#endif
      default:
        return 0;
    }
  });
}

// Waits for the work of a device.
KILN_API int32_t kiln_torch_synchronize(int32_t type, int32_t index) {
  return guarded(-1, [type, index] {
    auto kind = static_cast<c10::DeviceType>(type);
    if (kind == c10::DeviceType::CUDA) {
      at::detail::getCUDAHooks().deviceSynchronize(static_cast<c10::DeviceIndex>(index));
    }
#ifdef KILN_HAS_MPS
    if (kind == c10::DeviceType::MPS) {
      at::detail::getMPSHooks().deviceSynchronize();
    }
#endif
    return 0;
  });
}

// A tensor on a device with a copy of elements of host memory, in row-major order.
KILN_API void* kiln_torch_write(const void* bytes, size_t size, const int64_t* lengths, size_t rank, int32_t dtype,
                                int32_t device, int32_t index) {
  return guarded(static_cast<void*>(nullptr), [=]() -> void* {
    at::IntArrayRef shape(lengths, rank);
    auto options = at::TensorOptions().dtype(static_cast<c10::ScalarType>(dtype));
    at::Tensor there = at::empty(shape, options);
    if (there.nbytes() != size) {
      throw std::runtime_error("the elements do not fill the tensor");
    }
    if (size > 0) {
      std::memcpy(there.data_ptr(), bytes, size);
    }
    auto kind = static_cast<c10::DeviceType>(device);
    if (kind != c10::DeviceType::CPU) {
      there = there.to(c10::Device(kind, static_cast<c10::DeviceIndex>(index)));
    }
    return new at::Tensor(std::move(there));
  });
}

// Copies the elements to host memory, in row-major order.
KILN_API int32_t kiln_torch_read(const void* tensor, void* bytes, size_t size) {
  return guarded(-1, [=] {
    at::Tensor here = tensor_of(tensor).cpu().contiguous();
    if (here.nbytes() != size) {
      throw std::runtime_error("the tensor has " + std::to_string(here.nbytes()) + " bytes, and " +
                               std::to_string(size) + " were to be read");
    }
    if (size > 0) {
      std::memcpy(bytes, here.data_ptr(), size);
    }
    return 0;
  });
}

KILN_API int32_t kiln_torch_dtype(const void* tensor) {
  return guarded(-1, [=] { return static_cast<int32_t>(tensor_of(tensor).scalar_type()); });
}

// Writes at most `room` lengths, and returns the rank.
KILN_API int64_t kiln_torch_lengths(const void* tensor, int64_t* lengths, size_t room) {
  return guarded(static_cast<int64_t>(-1), [=] {
    at::IntArrayRef sizes = tensor_of(tensor).sizes();
    std::memcpy(lengths, sizes.data(), std::min(room, sizes.size()) * sizeof(int64_t));
    return static_cast<int64_t>(sizes.size());
  });
}

// Another handle of the same tensor.
KILN_API void* kiln_torch_share(const void* tensor) {
  return guarded(static_cast<void*>(nullptr), [=]() -> void* { return new at::Tensor(tensor_of(tensor)); });
}

KILN_API void kiln_torch_free(void* tensor) {
  guarded(0, [=] {
    delete static_cast<at::Tensor*>(tensor);
    return 0;
  });
}

// Calls an op of PyTorch's schema by `name` or `name.overload`. Arguments that are left out take their defaults. Writes at most `room`
// handles of results, and returns their number.
KILN_API int64_t kiln_torch_call(const char* op_name, const KilnArgument* arguments, size_t count, void** results,
                                 int64_t room) {
  return guarded(static_cast<int64_t>(-1), [=] {
    const char* dot = std::strchr(op_name, '.');
    std::string name = "aten::" + (dot ? std::string(op_name, dot) : std::string(op_name));
    c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), dot ? dot + 1 : "");
    const auto& parameters = op.schema().arguments();
    torch::jit::Stack stack;
    stack.reserve(parameters.size());
    for (size_t i = 0; i < count; ++i) {
      stack.push_back(value_of(arguments[i]));
    }
    for (size_t i = count; i < parameters.size(); ++i) {
      if (!parameters[i].default_value().has_value()) {
        throw std::runtime_error("the op needs the argument `" + parameters[i].name() + "`");
      }
      stack.push_back(*parameters[i].default_value());
    }
    op.callBoxed(stack);
    int64_t kept = 0;
    try {
      for (const c10::IValue& value : stack) {
        if (value.isTensor()) {
          keep(value.toTensor(), results, room, kept);
        } else if (value.isTensorList()) {
          for (const at::Tensor& tensor : value.toTensorVector()) {
            keep(tensor, results, room, kept);
          }
        } else {
          throw std::runtime_error("the op has a result that is no tensor");
        }
      }
    } catch (...) {
      for (int64_t i = 0; i < kept; ++i) {
        delete static_cast<at::Tensor*>(results[i]);
      }
      throw;
    }
    return kept;
  });
}
