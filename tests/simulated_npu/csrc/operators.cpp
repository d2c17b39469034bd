// Operators of the simulated NPU: memory, views and copies of its own, and every other one on a processor, in place.
//
// The fallback hands a processor's kernel tensors that lie on the device's memory, after it has checked that all of
// them are on one device: what a real NPU refuses must not work here.

#include "memory.h"
#include "npu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <algorithm>
#include <set>

namespace simulated_npu {
namespace {

const c10::DispatchKeySet kNpuKey(c10::DispatchKey::PrivateUse1);

int index_of(const std::optional<c10::Device>& device) {
  const int index = device.has_value() && device->has_index() ? device->index() : current_device();
  check_index(index);
  return index;
}

c10::DeviceGuard guard_of(int index) {
  return c10::DeviceGuard(c10::Device(kNpu, static_cast<c10::DeviceIndex>(index)));
}

at::ScalarType type_of(const std::optional<at::ScalarType>& dtype) {
  return dtype.value_or(c10::typeMetaToScalarType(c10::get_default_dtype()));
}

at::Tensor empty(
    at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pin.value_or(false), "only tensors of the host can be pinned");
  const auto guard = guard_of(index_of(device));
  return at::detail::empty_generic(size, device_allocator(), kNpuKey, type_of(dtype), format);
}

at::Tensor empty_strided(
    at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "only tensors of the host can be pinned");
  const auto guard = guard_of(index_of(device));
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kNpuKey, type_of(dtype));
}

void release_alias(void* context) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context));
}

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.is_privateuseone() ? host_alias(tensor) : tensor;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool /*non_blocking*/) {
  on_host(destination).copy_(on_host(self));
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  destination.resize_(self.sizes());
  return copy_from(self, destination, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  return at::_local_scalar_dense(host_alias(self));
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* const tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(size);
  if (format.has_value() && *format != at::MemoryFormat::Preserve) {
    tensor->empty_tensor_restride(*format);
  }
  const auto bytes = at::detail::computeStorageNbytesContiguous(
      size, self.dtype().itemsize(), static_cast<size_t>(tensor->storage_offset()));
  auto* const storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  if (tensor->numel() > 0 && bytes > storage->nbytes()) {
    resize_storage(storage, bytes);
  }
  return self;
}

at::Tensor& set_storage_(
    at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(), "a tensor of ", self.device(), " cannot take a storage of ", source.device());
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

at::Tensor& set_whole_storage_(at::Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}

at::Tensor& set_tensor_(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}

at::Tensor& set_nothing_(at::Tensor& self) {
  const auto guard = guard_of(self.device().index());
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, device_allocator()->allocate(0), device_allocator(), true);
  return at::native::set_storage_cpu_(self, std::move(storage), 0, {0}, {});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  TORCH_CHECK(stream.device() == self.device(), "a tensor of ", self.device(), " cannot be recorded on a stream of ", stream.device());
}

// A parameter on the host may become one on the device in place, as Module.to() and FSDP do.
bool has_compatible_shallow_copy_type(const at::Tensor& /*self*/, const at::Tensor& /*from*/) {
  return true;
}

// Operators that take indices from the host as well as from the device, on every accelerator.
bool takes_host_indices(const std::string& name) {
  static const std::set<std::string> names{"aten::index", "aten::_index_put_impl_", "aten::index_put", "aten::index_put_"};
  return names.count(name) > 0;
}

// Kernels that draw from the processor's own generator, as they are given none.
bool draws_without_generator(const std::string& name) {
  static const std::set<std::string> names{
      "aten::native_dropout", "aten::_scaled_dot_product_attention_math", "aten::rrelu_with_noise"};
  return names.count(name) > 0;
}

class BorrowedRandomState {
 public:
  explicit BorrowedRandomState(int index) : device_(host_generator(std::nullopt, index)) { exchange(); }
  ~BorrowedRandomState() { exchange(); }
  BorrowedRandomState(const BorrowedRandomState&) = delete;
  BorrowedRandomState& operator=(const BorrowedRandomState&) = delete;

 private:
  void exchange() {
    auto host = at::detail::getDefaultCPUGenerator();
    auto* const first = host.unsafeGetGeneratorImpl();
    auto* const second = device_.unsafeGetGeneratorImpl();
    const auto of_first = first->get_state();
    const auto of_second = second->get_state();
    first->set_state(*of_second);
    second->set_state(*of_first);
  }
  at::Generator device_;
};

