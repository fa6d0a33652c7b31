#include "codegen/device/Prelude.h"

#include "codegen/device/DeviceText.h"

namespace fusion {

static std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (std::string_view part : parts)
    text += part;
  return text;
}

std::string_view cudaPrelude() {
  static const std::string text = joined({device_text::types_cuh, device_text::narrow_floats_cuh,
                                          device_text::prelude_cuda_cuh, device_text::wgmma_cuda_cuh, device_text::math_cuh,
                                          device_text::vectors_cuh, device_text::bytes_cuda_cuh, device_text::bytes_cuh, device_text::fragments_cuh, device_text::rows_cuh,
                                          device_text::clusters_cuda_cuh, device_text::attention_cuh});
  return text;
}

std::string_view hostPrelude() {
  static const std::string text =
      joined({device_text::emulation_abi_h, device_text::types_cuh, device_text::narrow_floats_cuh,
              device_text::prelude_host_h, device_text::math_cuh, device_text::wgmma_host_h, device_text::vectors_cuh, device_text::bytes_host_h, device_text::bytes_cuh, device_text::fragments_cuh, device_text::rows_cuh,
              device_text::clusters_host_h, device_text::attention_cuh});
  return text;
}

bool usesExchange(std::string_view source) { return source.find("Exchange *") != std::string_view::npos; }

std::string_view cudaExchangePrelude() {
  static const std::string text =
      joined({device_text::exchange_abi_h, device_text::exchange_cuda_cuh, device_text::exchange_cuh});
  return text;
}

std::string_view hostExchangePrelude() {
  static const std::string text =
      joined({device_text::exchange_abi_h, device_text::exchange_host_h, device_text::exchange_cuh});
  return text;
}

} // namespace fusion
