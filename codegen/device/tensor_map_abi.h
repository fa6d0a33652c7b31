// What emulated kernels and the emulator agree on for tensor maps, which on a GPU are encoded by the driver.
// Both sides include this text: the kernel's side has no headers, so only built-in types appear.

#ifndef FUSION_TENSOR_MAP_ABI_H
#define FUSION_TENSOR_MAP_ABI_H
namespace fusion_emulation {

/// A view in memory and the tiles that are copied of it. Dims are innermost first, as the driver takes them.
struct TensorMap {
  unsigned char *base;
  unsigned long long shape[5];
  unsigned long long strides[5]; ///< in bytes
  unsigned short box[5];         ///< extent of a tile, in elements of the view
  unsigned char elementStrides[5];
  unsigned char rank;
  unsigned char elementBytes;
  unsigned char swizzle;         ///< 0: none, else 16 << swizzle bytes
  unsigned char nanExponentBits; ///< elements outside are NaNs with an exponent of so many bits; 0: zeros
};

} // namespace fusion_emulation
#endif
