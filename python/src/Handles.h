// Handles of the C interface as C++ objects, and tensors that Python has.
#pragma once

#include <fusion.h>

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace fusion::python {
namespace nb = nanobind;

/// Raises the exception of the status' kind with fusion_last_error().
void check(fusion_status status);
/// The classes to raise, by status: AnswerIsNo, BadInput, Lacking.
void setErrors(nb::object answerIsNo, nb::object badInput, nb::object lacking);

/// The destructor of a capsule `dltensor`.
void releaseCapsule(PyObject *capsule);

/// A handle that is destroyed with this object.
template <class T, void (*destroy)(T *)>
class Handle {
public:
  explicit Handle(T *handle) : handle(handle, destroy) {}
  T *get() const { return handle.get(); }
  void reset() { handle.reset(); }

private:
  std::unique_ptr<T, void (*)(T *)> handle;
};

/// A text that the C interface gives.
class Text {
public:
  Text() = default;
  Text(const Text &) = delete;
  ~Text() { fusion_free(text); }
  char **out() { return &text; }
  std::string str() const { return text ? text : ""; }

private:
  char *text = nullptr;
};

/// The memory of an object with the buffer protocol, held until release().
class Buffer {
public:
  /// Raises what the object raises if it has no contiguous buffer.
  static Buffer *of(nb::handle object);
  const void *data() const { return view.buf; }
  size_t size() const { return static_cast<size_t>(view.len); }
  /// As a fusion_release: from any thread.
  static void release(void *buffer);

private:
  Py_buffer view;
};

class Tensor : public Handle<fusion_tensor, fusion_tensor_destroy> {
public:
  using Handle::Handle;
  /// Takes a capsule `dltensor`.
  static Tensor *fromDLPack(nb::object capsule);
  /// Dense memory that lives as long as `owner` does; `kind` and `ordinal` of the device as in DLPack.
  static Tensor *fromPointer(uintptr_t address, const std::vector<int64_t> &shape, uint8_t code, uint8_t bits,
                             int kind, int ordinal, nb::object owner);
  nb::object toDLPack() const;
  /// Address, shape, strides in elements (none if dense), type code and bits, kind and ordinal of the device,
  /// as DLPack has them.
  using Facts =
      std::tuple<uintptr_t, std::vector<int64_t>, std::optional<std::vector<int64_t>>, int, int, int, int>;
  Facts facts() const;
};

} // namespace fusion::python