// One call of an operator: its arguments moved to the host's view of them, and its results back.
class HostCall {
 public:
  HostCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), schema_(op.schema()), stack_(stack), first_(stack.size() - schema_.arguments().size()),
        given_(stack.begin() + static_cast<std::ptrdiff_t>(first_), stack.end()) {}

  void run() {
    find_device();
    for (size_t position = 0; position < given_.size(); ++position) {
      stack_[first_ + position] = converted(given_[position], schema_.arguments()[position]);
    }
    const auto guard = guard_of(index_);
    if (draws_without_generator(schema_.name())) {
      const BorrowedRandomState borrowed(index_);
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    } else {
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    }
    adopt_grown();
    const size_t start = stack_.size() - schema_.returns().size();
    for (size_t position = 0; position < schema_.returns().size(); ++position) {
      stack_[start + position] = returned(stack_[start + position], schema_.returns()[position]);
    }
  }

 private:
  void find_device() {
    for (const auto& value : given_) {
      visit(value, [this](const at::Tensor& tensor) {
        if (tensor.is_privateuseone()) {
          meet(tensor.device());
        }
      });
      if (value.isDevice() && value.toDevice().type() == kNpu) {
        meet(c10::Device(kNpu, static_cast<c10::DeviceIndex>(index_of(value.toDevice()))));
      }
    }
    if (index_ < 0) {
      index_ = index_of(std::nullopt);
    }
    const bool any_host = takes_host_indices(schema_.name());
    for (const auto& value : given_) {
      visit(value, [this, any_host](const at::Tensor& tensor) {
        if (!tensor.is_privateuseone() && tensor.dim() > 0 && !(any_host && tensor.is_cpu())) {
          refuse(tensor.device());
        }
      });
    }
  }

  void meet(c10::Device device) {
    if (index_ >= 0 && index_ != device.index()) {
      refuse(device);
    }
    index_ = device.index();
  }

  void refuse(c10::Device other) {
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but found at least two devices, npu:", index_, " and ",
        other, "! (when checking the arguments of ", schema_.name(), ")");
  }

  template <typename Function>
  static void visit(const c10::IValue& value, Function function) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        function(value.toTensor());
      }
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        if (tensor.defined()) {
          function(tensor);
        }
      }
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) {
        visit(item, function);
      }
    }
  }

  at::Tensor converted(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_privateuseone()) {
      return tensor;
    }
    at::Tensor alias = host_alias(tensor);
    origins_.emplace_back(alias.storage().data(), tensor);
    return alias;
  }

  c10::IValue converted(const c10::IValue& value, const c10::Argument& argument) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (argument.is_out() && tensor.defined() && tensor.numel() == 0) {
        at::Tensor grown = at::empty({0}, tensor.options().device(at::kCPU));
        grown_.emplace_back(tensor, grown);
        return grown;
      }
      return converted(tensor);
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(converted(tensor));
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional<at::Tensor>(converted(*tensor)) : std::nullopt);
      }
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == kNpu) {
      return c10::Device(at::kCPU);
    }
    if (value.isGenerator() || (value.isNone() && is_generator(argument))) {
      const auto given = value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator());
      return host_generator(given, index_);
    }
    return value;
  }

  static bool is_generator(const c10::Argument& argument) {
    const auto* type = argument.type()->cast<c10::OptionalType>().get();
    return type != nullptr && type->getElementType()->kind() == c10::TypeKind::GeneratorType;
  }

  void adopt_grown() {
    for (const auto& [tensor, grown] : grown_) {
      tensor.resize_(grown.sizes());
      host_alias(tensor).copy_(grown);
    }
  }

  c10::IValue returned(const c10::IValue& value, const c10::Argument& result) {
    if (const auto* alias = result.alias_info(); alias != nullptr && alias->isWrite()) {
      for (size_t position = 0; position < given_.size(); ++position) {
        const auto* of_argument = schema_.arguments()[position].alias_info();
        if (of_argument != nullptr && *of_argument == *alias) {
          return given_[position];
        }
      }
    }
    if (value.isTensor()) {
      return returned(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(returned(tensor));
      }
      return list;
    }
    return value;
  }

  at::Tensor returned(const at::Tensor& result) {
    if (!result.defined() || !result.is_cpu()) {
      return result;
    }
    for (const auto& [memory, origin] : origins_) {
      if (result.has_storage() && memory != nullptr && result.storage().data() == memory) {
        at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
            c10::TensorImpl::VIEW, c10::Storage(origin.storage()), origin.key_set(), result.dtype());
        view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
        return view;
      }
    }
    const c10::Device device(kNpu, static_cast<c10::DeviceIndex>(index_));
    const bool dense = result.is_non_overlapping_and_dense();
    at::Tensor copy = dense ? at::empty_strided(result.sizes(), result.strides(), result.options().device(device))
                            : at::empty(result.sizes(), result.options().device(device));
    host_alias(copy).copy_(result);
    return copy;
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  const size_t first_;
  const std::vector<c10::IValue> given_;
  int index_ = -1;
  std::vector<std::pair<const void*, at::Tensor>> origins_;
  std::vector<std::pair<at::Tensor, at::Tensor>> grown_;  // Empty results, and what grew on the host in their place.
};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  HostCall(op, *stack).run();
}

}  // namespace

at::Tensor host_alias(const at::Tensor& tensor) {
  auto* const storage = tensor.storage().unsafeGetStorageImpl();
  void* const memory = storage->mutable_data();
  c10::raw::intrusive_ptr::incref(storage);
  c10::DataPtr pointer(memory, storage, &release_alias, c10::Device(at::kCPU));
  c10::Storage alias(
      c10::Storage::use_byte_size_t(), storage->nbytes(), std::move(pointer), /*allocator=*/nullptr,
      /*resizable=*/false);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(alias), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  auto* const impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  if (tensor.is_conj()) {
    impl->_set_conj(true);
  }
  if (tensor.is_neg()) {
    impl->_set_neg(true);
  }
  return made;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage_);
  m.impl("set_.source_Storage", &set_whole_storage_);
  m.impl("set_.source_Tensor", &set_tensor_);
  m.impl("set_", &set_nothing_);
  m.impl("record_stream", &record_stream);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FULL(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FULL)
  AT_FORALL_PROMOTE(WIDEST)
}

}  // namespace simulated_npu
